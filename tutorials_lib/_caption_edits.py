"""Operators on the captions of scenes: SWAP, REPLACE and ADD, and what they do to the meaning.

`tutorials_lib.captions` is where to import all of it from.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OPERATORS", "Edit", "NoEdit"]

OPERATORS = ("swap", "replace", "add")


@dataclass(frozen=True)
class Edit:
    """One application of an operator to a caption.

    Attributes
    ----------
    operator
        ``"swap"``, ``"replace"`` or ``"add"``.
    kind
        Type of the concepts, such as ``"colour"`` or ``"noun"``.
    before, after
        The two captions.
    out
        Concepts that left their place; of a swap both, as they stood.
    into
        Concepts that came in their place; of a swap the same two, exchanged.
    changes_meaning
        Whether the captions mean something else. False of "a red cube and a blue cube" with its
        colours exchanged.
    reason
        Why the meaning changes or not, in one sentence.
    """

    operator: str
    kind: str
    before: str
    after: str
    out: tuple[str, ...]
    into: tuple[str, ...]
    changes_meaning: bool
    reason: str


@dataclass(frozen=True)
class NoEdit:
    """What an operator gives where it cannot be applied; false in a condition.

    Attributes
    ----------
    operator
        ``"swap"``, ``"replace"`` or ``"add"``.
    kind
        Type of the concepts.
    before
        The caption.
    reason
        Why there is nothing to exchange, replace or add, in one sentence.
    """

    operator: str
    kind: str
    before: str
    reason: str

    def __bool__(self) -> bool:
        return False
