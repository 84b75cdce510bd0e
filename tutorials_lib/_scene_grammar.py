"""The language of captions: claims, their wordings, and the way from one to the other and back.

`tutorials_lib.scenes` is where to import all of it from.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tutorials_lib._scene_latents import COLOURS, SHAPES
from tutorials_lib._validation import check_integer

__all__ = [
    "LEXICON",
    "RELATIONS",
    "SIZES",
    "TEMPLATES",
    "TURNED",
    "Claim",
    "Mention",
    "Wording",
    "check_claim",
    "parse_caption",
    "vocabulary",
    "write_caption",
]

SIZES = ("small", "large")
RELATIONS = ("left", "right", "front", "behind")
TURNED = {"left": "right", "right": "left", "front": "behind", "behind": "front", None: None}

# What may stand around a claim. It is wording only: no template says anything about the objects.
TEMPLATES = (
    "{}",
    "a photo of {}",
    "a picture of {}",
    "an image of {}",
    "a view of {}",
    "there is {}",
    "here is {}",
    "an image with {}",
    "a picture showing {}",
    "{} on the floor",
)
_AROUND = tuple(tuple(part.split() for part in template.split("{}")) for template in TEMPLATES)

_SYNONYMS = {
    "cube": ("block", "box"),
    "sphere": ("ball", "globe"),
    "cylinder": ("tube", "drum"),
    "purple": ("violet",),
    "cyan": ("turquoise",),
    "grey": ("gray",),
}
# Concept to the words for it, the usual one first: the shapes, the noun for an object whose shape
# is left open, the colours, the sizes, the link of two mentions without and with a relation.
LEXICON: dict[str, tuple[str, ...]] = {
    **{shape: (shape, *_SYNONYMS.get(shape, ())) for shape in SHAPES},
    "object": ("object", "thing", "item"),
    **{colour: (colour, *_SYNONYMS.get(colour, ())) for colour in COLOURS},
    "small": ("small", "little"),
    "large": ("large", "big"),
    "and": ("and", "along with"),
    "left": ("to the left of", "left of"),
    "right": ("to the right of", "right of"),
    "front": ("in front of",),
    "behind": ("behind",),
}
_WORDS = tuple(LEXICON.values())
_COUNTS = tuple(len(words) for words in _WORDS)
_OBJECT = len(SHAPES)
_FIRST_COLOUR = _OBJECT + 1
_SIZE_AT = {size: _FIRST_COLOUR + len(COLOURS) + index for index, size in enumerate(SIZES)}
_LINK_AT = {link: max(_SIZE_AT.values()) + 1 + i for i, link in enumerate((None, *RELATIONS))}


def _check_index(name: str, value: Any, names: tuple[str, ...]) -> None:
    if value is not None and check_integer(name, value, 0) >= len(names):
        known = ", ".join(f"{index} ({word})" for index, word in enumerate(names))
        raise ValueError(f"{name} must be None or one of {known}, got {value}")


@dataclass(frozen=True)
class Mention:
    """What a caption says of one object; None stands for what it leaves open.

    Attributes
    ----------
    shape
        Index into `SHAPES`, or None.
    colour
        Index into `COLOURS`, or None. A colour without a name cannot be mentioned.
    size
        ``"small"``, ``"large"`` or None.

    Raises
    ------
    TypeError, ValueError
        If an entry is neither.
    """

    shape: int | None = None
    colour: int | None = None
    size: str | None = None

    def __post_init__(self) -> None:
        """Check the entries."""
        _check_index("shape", self.shape, SHAPES)
        _check_index("colour", self.colour, COLOURS)
        if self.size is not None and self.size not in SIZES:
            raise ValueError(f"size must be None, 'small' or 'large', got {self.size!r}")


@dataclass(frozen=True)
class Claim:
    """The meaning of a caption.

    Attributes
    ----------
    first
        What is said of one object.
    second
        What is said of another object, or None.
    relation
        How the first stands to the second: ``"left"``, ``"right"``, ``"front"``, ``"behind"``, or
        None, which with a second mention reads "and".

    Raises
    ------
    TypeError
        If a mention is none.
    ValueError
        If the relation is unknown or has no second mention.
    """

    first: Mention
    second: Mention | None = None
    relation: str | None = None

    def __post_init__(self) -> None:
        """Check the parts against each other."""
        if not isinstance(self.first, Mention):
            raise TypeError(f"first must be a Mention, got {type(self.first).__name__}")
        if not (self.second is None or isinstance(self.second, Mention)):
            raise TypeError(f"second must be a Mention or None, got {type(self.second).__name__}")
        if self.relation is not None:
            if self.relation not in RELATIONS:
                raise ValueError(
                    f"relation must be None or one of {', '.join(RELATIONS)}, got {self.relation!r}"
                )
            if self.second is None:
                raise ValueError(f"relation {self.relation!r} needs a second mention")

    def turned(self) -> Claim:
        """Return the same meaning with the second mention first, under the opposite relation."""
        if self.second is None:
            return self
        return Claim(self.second, self.first, TURNED[self.relation])


@dataclass(frozen=True)
class Wording:
    """How a claim is put into words; without arguments, the canonical way.

    A wording has one word for each concept. Claims that hold the same concepts in another
    arrangement are therefore worded with the same words.

    Attributes
    ----------
    template
        Index into `TEMPLATES`.
    words
        For each concept of `LEXICON`, which of its words is used.
    apart
        For the mention that is written first and the one written second: whether a single
        adjective stands behind the noun, as in "a cube that is red".
    reversed
        Whether the second mention is written first.

    Raises
    ------
    TypeError, ValueError
        If there is no such template or word.
    """

    template: int = 0
    words: tuple[int, ...] = (0,) * len(LEXICON)
    apart: tuple[bool, bool] = (False, False)
    reversed: bool = False

    def __post_init__(self) -> None:
        """Check the indices."""
        if check_integer("template", self.template, 0) >= len(TEMPLATES):
            raise ValueError(
                f"template must be an index below {len(TEMPLATES)}, got {self.template}"
            )
        if len(self.words) != len(_COUNTS):
            raise ValueError(
                f"words needs one entry for each of the {len(_COUNTS)} concepts of LEXICON, "
                f"got {len(self.words)}"
            )
        for concept, chosen, count in zip(LEXICON, self.words, _COUNTS, strict=True):
            if check_integer(f"the word for {concept!r}", chosen, 0) >= count:
                raise ValueError(
                    f"the word for {concept!r} must be an index below {count}, got {chosen}"
                )
        if len(self.apart) != 2:
            raise ValueError(f"apart needs two entries, got {len(self.apart)}")


_CANONICAL = Wording()


def _write_mention(mention: Mention, words: tuple[int, ...], apart: bool) -> str:
    at = _OBJECT if mention.shape is None else mention.shape
    noun = _WORDS[at][words[at]]
    adjectives = []
    if mention.size is not None:
        at = _SIZE_AT[mention.size]
        adjectives.append(_WORDS[at][words[at]])
    if mention.colour is not None:
        at = _FIRST_COLOUR + mention.colour
        adjectives.append(_WORDS[at][words[at]])
    if apart and len(adjectives) == 1:
        phrase = f"{noun} that is {adjectives[0]}"
    else:
        phrase = " ".join([*adjectives, noun])
    return f"{'an' if phrase[0] in 'aeiou' else 'a'} {phrase}"


def check_claim(claim: Any) -> Claim:
    """Return a claim as it is; anything else is refused.

    Raises
    ------
    TypeError
        If it is something else.
    """
    if not isinstance(claim, Claim):
        hint = "; parse_caption makes one of a caption" if isinstance(claim, str) else ""
        raise TypeError(f"claim must be a Claim, got {type(claim).__name__}{hint}")
    return claim


def write_caption(claim: Claim, wording: Wording = _CANONICAL) -> str:
    """Put a claim into words, in lower case and without a full stop.

    Parameters
    ----------
    claim
        The meaning.
    wording
        Template, words and order; canonical by default.

    Returns
    -------
    str
        At most 17 words.

    Raises
    ------
    TypeError
        If they are no claim and no wording; `parse_caption` makes a claim of a caption.
    """
    check_claim(claim)
    if not isinstance(wording, Wording):
        raise TypeError(f"wording must be a Wording, got {type(wording).__name__}")
    if wording.reversed:
        claim = claim.turned()
    words = wording.words
    text = _write_mention(claim.first, words, wording.apart[0])
    if claim.second is not None:
        at = _LINK_AT[claim.relation]
        second = _write_mention(claim.second, words, wording.apart[1])
        text = f"{text} {_WORDS[at][words[at]]} {second}"
    return TEMPLATES[wording.template].replace("{}", text)


def vocabulary() -> tuple[str, ...]:
    """Return every word that a caption can hold, sorted."""
    phrases = [*TEMPLATES, *(phrase for words in _WORDS for phrase in words), "a an that is"]
    return tuple(sorted({word for text in phrases for word in text.replace("{}", "").split()}))


_MEANS = {word: at for at, words in enumerate(_WORDS) for word in words}
_LINKS = tuple((phrase.split(), link) for link, at in _LINK_AT.items() for phrase in _WORDS[at])
_KNOWN = frozenset(vocabulary())


class _Reader:
    """Reads the words of one caption from left to right."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.at = 0

    def fail(self, expected: str) -> ValueError:
        before = " ".join(self.words[: self.at])
        got = repr(self.words[self.at]) if self.at < len(self.words) else "the end"
        place = f"after {before!r}" if before else "at the beginning"
        return ValueError(f"cannot read the caption: {place} comes {got}, expected {expected}")

    def take(self, phrase: Sequence[str]) -> bool:
        """Step over the phrase if it comes next."""
        found = self.words[self.at : self.at + len(phrase)] == list(phrase)
        self.at += len(phrase) * found
        return found

    def take_adjective(self, mention: Mention, *, size: bool, colour: bool) -> Mention | None:
        """Step over a size or colour if one comes next, and add it to the mention."""
        concept = _MEANS.get(self.words[self.at], -1) if self.at < len(self.words) else -1
        fresh = None
        if colour and _FIRST_COLOUR <= concept < _FIRST_COLOUR + len(COLOURS):
            fresh = dataclasses.replace(mention, colour=concept - _FIRST_COLOUR)
        elif size and concept in _SIZE_AT.values():
            fresh = dataclasses.replace(mention, size=SIZES[concept - _SIZE_AT["small"]])
        self.at += fresh is not None
        return fresh

    def mention(self) -> Mention:
        article = next((word for word in ("a", "an") if self.take([word])), None)
        if article is None:
            raise self.fail("'a' or 'an' and an object")
        if self.at < len(self.words):
            right = "an" if self.words[self.at][0] in "aeiou" else "a"
            if article != right:
                raise self.fail(f"a word that goes with {article!r}; write {right!r} before it")
        mention = Mention()
        mention = self.take_adjective(mention, size=True, colour=False) or mention
        mention = self.take_adjective(mention, size=False, colour=True) or mention
        concept = _MEANS.get(self.words[self.at], -1) if self.at < len(self.words) else -1
        if not 0 <= concept <= _OBJECT:
            raise self.fail("a noun: " + ", ".join(w for s in _WORDS[: _OBJECT + 1] for w in s))
        self.at += 1
        if concept < _OBJECT:
            mention = dataclasses.replace(mention, shape=concept)
        if self.take(["that", "is"]):
            fresh = self.take_adjective(
                mention, size=mention.size is None, colour=mention.colour is None
            )
            if fresh is None:
                raise self.fail("a size or colour not yet mentioned")
            mention = fresh
        return mention

    def claim(self, suffix: list[str]) -> Claim:
        first = self.mention()
        second, relation = None, None
        if self.words[self.at :] not in ([], suffix):
            for phrase, link in _LINKS:
                if self.take(phrase):
                    second, relation = self.mention(), link
                    break
            else:
                raise self.fail("the end or a link: " + ", ".join(" ".join(p) for p, _ in _LINKS))
        if self.words[self.at :] not in ([], suffix):
            raise self.fail("the end")
        return Claim(first, second, relation)


def parse_caption(text: str) -> Claim:
    """Read the meaning off a caption; undoes `write_caption` in every wording.

    The order of the mentions is kept as it is written. A capital at the beginning and a full stop
    at the end are accepted.

    Parameters
    ----------
    text
        A caption.

    Returns
    -------
    Claim
        Its meaning.

    Raises
    ------
    TypeError
        If the caption is no string.
    ValueError
        If it holds an unknown word or is put together in another way; the message says where.
    """
    if not isinstance(text, str):
        raise TypeError(f"a caption must be a string, got {type(text).__name__}")
    text = text.strip().removesuffix(".")
    words = (text[:1].lower() + text[1:]).split()
    for word in words:
        if word not in _KNOWN:
            close = difflib.get_close_matches(word, _KNOWN, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ValueError(
                f"unknown word {word!r} in the caption {text!r}; {hint}"
                f"known words: {', '.join(sorted(_KNOWN))}"
            )
    reader = _Reader(words)
    # At most one beginning fits, because none begins like another or like a mention.
    suffix: list[str] = next((after for before, after in _AROUND if not before and after), [])
    for before, after in _AROUND:
        if before and reader.take(before):
            suffix = after
            break
    return reader.claim(suffix)
