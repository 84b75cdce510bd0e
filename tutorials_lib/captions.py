"""What can be done to a caption: exchange, replace or add a concept, forget, generate by tokens.

Works on the captions of `tutorials_lib.scenes`, whose meaning is known. The functions with
"english" in their names do the same for plain English captions of a small grammar. Choices between
a right and a wrong caption are reported with what scores reach that see no image.
"""

from __future__ import annotations

from tutorials_lib._caption_edits import (
    OPERATORS,
    Edit,
    NoEdit,
    add_concept,
    edits,
    replace_concepts,
    swap_concepts,
)
from tutorials_lib._caption_latents import (
    CaptionLatents,
    SentenceLatents,
    sample_claims,
)
from tutorials_lib._caption_negatives import (
    describes_each,
    hard_negatives,
    name_operator,
    orbit,
    sample_negatives,
)
from tutorials_lib._choices import ChoiceReport, blind_baselines, choice_report
from tutorials_lib._english import EnglishCaption, parse_english
from tutorials_lib._english_edits import (
    add_english,
    concepts_english,
    english_edits,
    name_operator_english,
    replace_english,
    swap_english,
)
from tutorials_lib._english_meaning import same_meaning_english
from tutorials_lib._english_places import ENGLISH_KINDS
from tutorials_lib._english_words import indefinite_article
from tutorials_lib._forgetting import (
    PseudoOptimal,
    bag_of_words,
    drop_adjectives,
    drop_order_within_type,
    merge_synonyms,
    pseudo_optimal,
)
from tutorials_lib._sugarcrepe import (
    SUGARCREPE_CATEGORIES,
    HardNegative,
    count_categories,
    load_sugarcrepe,
    sugarcrepe_hashes,
)
from tutorials_lib._token_law import EOS
from tutorials_lib._token_scm import SentenceSCM, TokenSCM

__all__ = [
    "ENGLISH_KINDS",
    "EOS",
    "OPERATORS",
    "SUGARCREPE_CATEGORIES",
    "CaptionLatents",
    "ChoiceReport",
    "Edit",
    "EnglishCaption",
    "HardNegative",
    "NoEdit",
    "PseudoOptimal",
    "SentenceLatents",
    "SentenceSCM",
    "TokenSCM",
    "add_concept",
    "add_english",
    "bag_of_words",
    "blind_baselines",
    "choice_report",
    "concepts_english",
    "count_categories",
    "describes_each",
    "drop_adjectives",
    "drop_order_within_type",
    "edits",
    "english_edits",
    "hard_negatives",
    "indefinite_article",
    "load_sugarcrepe",
    "merge_synonyms",
    "name_operator",
    "name_operator_english",
    "orbit",
    "parse_english",
    "pseudo_optimal",
    "replace_concepts",
    "replace_english",
    "same_meaning_english",
    "sample_claims",
    "sample_negatives",
    "sugarcrepe_hashes",
    "swap_concepts",
    "swap_english",
]
