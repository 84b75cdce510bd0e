"""Operators on the captions of scenes: SWAP, REPLACE and ADD, and what they do to the meaning.

`tutorials_lib.captions` is where to import all of it from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from tutorials_lib._caption_words import (
    CONCEPTS,
    KINDS,
    CaptionWords,
    MentionWords,
    Phrase,
    concept_of,
    mention_words,
    read_words,
    write_phrase,
)
from tutorials_lib._scene_captions import same_meaning
from tutorials_lib._scene_grammar import Mention

__all__ = [
    "OPERATORS",
    "Edit",
    "NoEdit",
    "add_concept",
    "edits",
    "replace_concepts",
    "swap_concepts",
]

OPERATORS = ("swap", "replace", "add")
_PLACES = ("first", "second")
_SAME_SWAP = "'and' has no order, so the exchange only mentions the objects in another order"
_SAME_TURN = "the mentions say the same, so the opposite relation between them does too"


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


@dataclass(frozen=True)
class Step:
    """An operator and what to apply it to; `apply_step` does.

    ``value`` is a concept to put or add, or a mention to add; None for a swap.
    """

    operator: str
    kind: str
    which: int = 0
    value: Phrase | MentionWords | None = None


def swap_concepts(
    caption: str, kind: str = "colour", *, allow_same_meaning: bool = False
) -> Edit | NoEdit:
    """Exchange a concept of the first mention with one of the second.

    Only the two words change places; template, synonyms and word order stay, and articles follow.
    The caption's words are therefore kept up to "a" and "an", and a swap undoes itself.

    Parameters
    ----------
    caption
        A caption that ``scenes.parse_caption`` reads.
    kind
        ``"colour"``, ``"shape"``, ``"size"``, or ``"object"`` for the mentions as a whole. There
        is one relation at most, so nothing to exchange it with.
    allow_same_meaning
        Whether to return also an exchange that leaves the meaning as it is, as in "a red cube and
        a blue cube".

    Returns
    -------
    Edit or NoEdit
        `NoEdit` with a reason if there is nothing to exchange, or if it would mean the same.

    Raises
    ------
    TypeError, ValueError
        If the caption cannot be read, or there is no such kind.
    """
    _check_kind(kind)
    return apply_step(read_words(caption), caption, Step("swap", kind), allow_same_meaning)


def replace_concepts(
    caption: str, kind: str, value: str, *, which: int = 0, allow_same_meaning: bool = False
) -> Edit | NoEdit:
    """Put another concept of the same kind in the place of one.

    Parameters
    ----------
    caption
        A caption that ``scenes.parse_caption`` reads.
    kind
        ``"colour"``, ``"shape"``, ``"size"`` or ``"relation"``. An object is not one concept;
        replace its parts one after the other.
    value
        The new concept, such as ``"purple"`` or ``"left"``. It is written with the word that the
        caption has for it already, else with its usual one. Another word for it, such as
        ``"violet"``, is taken as it is.
    which
        0 for the first mention, 1 for the second; not used for a relation.
    allow_same_meaning
        Whether to return also a change that leaves the meaning as it is: the opposite relation
        between two like mentions.

    Returns
    -------
    Edit or NoEdit
        `NoEdit` with a reason if the concept is there already, or there is none to replace.

    Raises
    ------
    TypeError, ValueError
        If the caption cannot be read, or there is no such kind, value or mention.
    """
    words = read_words(caption)
    return apply_step(
        words, caption, _step("replace", words, kind, value, which), allow_same_meaning
    )


def add_concept(caption: str, kind: str, value: str | Mention, *, which: int = 0) -> Edit | NoEdit:
    """Insert a concept that the caption leaves open.

    Parameters
    ----------
    caption
        A caption that ``scenes.parse_caption`` reads.
    kind
        ``"colour"``, ``"size"``, ``"shape"`` (in the place of "object"), ``"relation"`` (in the
        place of "and") or ``"object"`` (a second mention, linked by "and").
    value
        As in `replace_concepts`; for an object a mention, or its words, such as "a red cube".
    which
        0 for the first mention, 1 for the second; not used for relations and objects.

    Returns
    -------
    Edit or NoEdit
        `NoEdit` with a reason if that place is taken. The new caption always says more, so the
        meaning changes; it can be true of the same scene.

    Raises
    ------
    TypeError, ValueError
        If the caption cannot be read, or there is no such kind, value or mention.
    """
    words = read_words(caption)
    return apply_step(words, caption, _step("add", words, kind, value, which))


def edits(
    caption: str,
    *,
    operators: Sequence[str] = OPERATORS,
    kinds: Sequence[str] | None = None,
    allow_same_meaning: bool = False,
) -> list[Edit]:
    """Make every edit of one concept.

    A swap of each kind; each concept replaced by each other one of its kind; each open place
    filled with each concept. A second object is added by its noun alone, "and a cube", so that
    one edit adds one concept. Concepts are written as in `replace_concepts`.

    Parameters
    ----------
    caption
        A caption that ``scenes.parse_caption`` reads.
    operators
        Some of `OPERATORS`.
    kinds
        Some of ``"colour"``, ``"shape"``, ``"size"``, ``"relation"`` and ``"object"``; None for
        all.
    allow_same_meaning
        Whether edits that leave the meaning as it is are among them.

    Returns
    -------
    list of Edit
        In the order of operators and kinds; no two have the same ``after``, except that a swap of
        the only attribute in which two mentions differ is also a swap of objects.

    Raises
    ------
    TypeError, ValueError
        If the caption cannot be read, or there is no such operator or kind.
    """
    words = read_words(caption)
    made = (
        apply_step(words, caption, step, allow_same_meaning)
        for step in steps(words, operators, kinds)
    )
    return [edit for edit in made if isinstance(edit, Edit)]


def steps(
    words: CaptionWords, operators: Sequence[str] = OPERATORS, kinds: Sequence[str] | None = None
) -> list[Step]:
    """List the steps that `edits` tries; of these only swaps and relations can give `NoEdit`."""
    for operator in operators:
        if operator not in OPERATORS:
            raise ValueError(f"operators must be among {', '.join(OPERATORS)}, got {operator!r}")
    kinds = KINDS if kinds is None else kinds
    for kind in kinds:
        _check_kind(kind)
    found: list[Step] = []
    for operator in operators:
        for kind in kinds:
            if operator == "swap":
                found.append(Step("swap", kind))
            elif kind == "object":
                if operator == "add" and words.link is None:
                    nouns = ("object", *CONCEPTS["shape"])
                    mentions = (MentionWords(_phrase(words, noun)) for noun in nouns)
                    found += [Step("add", kind, 1, mention) for mention in mentions]
            else:
                for which in _places(words, operator, kind):
                    found += [
                        Step(operator, kind, which, phrase)
                        for phrase in _values(words, kind, which)
                    ]
    return found


def apply_step(
    words: CaptionWords, caption: str, step: Step, allow_same_meaning: bool = False
) -> Edit | NoEdit:
    """Apply one step to a caption and the words that were read off it."""
    changed = {"swap": _swap, "replace": _replace, "add": _add}[step.operator](words, step)
    if isinstance(changed, str):
        return NoEdit(step.operator, step.kind, caption, changed)
    after, out, into, reason = changed
    same = same_meaning(words.claim(), after.claim())
    if same:
        reason = _SAME_SWAP if step.operator == "swap" else _SAME_TURN
        if not allow_same_meaning:
            return NoEdit(step.operator, step.kind, caption, reason)
    return Edit(step.operator, step.kind, caption, after.text(), out, into, not same, reason)


_Changed = tuple[CaptionWords, tuple[str, ...], tuple[str, ...], str]


def _swap(words: CaptionWords, step: Step) -> _Changed | str:
    kind = step.kind
    if kind == "relation":
        return "a caption has one relation at most, so there is nothing to exchange it with"
    if words.link is None:
        return "the caption mentions one object only"
    first, second = words.mentions
    if kind == "object":
        if first.mention() == second.mention():
            return "both mentions say the same"
        pair = (second, first)
        out = tuple(" ".join(p.concept for p in m.phrases()) for m in words.mentions)
        reason = "the objects exchange their places"
    else:
        values = first.get(kind), second.get(kind)
        if values[0] is None or values[1] is None:
            place = _PLACES[0 if values[0] is None else 1]
            return f"the {place} mention leaves its {kind} open"
        if values[0].concept == values[1].concept:
            return f"both mentions have the {kind} {values[0].concept}"
        pair = (first.put(kind, values[1]), second.put(kind, values[0]))
        out = (values[0].concept, values[1].concept)
        reason = f"the objects exchange their {kind}s, {out[0]} and {out[1]}"
    return dataclasses.replace(words, mentions=pair), out, out[::-1], reason


def _replace(words: CaptionWords, step: Step) -> _Changed | str:
    kind, which = step.kind, step.which
    if kind == "object":
        return "an object is not one concept; replace its colour, shape or size"
    assert isinstance(step.value, Phrase)
    new = step.value
    if kind == "relation":
        if words.link is None:
            return "the caption mentions one object only"
        old = words.link
        if old.concept == "and":
            return "the caption has no relation to replace; add one"
        after = dataclasses.replace(words, link=new)
    else:
        found = words.mentions[which].get(kind)
        if found is None:
            return f"the {_PLACES[which]} mention leaves its {kind} open; add one"
        old = found
        after = _put(words, which, words.mentions[which].put(kind, new))
    if old.concept == new.concept:
        return f"the {kind} is {old.concept} already"
    reason = f"{new.concept} stands in the place of {old.concept}"
    return after, (old.concept,), (new.concept,), reason


def _add(words: CaptionWords, step: Step) -> _Changed | str:
    kind, which, new = step.kind, step.which, step.value
    if kind == "object":
        assert isinstance(new, MentionWords)
        if words.link is not None:
            return "the caption mentions two objects, as many as a scene can hold"
        link = write_phrase("and")
        after = dataclasses.replace(words, mentions=(*words.mentions, new), link=link)
        into = tuple(phrase.concept for phrase in new.phrases())
        return after, (), into, f"a second object is mentioned, {new.text()}"
    assert isinstance(new, Phrase)
    if kind == "relation":
        if words.link is None:
            return "the caption mentions one object only"
        if words.link.concept != "and":
            return f"the caption has the relation {words.link.concept} already; replace it"
        after = dataclasses.replace(words, link=new)
    else:
        old = words.mentions[which].get(kind)
        if old is not None:
            return f"the {_PLACES[which]} mention has the {kind} {old.concept} already; replace it"
        after = _put(words, which, words.mentions[which].put(kind, new))
    return after, (), (new.concept,), f"the caption says more: {new.concept}"


def _put(words: CaptionWords, which: int, mention: MentionWords) -> CaptionWords:
    mentions = list(words.mentions)
    mentions[which] = mention
    return dataclasses.replace(words, mentions=tuple(mentions))


def _places(words: CaptionWords, operator: str, kind: str) -> list[int]:
    """Return the mentions with a concept of the kind to replace, or without one to add."""
    taken = operator == "replace"
    if kind == "relation":
        fits = words.link is not None and (words.link.concept != "and") == taken
        return [0] if fits else []
    return [i for i, m in enumerate(words.mentions) if (m.get(kind) is not None) == taken]


def _values(words: CaptionWords, kind: str, which: int) -> list[Phrase]:
    old = words.link if kind == "relation" else words.mentions[which].get(kind)
    there = None if old is None else old.concept
    return [_phrase(words, concept) for concept in CONCEPTS[kind] if concept != there]


def _phrase(words: CaptionWords, concept: str) -> Phrase:
    """Write a concept as the caption does already, or else in the usual way."""
    if concept in CONCEPTS["relation"]:
        return write_phrase(concept, like=words.link)
    word = words.word_for(concept)
    return write_phrase(concept) if word is None else Phrase(concept, word)


def _step(operator: str, words: CaptionWords, kind: str, value: str | Mention, which: int) -> Step:
    _check_kind(kind)
    if which not in (0, 1):
        raise ValueError(f"which must be 0 or 1, got {which!r}")
    if kind == "object":
        return Step(operator, kind, 1, None if operator == "replace" else _as_mention(value))
    if not isinstance(value, str):
        raise TypeError(f"value must be a string, got {type(value).__name__}")
    concept = value if value in CONCEPTS[kind] else concept_of(value)
    if concept not in CONCEPTS[kind]:
        known = ", ".join(CONCEPTS[kind])
        raise ValueError(f"there is no {kind} {value!r}; value must be one of {known}")
    if kind != "relation" and which >= len(words.mentions):
        raise ValueError(f"which is 1, but {words.text()!r} mentions one object only")
    phrase = _phrase(words, concept) if value == concept else Phrase(concept, value)
    return Step(operator, kind, which, phrase)


def _as_mention(value: str | Mention) -> MentionWords:
    if isinstance(value, Mention):
        return mention_words(value)
    words = read_words(value)
    if words.link is not None or any(words.template):
        raise ValueError(f"value must mention one object, such as 'a red cube', got {value!r}")
    return words.mentions[0]


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
