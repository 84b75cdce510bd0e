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
from tutorials_lib._caption_negatives import (
    describes_each,
    hard_negatives,
    name_operator,
    orbit,
    sample_negatives,
)

__all__ = [
    "OPERATORS",
    "Edit",
    "NoEdit",
    "add_concept",
    "describes_each",
    "edits",
    "hard_negatives",
    "name_operator",
    "orbit",
    "replace_concepts",
    "sample_negatives",
    "swap_concepts",
]
