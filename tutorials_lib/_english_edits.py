"""Operators on plain English captions: SWAP, REPLACE and ADD, and what they do to the meaning.

`tutorials_lib.captions` is where to import all of it from.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from tutorials_lib._caption_edits import OPERATORS, Edit, NoEdit
from tutorials_lib._english import (
    MOST_PHRASES,
    Adjectives,
    EnglishCaption,
    NounPhrase,
    parse_english,
)
from tutorials_lib._english_meaning import same_meaning_english
from tutorials_lib._english_places import (
    ENGLISH_KINDS,
    Place,
    all_places,
    known_word,
    place_at,
    put_word,
    read_places,
    with_adjective,
    with_core,
    with_object,
    with_phrase,
    with_relation,
)
from tutorials_lib._english_words import (
    ADJECTIVE_KINDS,
    ADJECTIVES,
    NOUNS,
    RELATION_WORDS,
    alternatives,
)

__all__ = [
    "ENGLISH_KINDS",
    "add_english",
    "concepts_english",
    "english_edits",
    "name_operator_english",
    "replace_english",
    "swap_english",
]


def swap_english(
    caption: str,
    kind: str = "colour",
    *,
    places: tuple[int, int] | None = None,
    allow_same_meaning: bool = False,
) -> Edit | NoEdit:
    """Exchange two concepts of one kind in a plain English caption.

    Only the concepts change places. Number, articles and "is" or "are" follow: of nouns the number
    stays where it was, so "two dogs next to a cat" becomes "two cats next to a dog". A swap with
    the same places undoes itself.

    Parameters
    ----------
    caption
        A caption that `parse_english` reads.
    kind
        ``"colour"``, ``"size"``, ``"material"``, ``"pattern"``, ``"adjective"`` for the other
        adjectives, ``"noun"``, ``"number"``, ``"relation"``, or ``"object"`` for a noun with all
        that stands before it.
    places
        Which two concepts of the kind, counted from 0 in the order of `concepts_english`. None
        for the first two whose exchange changes the meaning.
    allow_same_meaning
        Whether to return also an exchange that leaves the meaning as it is, as in "yellow and
        blue hydrant" or "two sinks next to two mirrors".

    Returns
    -------
    Edit or NoEdit
        `NoEdit` with a reason if there is nothing to exchange, or if the caption can be read so
        that the exchange changes nothing.

    Raises
    ------
    TypeError, ValueError
        If the caption cannot be read, or there is no such kind or place.
    """
    tree, found = read_places(caption, kind)
    pairs = list(itertools.combinations(found, 2))
    if places is not None:
        first, second = (place_at("places", found, kind, at) for at in places)
        pairs = [(first, second)]
    refused = None
    for one, other in pairs:
        made = _swap(caption, tree, kind, one, other, allow_same_meaning)
        if made:
            return made
        refused = made if refused is None else refused
    if refused is not None:
        return refused
    there = "only one" if found else "none"
    return NoEdit("swap", kind, caption, f"a swap needs two of the kind {kind}, there is {there}")


def replace_english(
    caption: str, kind: str, value: str, *, which: int = 0, allow_same_meaning: bool = False
) -> Edit | NoEdit:
    """Put another concept of the same kind in the place of one in a plain English caption.

    Parameters
    ----------
    caption
        A caption that `parse_english` reads.
    kind
        As for `swap_english`, but not ``"object"``: replace its parts one after the other.
    value
        The new word; of a noun any form, which is put into the number of its place. A new number
        changes its noun and verb.
    which
        Which concept of the kind, counted from 0 in the order of `concepts_english`.
    allow_same_meaning
        Whether to return also a change that leaves the meaning as it is, "sofa" for "couch".

    Returns
    -------
    Edit or NoEdit
        `NoEdit` with a reason if there is none to replace, if the meaning stays, or if the new
        word does not fit: "grass" takes no "a". The new caption can be true of the same image:
        "a player" for "a man". `english_edits` leaves such out.

    Raises
    ------
    TypeError, ValueError
        If the caption cannot be read, or there is no such kind, value or place.
    """
    tree, found = read_places(caption, kind)
    if kind == "object":
        reason = "an object is not one concept; replace its noun or an adjective"
        return NoEdit("replace", kind, caption, reason)
    word = known_word(kind, value)
    if not found:
        return NoEdit("replace", kind, caption, f"the caption holds nothing of the kind {kind}")
    old = place_at("which", found, kind, which)
    if old.word == word:
        return NoEdit("replace", kind, caption, f"{word!r} stands there already")
    reason = f"{word!r} stands in the place of {old.word!r}"
    after = put_word(tree, old, word)
    return _made(
        "replace",
        kind,
        caption,
        after,
        (old.word,),
        (word,),
        reason,
        allow_same_meaning,
        same=f"{word!r} can mean the same here as {old.word!r}",
    )


def add_english(caption: str, kind: str, value: str, *, which: int = 0) -> Edit | NoEdit:
    """Insert a concept into a plain English caption.

    Parameters
    ----------
    caption
        A caption that `parse_english` reads.
    kind
        A kind of adjective; ``"object"``, which is joined to a phrase by "and"; or
        ``"relation"``, which is put behind the caption together with its object.
    value
        An adjective; a noun phrase such as "a red cat"; or "next to a tree".
    which
        The phrase, counted from 0, to which an adjective or object is added.

    Returns
    -------
    Edit or NoEdit
        `NoEdit` with a reason if the phrase has an adjective of the kind, or if there is no room.
        The new caption says more, so the meaning changes; it can be true of the same image.

    Raises
    ------
    TypeError, ValueError
        If the caption cannot be read, or there is no such kind, value or phrase.
    """
    tree, found = read_places(caption, kind)
    if kind in ("noun", "number"):
        reason = "every phrase has its noun and number; replace it, or add an object"
        return NoEdit("add", kind, caption, reason)
    if not isinstance(value, str):
        raise TypeError(f"value must be a string, got {type(value).__name__}")
    if not 0 <= which < len(tree.phrases):
        raise ValueError(f"which must be a phrase from 0 to {len(tree.phrases) - 1}, got {which!r}")
    if kind in ADJECTIVE_KINDS:
        word = known_word(kind, value)
        old = [place for place in found if place.part == which]
        if old:
            reason = f"the phrase has the {kind} {old[0].word!r} already; replace it"
            return NoEdit("add", kind, caption, reason)
        phrase = tree.phrases[which]
        after = with_phrase(tree, which, with_adjective(phrase, word))
        into: tuple[str, ...] = (word,)
    else:
        if len(tree.phrases) == MOST_PHRASES:
            return NoEdit("add", kind, caption, f"the caption has {MOST_PHRASES} phrases already")
        after = with_object(tree, value, which) if kind == "object" else with_relation(tree, value)
        into = (value,)
    return _made("add", kind, caption, after, (), into, f"the caption says more: {value}")


def english_edits(
    caption: str,
    *,
    operators: Sequence[str] = OPERATORS,
    kinds: Sequence[str] | None = None,
    allow_same_meaning: bool = False,
) -> list[Edit]:
    """Make every edit of one concept that the lexicon knows of.

    Swaps of every two concepts of a kind; each concept replaced by those that exclude it, such as
    another colour, the opposite size or relation, a noun for another thing; each phrase without an
    adjective of a kind given each of it, and one more object by its noun alone behind the first
    phrase. New words are the usual ones, never synonyms, and can be rarer or odder than what they
    replace; so look at `blind_baselines` before using the edits as negatives.

    Parameters
    ----------
    caption
        A caption that `parse_english` reads.
    operators
        Some of ``"swap"``, ``"replace"`` and ``"add"``.
    kinds
        As for `swap_english`; None for all. Nouns give more than a hundred edits each.
    allow_same_meaning
        Whether swaps that leave the meaning as it is are among them.

    Returns
    -------
    list of Edit
        No two with the same ``after``, in the order of operators and kinds.

    Raises
    ------
    TypeError, ValueError
        If the caption cannot be read, or there is no such operator or kind.
    """
    for operator in operators:
        if operator not in OPERATORS:
            raise ValueError(f"operators must be among {', '.join(OPERATORS)}, got {operator!r}")
    kinds = ENGLISH_KINDS if kinds is None else kinds
    found: dict[str, Edit] = {}
    for operator in operators:
        for kind in kinds:
            for made in _tries(caption, operator, kind, allow_same_meaning):
                if isinstance(made, Edit):
                    found.setdefault(made.after, made)
    return list(found.values())


def concepts_english(caption: str, kind: str | None = None) -> tuple[tuple[str, str], ...]:
    """List the concepts of a plain English caption as pairs of kind and word.

    Parameters
    ----------
    caption
        A caption that `parse_english` reads.
    kind
        Only this kind; None for all but ``"object"``, whose parts are listed already.

    Returns
    -------
    tuple of (str, str)
        In the order of the caption; a predicate's adjectives after its phrase.

    Raises
    ------
    TypeError, ValueError
        If the caption cannot be read, or there is no such kind.
    """
    if kind is not None:
        return tuple((place.kind, place.word) for place in read_places(caption, kind)[1])
    tree = parse_english(caption)
    return tuple((p.kind, p.word) for p in all_places(tree) if p.kind != "object")


def name_operator_english(before: str, after: str) -> str | None:
    """Name the operator that relates two plain English captions.

    Parameters
    ----------
    before, after
        Captions that `parse_english` reads.

    Returns
    -------
    str or None
        ``"same"`` if they can mean the same; ``"swap"`` if they hold the same concepts in another
        arrangement; ``"replace"`` if others of the same kinds stand in; ``"add"`` or ``"remove"``
        if one holds all concepts of the other and more; None if it takes several operators.

    Raises
    ------
    TypeError, ValueError
        As `parse_english`.
    """
    if same_meaning_english(before, after):
        return "same"
    old, new = _bag(before), _bag(after)
    out, into = old - new, new - old
    if not out and not into:
        return "swap"
    if not out or not into:
        return "add" if into else "remove"
    kinds = [sorted(kind for kind, *_ in bag.elements()) for bag in (out, into)]
    return "replace" if kinds[0] == kinds[1] else None


def _bag(caption: str) -> Counter[tuple[str, ...]]:
    """Count the concepts of a caption; each noun comes with its number."""
    tree = parse_english(caption)
    bag: Counter[tuple[str, ...]] = Counter()
    for noun, number, _ in tree.labels():
        bag.update([("noun", noun), ("number", "one" if number == "mass" else number)])
    for place in all_places(tree):
        if place.kind in ADJECTIVE_KINDS:
            bag[place.kind, ADJECTIVES[place.word][1]] += 1
    for link in tree.links:
        if not link.coordinates:
            relation = RELATION_WORDS[link.words]
            bag["relation", relation.concept, "turned" if relation.turned else ""] += 1
        if link.posture:
            bag["posture", link.posture] += 1
    return bag


def _tries(
    caption: str, operator: str, kind: str, allow_same_meaning: bool
) -> Iterator[Edit | NoEdit]:
    tree, found = read_places(caption, kind)
    if operator == "swap":
        for places in itertools.combinations(range(len(found)), 2):
            yield swap_english(caption, kind, places=places, allow_same_meaning=allow_same_meaning)
    elif operator == "replace" and kind != "object":
        for which, place in enumerate(found):
            for word in alternatives(kind, place.word):
                yield replace_english(caption, kind, word, which=which)
    elif operator == "add" and kind in ADJECTIVE_KINDS:
        for which in range(len(tree.phrases)):
            for words in ADJECTIVE_KINDS[kind].split():
                yield add_english(caption, kind, words.split("=")[0], which=which)
    elif operator == "add" and kind == "object":
        for name, noun in NOUNS.items():
            if noun.concept == name:
                phrase = NounPhrase("" if noun.mass else "a", Adjectives(), name, False)
                if phrase.problem():
                    phrase = dataclasses.replace(phrase, determiner="some", plural=True)
                yield add_english(caption, kind, phrase.core())


def _swap(
    caption: str,
    tree: EnglishCaption,
    kind: str,
    one: Place,
    other: Place,
    allow_same_meaning: bool,
) -> Edit | NoEdit:
    if one.word == other.word:
        return NoEdit("swap", kind, caption, f"in both places stands {one.word!r}")
    if kind in ("noun", "object", "relation") and (_of(tree, one) or _of(tree, other)):
        reason = "what 'of' joins belongs together, as in 'a slice of pizza'"
        return NoEdit("swap", kind, caption, reason)
    if kind == "object":
        first, second = tree.phrases[one.part], tree.phrases[other.part]
        after = with_phrase(tree, one.part, with_core(first, second))
        after = with_phrase(after, other.part, with_core(second, first))
    else:
        after = put_word(put_word(tree, one, other.word), other, one.word)
    out = (one.word, other.word)
    reason = f"{one.word!r} and {other.word!r} exchange their places"
    same = _why_same(tree, kind, one, other)
    return _made("swap", kind, caption, after, out, out[::-1], reason, allow_same_meaning, same)


def _of(tree: EnglishCaption, place: Place) -> bool:
    """Say whether a place is next to "of", or is it."""
    first = place.part if place.kind == "relation" else max(place.part - 1, 0)
    return any(link.words == "of" for link in tree.links[first : place.part + 1])


def _why_same(tree: EnglishCaption, kind: str, one: Place, other: Place) -> str:
    if kind in ADJECTIVE_KINDS and one.part == other.part:
        return f"{one.word!r} and {other.word!r} are said of the same thing, in no order"
    between = tree.links[one.part : other.part]
    if kind != "relation" and between:
        if all(link.coordinates for link in between):
            return "'and' has no order, so only what is named first changes"
        relations = [link.words for link in between if not link.coordinates]
        if all(RELATION_WORDS[words].symmetric for words in relations):
            return f"{relations[0]!r} is symmetric, it holds both ways"
    return "the caption can be read so that the exchange changes nothing"


def _made(
    operator: str,
    kind: str,
    before: str,
    after: EnglishCaption | str,
    out: tuple[str, ...],
    into: tuple[str, ...],
    reason: str,
    allow_same_meaning: bool = False,
    same: str = "",
) -> Edit | NoEdit:
    if isinstance(after, str):
        return NoEdit(operator, kind, before, after)
    for phrase in after.phrases:
        problem = phrase.problem()
        if problem:
            return NoEdit(operator, kind, before, f"the words do not fit: {problem}")
    text = after.text()
    unchanged = same_meaning_english(before, text)
    if unchanged and not allow_same_meaning:
        return NoEdit(operator, kind, before, same or "the meaning stays as it is")
    return Edit(
        operator, kind, before, text, out, into, not unchanged, same if unchanged else reason
    )
