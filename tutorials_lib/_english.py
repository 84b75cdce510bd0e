"""A small grammar for plain English captions: reading, writing, and what they mean.

A caption is a chain of noun phrases with a link between any two neighbours::

    caption   = [opening] phrase {link phrase} ["."]
    opening   = "a photo of" | "a picture of" | "there is" | …
    phrase    = [determiner] {adjective} noun [predicate]
    determiner= "a" | "an" | "the" | "some" | number
    predicate = ("is" | "that is" | "which is") adjectives
    link      = "," | "and" | ", and" | ["is" | "that is" | "which is"] [posture] relation
    posture   = "sitting" | "standing" | …
    relation  = "next to" | "on" | "holding" | …

"is" stands for "are" as well, by the number of its subject. Adjectives may be joined by "and" or
a comma. English does not say what a link attaches to: in "a dog on a sofa next to a cat" the dog or
the sofa can be the one by the cat. So the chain is kept as it is, and `readings` lists what it can
mean.
`tutorials_lib.captions` is where to import what is public.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tutorials_lib._english_words import (
    ADJECTIVES,
    COORDINATIONS,
    DETERMINERS,
    NOUN_FORMS,
    NOUNS,
    NUMBERS,
    OPENINGS,
    POSTURES,
    RELATION_WORDS,
    indefinite_article,
)

__all__ = [
    "Adjectives",
    "EnglishCaption",
    "Link",
    "NounPhrase",
    "parse_english",
]

MOST_PHRASES = 6  # the readings grow exponentially with the links
_ARE = {"is": "are", "that is": "that are", "which is": "which are"}
_COPULAS = {words: key for key, other in _ARE.items() for words in (key, other)}
_PLURAL_NUMBERS = NUMBERS[1:]


@dataclass(frozen=True)
class Adjectives:
    """Adjectives in a row and what stands between them: "", ",", "and" or ", and"."""

    words: tuple[str, ...] = ()
    joints: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the words."""
        parts = [self.words[0]] if self.words else []
        for joint, word in zip(self.joints, self.words[1:], strict=True):
            parts += [joint, word]
        return _join(parts)


@dataclass(frozen=True)
class NounPhrase:
    """A noun with what belongs to it.

    Attributes
    ----------
    determiner
        "a" for "an" as well, "the", "some", a number, or "" for none.
    adjectives
        Those before the noun.
    noun
        The noun by its name in the lexicon, which is its singular if it has one.
    plural
        Whether it stands in the plural.
    copula, predicate
        "is", "that is" or "which is", and the adjectives behind it; "" and none for neither.
    """

    determiner: str
    adjectives: Adjectives
    noun: str
    plural: bool
    copula: str = ""
    predicate: Adjectives = Adjectives()

    def core(self) -> str:
        """Return the words up to the noun."""
        rest = _join([self.adjectives.text(), NOUNS[self.noun].form(self.plural) or ""])
        article = indefinite_article(rest) if self.determiner == "a" else self.determiner
        return _join([article, rest])

    def problem(self) -> str | None:
        """Say why determiner, noun and number do not go together; None if they do."""
        noun = NOUNS[self.noun]
        if noun.form(self.plural) is None:
            return f"{self.noun!r} has no {'plural' if self.plural else 'singular'}"
        if self.determiner in ("a", "one") and (self.plural or noun.mass):
            return f"{self.determiner!r} goes with one thing only"
        if self.determiner == "the" and noun.singular == noun.plural:
            return f"'the {self.noun}' can be one or several"
        if self.determiner in _PLURAL_NUMBERS and not self.plural:
            return f"{self.determiner!r} needs a plural"
        if self.determiner in ("", "some") and not (self.plural or noun.mass):
            return f"{self.noun!r} needs an article or a number"
        return None

    def label(self) -> tuple[str, str, frozenset[str]]:
        """Return the meaning of the words up to the noun: noun, number, adjectives."""
        number = self.determiner if self.determiner in NUMBERS else "some"
        if not self.plural:
            number = "mass" if NOUNS[self.noun].mass else "one"
        meaning = frozenset(ADJECTIVES[word][1] for word in self.adjectives.words)
        return NOUNS[self.noun].concept, number, meaning


@dataclass(frozen=True)
class Link:
    """What stands between two phrases.

    Attributes
    ----------
    words
        "and", ",", ", and", or the words of a relation.
    copula
        "is", "that is", "which is" or "".
    posture
        "sitting" and its like, or "".
    """

    words: str
    copula: str = ""
    posture: str = ""

    @property
    def coordinates(self) -> bool:
        """Whether it sets phrases side by side."""
        return self.words in COORDINATIONS


@dataclass(frozen=True)
class EnglishCaption:
    """A caption, taken apart.

    Attributes
    ----------
    opening
        One of the openings, with "is", or "".
    phrases
        At least one.
    links
        One fewer.
    capital, stop
        Whether it begins with a capital, ends with a full stop.
    """

    opening: str
    phrases: tuple[NounPhrase, ...]
    links: tuple[Link, ...] = ()
    capital: bool = False
    stop: bool = False

    def text(self) -> str:
        """Return the caption; undoes `parse_english`, up to white space."""
        parts = [_agreeing(self.opening, self.phrases[0].plural)]
        for at, phrase in enumerate(self.phrases):
            parts.append(phrase.core())
            if phrase.copula:
                parts += [self._copula(phrase.copula, at), phrase.predicate.text()]
            if at < len(self.links):
                link = self.links[at]
                parts += [self._copula(link.copula, at), link.posture, link.words]
        text = _join(parts)
        text = text[0].upper() + text[1:] if self.capital else text
        return f"{text}." if self.stop else text

    def _copula(self, copula: str, at: int) -> str:
        return _agreeing(copula, self.plural_subject(copula, at)) if copula else ""

    def subject(self, copula: str, at: int) -> range:
        """Return the phrases that a copula behind phrase ``at`` is about.

        "That is" is about the phrase before it, "is" about the phrases at the beginning of its
        clause, up to the first relation. A clause begins behind the first "and" or comma that
        follows the verb of the one before. An empty range if there is none.
        """
        if copula != "is":
            return range(at, at + 1)
        verb = max((i for i in range(at) if self._verb_at(i)), default=-1)
        start = 0
        if verb >= 0:
            ends = (i + 1 for i in range(verb, at) if self.links[i].coordinates)
            start = next(ends, at + 1)
        end = start + 1
        while end <= at and self.links[end - 1].coordinates:
            end += 1
        return range(start, end if start <= at else start)

    def plural_subject(self, copula: str, at: int) -> bool:
        """Say whether a copula behind phrase ``at`` stands in the plural."""
        about = self.subject(copula, at)
        return len(about) > 1 or self.phrases[about[0]].plural

    def _verb_at(self, at: int) -> bool:
        return self.phrases[at].copula == "is" or self.links[at].copula == "is"

    def clause_starts(self) -> set[int]:
        """Return the phrases at which the second and later clauses begin."""
        verbs = (at for at in range(len(self.links)) if self.links[at].copula == "is")
        predicates = (at for at, phrase in enumerate(self.phrases) if phrase.copula == "is")
        return {self.subject("is", at)[0] for at in (*verbs, *predicates)} - {0}

    def labels(self) -> list[tuple[str, str, frozenset[str]]]:
        """Return the meaning of each phrase alone: noun, number, adjectives."""
        labels = [phrase.label() for phrase in self.phrases]
        for at, phrase in enumerate(self.phrases):
            if phrase.copula:
                more = {ADJECTIVES[word][1] for word in phrase.predicate.words}
                for about in self.subject(phrase.copula, at):
                    noun, number, meaning = labels[about]
                    labels[about] = (noun, number, meaning | more)
        return labels


def _join(parts: list[str]) -> str:
    return " ".join(part for part in parts if part).replace(" ,", ",")


def _agreeing(words: str, plural: bool) -> str:
    return re.sub(r"\bis$", "are", words) if plural else words


class _Reader:
    """Reads the words of one caption from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        body = text.strip()
        self.stop = body.endswith(".")
        body = body.removesuffix(".").rstrip()
        self.capital = body[:1].isupper()
        self.words = re.findall(r"[^\s,]+|,", body[:1].lower() + body[1:])
        self.at = 0

    def fail(self, expected: str) -> ValueError:
        before = _join(self.words[: self.at])
        place = f"after {before!r}" if before else "at the beginning"
        if self.at == len(self.words):
            return ValueError(f"cannot read {self.text!r}: {place} it ends, expected {expected}")
        word = self.words[self.at]
        close = [] if word in _KNOWN else difflib.get_close_matches(word, sorted(_KNOWN), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return ValueError(
            f"cannot read {self.text!r}: {place} comes {word!r}, expected {expected}{hint}"
        )

    def take(self, phrases: _Table) -> str:
        """Step over the longest of the phrases that comes next and return it, or ""."""
        word = self.words[self.at] if self.at < len(self.words) else ""
        for parts, phrase in phrases.get(word, ()):
            if self.words[self.at : self.at + len(parts)] == parts:
                self.at += len(parts)
                return phrase
        return ""

    def adjectives(self) -> Adjectives:
        words, joints = [self.take(_ADJECTIVES)], []
        while words[-1]:
            mark = self.at
            joints.append(self.take(_COORDINATIONS))
            words.append(self.take(_ADJECTIVES))
            if not words[-1]:
                self.at = mark
        return Adjectives(tuple(words[:-1]), tuple(joints[:-1]))

    def phrase(self) -> NounPhrase:
        article = self.take(_ARTICLES)
        determiner = "a" if article else self.take(_OTHER_DETERMINERS)
        first = self.at
        adjectives = self.adjectives()
        form = self.take(_FORMS)
        if not form and adjectives.words and adjectives.joints[-1:] in ((), ("",)):
            self.at -= 1  # "orange" in "an orange" is the noun
            form = self.take(_FORMS)
            adjectives = Adjectives(adjectives.words[:-1], adjectives.joints[:-1])
            self.at += not form
        if not form:
            raise self.fail("a noun that is known, with an article, number or adjectives before it")
        found = [NounPhrase(determiner, adjectives, *noun) for noun in NOUN_FORMS[form]]
        phrase = next((phrase for phrase in found if not phrase.problem()), None)
        if phrase is None:
            self.at -= len(_split(form))
            raise self.fail(f"another form, because {found[0].problem()}")
        if article and article != indefinite_article(self.words[first]):
            self.at = first
            right = indefinite_article(self.words[first])
            raise self.fail(f"a word that goes with {article!r}; write {right!r} before it")
        return phrase

    def caption(self) -> EnglishCaption:
        written = self.take(_OPENING_WORDS)
        opening = _OPENINGS.get(written, "")
        phrases, links = [self.phrase()], []
        self._agree(written, _agreeing(opening, phrases[0].plural), 0)
        while True:
            so_far = EnglishCaption(opening, tuple(phrases), tuple(links))
            mark = self.at
            written = self.take(_COPULA_WORDS)
            copula = _COPULAS.get(written, "")
            if copula:
                again = copula == phrases[-1].copula == "is"
                if again or not so_far.subject(copula, len(phrases) - 1):
                    self.at = mark
                    raise self.fail("'and' and another subject before a second verb")
                plural = so_far.plural_subject(copula, len(phrases) - 1)
                self._agree(written, _agreeing(copula, plural), mark)
            if copula and not phrases[-1].copula:
                predicate = self.adjectives()
                if predicate.words:
                    last = phrases[-1]
                    phrases[-1] = NounPhrase(
                        last.determiner, last.adjectives, last.noun, last.plural, copula, predicate
                    )
                    continue
            posture = self.take(_POSTURES)
            words = self.take(_RELATIONS)
            if not (words or posture or copula):
                words = self.take(_COORDINATIONS)
            if not words:
                if self.at == len(self.words) and not (posture or copula):
                    break
                more = "" if posture else "adjectives, " if copula else "the end, 'and', "
                raise self.fail(f"{more}a preposition or a verb in -ing that is known")
            if len(phrases) == MOST_PHRASES:
                raise self.fail(f"the end: {MOST_PHRASES} phrases are the most that are read")
            links.append(Link(words, copula, posture))
            phrases.append(self.phrase())
        return EnglishCaption(opening, tuple(phrases), tuple(links), self.capital, self.stop)

    def _agree(self, written: str, right: str, at: int) -> None:
        if written != right:
            self.at = at
            raise self.fail(f"{right!r}, which agrees with its subject")


def _split(phrase: str) -> list[str]:
    return re.findall(r"[^\s,]+|,", phrase)


_Table = dict[str, list[tuple[list[str], str]]]


def _table(phrases: Iterable[str]) -> _Table:
    """Sort phrases by their first word, the longest first."""
    table: _Table = {}
    for phrase in sorted(phrases, key=lambda phrase: -len(_split(phrase))):
        parts = _split(phrase)
        table.setdefault(parts[0], []).append((parts, phrase))
    return table


_OPENINGS = {words: known for known in OPENINGS for words in (known, _agreeing(known, True))}
_ARTICLES = _table(("a", "an"))
_OTHER_DETERMINERS = _table(DETERMINERS[1:])
_OPENING_WORDS = _table(_OPENINGS)
_COPULA_WORDS = _table(_COPULAS)
_ADJECTIVES = _table(ADJECTIVES)
_POSTURES = _table(POSTURES)
_COORDINATIONS = _table(COORDINATIONS)
_RELATIONS = _table(RELATION_WORDS)
_FORMS = _table(NOUN_FORMS)
_KNOWN = {
    part
    for table in (
        *(_ARTICLES, _OTHER_DETERMINERS, _OPENING_WORDS, _COPULA_WORDS, _ADJECTIVES, _POSTURES),
        *(_COORDINATIONS, _RELATIONS, _FORMS),
    )
    for phrases in table.values()
    for parts, _ in phrases
    for part in parts
}


def parse_english(text: str) -> EnglishCaption:
    """Take a plain English caption apart.

    Parameters
    ----------
    text
        A caption of the grammar above, with at most six noun phrases. A capital at the beginning
        and a full stop at the end are accepted; white space does not count.

    Returns
    -------
    EnglishCaption
        Its parts; ``.text()`` writes the caption again.

    Raises
    ------
    TypeError
        If the caption is no string.
    ValueError
        If it is outside the grammar or its lexicon, or has a wrong article or number. The message
        says where, and what was expected.
    """
    if not isinstance(text, str):
        raise TypeError(f"a caption must be a string, got {type(text).__name__}")
    return _parse(text)


@functools.lru_cache(maxsize=4096)  # captions are edited many times in a row
def _parse(text: str) -> EnglishCaption:
    return _Reader(text).caption()
