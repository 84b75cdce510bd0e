"""The words of a caption, each with the concept it stands for, so that one can be changed alone.

`parse_caption` keeps the meaning of a caption only. What is read here keeps its wording as well.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

from tutorials_lib._scene_grammar import (
    LEXICON,
    RELATIONS,
    SIZES,
    TEMPLATES,
    Claim,
    Mention,
    parse_caption,
)
from tutorials_lib._scene_latents import COLOURS, SHAPES

__all__ = [
    "CONCEPTS",
    "KINDS",
    "CaptionWords",
    "MentionWords",
    "Phrase",
    "concept_of",
    "mention_words",
    "read_words",
    "starts_with_vowel",
    "write_phrase",
]

KINDS = ("colour", "shape", "size", "relation", "object")
# The concepts of each kind; an object is no concept of its own but a mention.
CONCEPTS: dict[str, tuple[str, ...]] = {
    "colour": COLOURS,
    "shape": SHAPES,
    "size": SIZES,
    "relation": RELATIONS,
}
_MEANS = {word: concept for concept, words in LEXICON.items() for word in words}
_AROUND = tuple(tuple(part.split() for part in template.split("{}")) for template in TEMPLATES)
_SUFFIX = next(after for before, after in _AROUND if not before and after)


def concept_of(word: str) -> str | None:
    """Return the concept that a word or phrase stands for, None if it stands for none."""
    return _MEANS.get(word)


def starts_with_vowel(word: str) -> bool:
    """Say whether "an" goes before a word; right for every word of the captions of scenes."""
    return word[0] in "aeiou"


@dataclass(frozen=True)
class Phrase:
    """A concept and the word or words that stand for it."""

    concept: str
    words: str


@dataclass(frozen=True)
class MentionWords:
    """One mention; ``behind`` names the adjective, if any, that follows the noun: "that is red"."""

    shape: Phrase
    size: Phrase | None = None
    colour: Phrase | None = None
    behind: str | None = None

    def get(self, kind: str) -> Phrase | None:
        """Return what the mention says of a kind, None if it leaves that open."""
        phrase: Phrase | None = getattr(self, kind)
        return None if phrase is None or phrase.concept == "object" else phrase

    def put(self, kind: str, phrase: Phrase) -> MentionWords:
        """Return the mention with another phrase of a kind."""
        return dataclasses.replace(self, **{kind: phrase})

    def phrases(self) -> tuple[Phrase, ...]:
        """Return what is said, in the order size, colour, noun."""
        return tuple(p for p in (self.size, self.colour, self.shape) if p is not None)

    def mention(self) -> Mention:
        """Return the meaning."""
        shape = SHAPES.index(self.shape.concept) if self.shape.concept in SHAPES else None
        return Mention(
            shape,
            COLOURS.index(self.colour.concept) if self.colour else None,
            self.size.concept if self.size else None,
        )

    def text(self) -> str:
        """Return the words, with the article that goes with the first."""
        adjectives = {"size": self.size, "colour": self.colour}
        last = adjectives.pop(self.behind) if self.behind else None
        words = [phrase.words for phrase in (*adjectives.values(), self.shape) if phrase]
        if last is not None:
            words += ["that is", last.words]
        return f"{'an' if starts_with_vowel(words[0]) else 'a'} {' '.join(words)}"


@dataclass(frozen=True)
class CaptionWords:
    """A caption, taken apart.

    Attributes
    ----------
    mentions
        One or two.
    link
        What stands between two mentions; its concept is "and" or a relation.
    template
        Words before and after the mentions.
    capital, stop
        Whether the caption begins with a capital, ends with a full stop.
    """

    mentions: tuple[MentionWords, ...]
    link: Phrase | None = None
    template: tuple[str, str] = ("", "")
    capital: bool = False
    stop: bool = False

    def claim(self) -> Claim:
        """Return the meaning, with the mentions in the order in which they stand."""
        if self.link is None:
            return Claim(self.mentions[0].mention())
        relation = None if self.link.concept == "and" else self.link.concept
        return Claim(self.mentions[0].mention(), self.mentions[1].mention(), relation)

    def text(self) -> str:
        """Return the caption; undoes `read_words`."""
        parts = [self.template[0], self.mentions[0].text()]
        if self.link is not None:
            parts += [self.link.words, self.mentions[1].text()]
        text = " ".join(part for part in (*parts, self.template[1]) if part)
        text = text[0].upper() + text[1:] if self.capital else text
        return f"{text}." if self.stop else text

    def word_for(self, concept: str) -> str | None:
        """Return the word that the caption already uses for a concept, None if it has none."""
        said = (phrase for mention in self.mentions for phrase in mention.phrases())
        return next((phrase.words for phrase in said if phrase.concept == concept), None)


def write_phrase(concept: str, like: Phrase | None = None) -> Phrase:
    """Return the usual phrase for a concept, or the one that is formed as another phrase is.

    So "to the left of" becomes "to the right of", but "left of" becomes "right of".
    """
    choices = LEXICON[concept]
    at = LEXICON[like.concept].index(like.words) if like is not None else 0
    return Phrase(concept, choices[at if at < len(choices) else 0])


def mention_words(mention: Mention) -> MentionWords:
    """Put a mention into its usual words."""
    return MentionWords(
        write_phrase("object" if mention.shape is None else SHAPES[mention.shape]),
        None if mention.size is None else write_phrase(mention.size),
        None if mention.colour is None else write_phrase(COLOURS[mention.colour]),
    )


def read_words(caption: str) -> CaptionWords:
    """Take a caption apart.

    Raises
    ------
    TypeError, ValueError
        As `parse_caption`.
    """
    if not isinstance(caption, str):
        raise TypeError(f"a caption must be a string, got {type(caption).__name__}")
    return _read_words(caption)


@functools.lru_cache(maxsize=4096)  # captions are edited many times in a row
def _read_words(caption: str) -> CaptionWords:
    parse_caption(caption)
    text = caption.strip()
    stop = text.endswith(".")
    text = text.removesuffix(".")
    capital = text[0].isupper()
    words = (text[0].lower() + text[1:]).split()
    before: list[str] = []
    after: list[str] = []
    for start, _ in _AROUND:
        if start and words[: len(start)] == start:
            before, words = start, words[len(start) :]
            break
    else:
        if words[-len(_SUFFIX) :] == _SUFFIX:
            after, words = _SUFFIX, words[: -len(_SUFFIX)]
    first, rest = _read_mention(words)
    mentions, link = (first,), None
    if rest:
        # An article begins a mention and stands nowhere else.
        at = next(index for index, word in enumerate(rest) if word in ("a", "an"))
        phrase = " ".join(rest[:at])
        link = Phrase(_MEANS[phrase], phrase)
        mentions = (first, _read_mention(rest[at:])[0])
    return CaptionWords(mentions, link, (" ".join(before), " ".join(after)), capital, stop)


def _read_mention(words: list[str]) -> tuple[MentionWords, list[str]]:
    """Read a mention and return it with the words after it; the caption is known to be right."""
    at, said, behind = 1, {}, None
    while "shape" not in said:
        concept = _MEANS[words[at]]
        said[_kind(concept)] = Phrase(concept, words[at])
        at += 1
    if words[at : at + 2] == ["that", "is"]:
        concept = _MEANS[words[at + 2]]
        behind = _kind(concept)
        said[behind] = Phrase(concept, words[at + 2])
        at += 3
    return MentionWords(said["shape"], said.get("size"), said.get("colour"), behind), words[at:]


def _kind(concept: str) -> str:
    return "colour" if concept in COLOURS else "size" if concept in SIZES else "shape"
