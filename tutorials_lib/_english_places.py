"""Concepts of a plain English caption: where they stand, and how to put others there.

`tutorials_lib.captions` is where to import what is public.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Sequence

from tutorials_lib._english import Adjectives, EnglishCaption, Link, NounPhrase, parse_english
from tutorials_lib._english_words import (
    ADJECTIVE_KINDS,
    ADJECTIVES,
    NOUN_FORMS,
    NUMBERS,
    RELATION_WORDS,
)

__all__ = ["ENGLISH_KINDS", "Place"]

ENGLISH_KINDS = (*ADJECTIVE_KINDS, "noun", "number", "relation", "object")


@dataclasses.dataclass(frozen=True)
class Place:
    """A concept of a caption: its kind, its word, and where it stands.

    ``part`` is the phrase or link; ``slot`` tells adjectives of a phrase apart: before the noun
    from 0 on, in the predicate from 100 on.
    """

    kind: str
    word: str
    part: int
    slot: int = 0


_PREDICATE = 100


def all_places(tree: EnglishCaption) -> Iterator[Place]:
    for at, phrase in enumerate(tree.phrases):
        yield Place("object", phrase.core(), at)
        if phrase.determiner in NUMBERS:
            yield Place("number", phrase.determiner, at)
        for slot, word in enumerate(phrase.adjectives.words):
            yield Place(ADJECTIVES[word][0], word, at, slot)
        yield Place("noun", phrase.noun, at)
        for slot, word in enumerate(phrase.predicate.words):
            yield Place(ADJECTIVES[word][0], word, at, _PREDICATE + slot)
        if at < len(tree.links) and not tree.links[at].coordinates:
            yield Place("relation", tree.links[at].words, at)


def places_of(tree: EnglishCaption, kind: str) -> list[Place]:
    return [place for place in all_places(tree) if place.kind == kind]


def read_places(caption: str, kind: str) -> tuple[EnglishCaption, list[Place]]:
    if kind not in ENGLISH_KINDS:
        raise ValueError(f"kind must be one of {', '.join(ENGLISH_KINDS)}, got {kind!r}")
    tree = parse_english(caption)
    return tree, places_of(tree, kind)


def place_at(name: str, found: list[Place], kind: str, at: int) -> Place:
    if not 0 <= at < len(found):
        raise ValueError(
            f"{name} must count from 0 among the {len(found)} concepts of the kind {kind}, got {at}"
        )
    return found[at]


def known_word(kind: str, value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"value must be a string, got {type(value).__name__}")
    if kind == "noun" and value in NOUN_FORMS:
        return NOUN_FORMS[value][0][0]
    words: Sequence[str] = {"number": NUMBERS, "relation": tuple(RELATION_WORDS)}.get(kind, ())
    if kind in ADJECTIVE_KINDS:
        words = [word for word, (its_kind, _) in ADJECTIVES.items() if its_kind == kind]
    if value not in words:
        known = tuple(words) or tuple(NOUN_FORMS)
        close = ", ".join(difflib.get_close_matches(value, known, 3)) or "none"
        raise ValueError(
            f"{value!r} is no known {kind}; the nearest are: {close}; all are: {', '.join(known)}"
        )
    return value


def put_word(tree: EnglishCaption, place: Place, word: str) -> EnglishCaption:
    """Put a word in the place of another of its kind."""
    if place.kind == "relation":
        links = list(tree.links)
        links[place.part] = dataclasses.replace(links[place.part], words=word)
        return dataclasses.replace(tree, links=tuple(links))
    phrase = tree.phrases[place.part]
    if place.kind == "noun":
        phrase = dataclasses.replace(phrase, noun=word)
    elif place.kind == "number":
        phrase = dataclasses.replace(phrase, determiner=word, plural=word != "one")
    else:
        behind = place.slot >= _PREDICATE
        row = phrase.predicate if behind else phrase.adjectives
        words = list(row.words)
        words[place.slot % _PREDICATE] = word
        row = Adjectives(tuple(words), row.joints)
        phrase = dataclasses.replace(phrase, **{"predicate" if behind else "adjectives": row})
    return with_phrase(tree, place.part, phrase)


def with_phrase(tree: EnglishCaption, at: int, phrase: NounPhrase) -> EnglishCaption:
    return dataclasses.replace(tree, phrases=(*tree.phrases[:at], phrase, *tree.phrases[at + 1 :]))


def with_core(phrase: NounPhrase, other: NounPhrase) -> NounPhrase:
    return dataclasses.replace(other, copula=phrase.copula, predicate=phrase.predicate)


def with_adjective(phrase: NounPhrase, word: str) -> NounPhrase:
    """Put an adjective before the noun, in the usual order of kinds."""
    order = list(ADJECTIVE_KINDS)
    row = phrase.adjectives
    rank = order.index(ADJECTIVES[word][0])
    at = next(
        (i for i, old in enumerate(row.words) if order.index(ADJECTIVES[old][0]) > rank),
        len(row.words),
    )
    words = (*row.words[:at], word, *row.words[at:])
    joints = (*row.joints[:at], "", *row.joints[at:]) if row.words else ()
    return dataclasses.replace(phrase, adjectives=Adjectives(words, joints))


def with_object(tree: EnglishCaption, value: str, which: int) -> EnglishCaption | str:
    """Join an object to a phrase by "and", or say why it cannot be joined there."""
    new = parse_english(value)
    if new.links or new.opening or new.phrases[0].copula:
        raise ValueError(f"value must be one noun phrase, such as 'a red cat', got {value!r}")
    old, phrase = tree.phrases[which], new.phrases[0]
    link = tree.links[which] if which < len(tree.links) else Link("")
    # What "that is" tells of the phrase has to stay behind it.
    before = any(copula.startswith(("that", "which")) for copula in (old.copula, link.copula))
    if old.copula == "is":  # its subject grows, so the verb goes behind the new phrase
        phrase = dataclasses.replace(phrase, copula="is", predicate=old.predicate)
        old = dataclasses.replace(old, copula="", predicate=Adjectives())
    pair = (phrase, old) if before else (old, phrase)
    phrases = (*tree.phrases[:which], *pair, *tree.phrases[which + 1 :])
    links = (*tree.links[:which], Link("and"), *tree.links[which:])
    after = dataclasses.replace(tree, phrases=phrases, links=links)
    fresh = which if before else which + 1
    if fresh in after.clause_starts() and which not in tree.clause_starts():
        return "the new object would be read as the subject of the verb that follows"
    return after


def with_relation(tree: EnglishCaption, value: str) -> EnglishCaption:
    """Put a relation and its object behind a caption."""
    try:
        tail = parse_english(f"a dog {value}")
        fits = len(tail.phrases) == 2 and not tail.links[0].coordinates
        fits = fits and tail.links[0].copula != "is"
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"value must be a relation and its object, such as 'next to a tree', got {value!r}"
        )
    phrases, links = (*tree.phrases, tail.phrases[1]), (*tree.links, tail.links[0])
    return dataclasses.replace(tree, phrases=phrases, links=links)
