"""What can be done to a caption: exchange, replace or add a concept, forget, generate by tokens.

Works on the captions of `tutorials_lib.scenes`, whose meaning is known.
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
from tutorials_lib._forgetting import (
    PseudoOptimal,
    bag_of_words,
    drop_adjectives,
    drop_order_within_type,
    merge_synonyms,
    pseudo_optimal,
)
from tutorials_lib._token_law import EOS
from tutorials_lib._token_scm import SentenceSCM, TokenSCM

__all__ = [
    "EOS",
    "OPERATORS",
    "CaptionLatents",
    "Edit",
    "NoEdit",
    "PseudoOptimal",
    "SentenceLatents",
    "SentenceSCM",
    "TokenSCM",
    "add_concept",
    "bag_of_words",
    "describes_each",
    "drop_adjectives",
    "drop_order_within_type",
    "edits",
    "hard_negatives",
    "merge_synonyms",
    "name_operator",
    "orbit",
    "pseudo_optimal",
    "replace_concepts",
    "sample_claims",
    "sample_negatives",
    "swap_concepts",
]
