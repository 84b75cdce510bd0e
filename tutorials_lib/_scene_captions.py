"""Captions of scenes: what they mean, how they are worded, when they are true.

A caption has two parts. The `Claim` is its meaning: which objects there are and how they stand. The
`Wording` is everything else: template, synonyms, order. `write_caption` joins the two,
`parse_caption` takes the claim back out, and `describes` says of which scenes it is true.
`tutorials_lib.scenes` is where to import all of it from.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tutorials_lib._scene_latents import (
    ABSENT,
    COLOURS,
    OTHER_COLOUR,
    RELATION_MARGIN,
    SHAPES,
    SIZE_SPLIT,
    Scenes,
)
from tutorials_lib._validation import as_generator, check_integer, check_positive

__all__ = [
    "LEXICON",
    "RELATIONS",
    "SIZES",
    "TEMPLATES",
    "Claim",
    "Mention",
    "Wording",
    "canonical",
    "caption_scenes",
    "claims_of",
    "describes",
    "parse_caption",
    "replace_concept",
    "same_meaning",
    "sample_wordings",
    "swap",
    "vocabulary",
    "write_caption",
]

SIZES = ("small", "large")
RELATIONS = ("left", "right", "front", "behind")
_TURNED = {"left": "right", "right": "left", "front": "behind", "behind": "front", None: None}

# What may stand around a claim. Whatever it says is true of every scene of every domain: a
# template is wording.
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
        return Claim(self.second, self.first, _TURNED[self.relation])


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
            if not 0 <= chosen < count:
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
        At most 18 words.
    """
    if wording.reversed:
        claim = claim.turned()
    words = wording.words
    text = _write_mention(claim.first, words, wording.apart[0])
    if claim.second is not None:
        at = _LINK_AT[claim.relation]
        second = _write_mention(claim.second, words, wording.apart[1])
        text = f"{text} {_WORDS[at][words[at]]} {second}"
    return TEMPLATES[wording.template].replace("{}", text)


def sample_wordings(n: int, *, seed: int | torch.Generator) -> list[Wording]:
    """Draw wordings: templates, words and order uniformly, "that is" once in five mentions.

    Parameters
    ----------
    n
        How many.
    seed
        A seed or a generator.
    """
    n = check_integer("n", n, 0)
    # float64, so that rounding up to an index that does not exist has no probability.
    uniform = torch.rand(n, len(_COUNTS) + 4, generator=as_generator(seed), dtype=torch.float64)
    counts = torch.tensor([*_COUNTS, len(TEMPLATES), 2], dtype=torch.float64)
    picks = (uniform[:, :-2] * counts).long().tolist()
    aparts = (uniform[:, -2:] < 0.2).tolist()
    return [
        Wording(pick[-2], tuple(pick[:-2]), (apart[0], apart[1]), bool(pick[-1]))
        for pick, apart in zip(picks, aparts, strict=True)
    ]


# All mentions, by (shape + 1, colour + 1, size) with 0 for what is left open, the last one fastest.
_MENTIONS = tuple(
    Mention(shape, colour, size)
    for shape in (None, *range(len(SHAPES)))
    for colour in (None, *range(len(COLOURS)))
    for size in (None, *SIZES)
)


def _relations_hold(position: torch.Tensor) -> torch.Tensor:
    """Which of `RELATIONS` the first of two objects has to the second; (N, 2, 2) to (N, 4)."""
    # A difference, so that turning a claim cannot change its truth by rounding.
    away = position[:, 1] - position[:, 0]
    columns = (away[:, 0], -away[:, 0], away[:, 1], -away[:, 1])
    return torch.stack(columns, 1) >= RELATION_MARGIN


def claims_of(
    scenes: Scenes,
    *,
    seed: int | torch.Generator,
    mention_shape: float = 1.0,
    mention_colour: float = 1.0,
    mention_size: float = 0.2,
    mention_relation: float = 0.3,
    mention_second: float = 1.0,
) -> list[Claim]:
    """Draw for each scene a claim that is true of it.

    Which of two objects comes first, or is the only one mentioned, is a fair coin. A colour
    without a name is never mentioned. The draws of a seed do not depend on the probabilities.

    Parameters
    ----------
    scenes
        N scenes.
    seed
        A seed or a generator.
    mention_shape, mention_colour
        Probability that an object's shape, or its colour, is mentioned. If a draw would leave out
        both, one of them is mentioned all the same, chosen in proportion to the two
        probabilities. An object whose colour has no name can lose its shape too: "an object".
    mention_size
        Probability that an object's size is mentioned.
    mention_relation
        Probability that a relation links two mentions, where one holds; if two hold, either.
    mention_second
        Probability that both objects of a scene with two are mentioned.

    Returns
    -------
    list of Claim
        N claims.

    Raises
    ------
    TypeError, ValueError
        If a probability is no number from 0 to 1.
    """
    chances = {
        "mention_shape": mention_shape,
        "mention_colour": mention_colour,
        "mention_size": mention_size,
        "mention_relation": mention_relation,
        "mention_second": mention_second,
    }
    for name, chance in chances.items():
        if check_positive(name, chance, allow_zero=True) > 1:
            raise ValueError(f"{name} is a probability, from 0 to 1, got {chance!r}")

    draws = torch.rand(len(scenes), 12, generator=as_generator(seed), dtype=torch.float64)
    pair = scenes.n_objects.cpu() == 2
    lead = (pair & (draws[:, 0] < 0.5)).long()
    order = torch.stack([lead, 1 - lead], 1)
    shape, colour, size = (
        getattr(scenes, name).cpu().gather(1, order) for name in ("shape", "colour", "size")
    )
    position = scenes.position.cpu().gather(1, order[:, :, None].expand(-1, -1, 2))

    named = (colour != OTHER_COLOUR) & (colour != ABSENT)
    say_shape = draws[:, 1:3] < mention_shape
    say_colour = named & (draws[:, 3:5] < mention_colour)
    empty = named & ~say_shape & ~say_colour
    shape_wins = draws[:, 5:7] * (mention_shape + mention_colour) < mention_shape
    say_shape |= empty & shape_wins
    say_colour |= empty & ~shape_wins & (mention_colour > 0)
    code = torch.where(say_shape, shape + 1, 0) * (len(COLOURS) + 1)
    code = (code + torch.where(say_colour, colour + 1, 0)) * (len(SIZES) + 1)
    code = code + torch.where(draws[:, 7:9] < mention_size, 1 + (size >= SIZE_SPLIT).long(), 0)

    hold = _relations_hold(position)
    rank = (draws[:, 9] * hold.sum(1)).long() + 1
    chosen = (hold & (hold.cumsum(1) == rank[:, None])).long().argmax(1)
    related = hold.any(1) & (draws[:, 10] < mention_relation)
    both = pair & (draws[:, 11] < mention_second)
    rows = zip(code.tolist(), both.tolist(), torch.where(related, chosen, -1).tolist(), strict=True)
    links = (*RELATIONS, None)
    return [
        Claim(_MENTIONS[first], _MENTIONS[second], links[link]) if two else Claim(_MENTIONS[first])
        for (first, second), two, link in rows
    ]


def caption_scenes(
    scenes: Scenes, *, seed: int | torch.Generator, **probabilities: float
) -> list[str]:
    """Write a true caption for each scene: a claim of `claims_of` in a sampled wording.

    Parameters
    ----------
    scenes
        N scenes.
    seed
        A seed or a generator.
    **probabilities
        What to mention how often, as in `claims_of`.

    Returns
    -------
    list of str
        N captions.
    """
    generator = as_generator(seed)
    claims = claims_of(scenes, seed=generator, **probabilities)
    wordings = sample_wordings(len(claims), seed=generator)
    return [write_caption(*both) for both in zip(claims, wordings, strict=True)]


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


def _normal_form(claim: Claim) -> Claim:
    """Of a claim and its turned form, the one that stands for both."""
    if claim.second is None:
        return claim
    if claim.relation is not None:
        return claim if claim.relation in ("left", "front") else claim.turned()
    first, second = sorted((claim.first, claim.second), key=_MENTIONS.index, reverse=True)
    return Claim(first, second)


def canonical(caption: str) -> str:
    """Write a caption anew, in canonical words and order.

    Two captions have the same meaning if and only if their canonical captions are equal: "to the
    right of" and "behind" become "to the left of" and "in front of" with the mentions exchanged,
    and mentions linked by "and" have a fixed order. ``write_caption(parse_caption(caption))``
    changes the words only.

    Raises
    ------
    TypeError, ValueError
        As `parse_caption`.
    """
    return write_caption(_normal_form(parse_caption(caption)))


def same_meaning(a: str | Claim, b: str | Claim) -> bool:
    """Say whether two captions or claims are true of the same scenes.

    Words and templates do not matter, nor does the order: "A and B" means "B and A", and "A to the
    left of B" means "B to the right of A".

    Raises
    ------
    TypeError, ValueError
        As `parse_caption`.
    """
    return _normal_form(_as_claim(a)) == _normal_form(_as_claim(b))


def _as_claim(caption: str | Claim) -> Claim:
    return caption if isinstance(caption, Claim) else parse_caption(caption)


def _matches(mention: Mention, scenes: Scenes) -> torch.Tensor:
    """Which objects a mention fits, shape (N, 2)."""
    fits = scenes.shape != ABSENT
    if mention.shape is not None:
        fits = fits & (scenes.shape == mention.shape)
    if mention.colour is not None:
        fits = fits & (scenes.colour == mention.colour)
    if mention.size is not None:
        fits = fits & ((scenes.size >= SIZE_SPLIT) == (mention.size == "large"))
    return fits


def describes(caption: str | Claim, scenes: Scenes) -> torch.Tensor:
    """Say of which scenes a caption is true.

    A mention fits an object that has the mentioned shape, colour and size; "large" means a size of
    at least `SIZE_SPLIT`, "small" any other. A claim with one mention is true if the mention fits
    some object: "a cube" is true of two cubes too. A claim with two mentions is true if they fit
    two distinct objects i and j, in either order, and i has the relation to j, if there is one:
    left if x_j - x_i >= `RELATION_MARGIN`, right if x_i - x_j is, in front if y_j - y_i is, behind
    if y_i - y_j is. So "a cube and a cube" needs two cubes, and "a cube and a red object" is false
    of a red cube that stands alone.

    Parameters
    ----------
    caption
        A caption that `parse_caption` reads, or a claim.
    scenes
        N scenes.

    Returns
    -------
    torch.BoolTensor
        Shape (N,).

    Raises
    ------
    TypeError, ValueError
        As `parse_caption`.
    """
    claim = _as_claim(caption)
    first = _matches(claim.first, scenes)
    if claim.second is None:
        return first.any(1)
    # Column i: the mentions fit object i and the other one.
    true = first & _matches(claim.second, scenes).flip(1)
    if claim.relation is not None:
        hold = _relations_hold(scenes.position)
        columns = [RELATIONS.index(claim.relation), RELATIONS.index(_TURNED[claim.relation])]
        true = true & hold[:, columns]
    return true.any(1)


def swap(claim: Claim, what: str = "colour") -> Claim | None:
    """Exchange an attribute between the two mentions of a claim.

    In one wording, a claim and its swap have the same words. "A red cube and a blue cube" has no
    swap of colours, as the exchange only reorders it; "a red cube behind a blue cube" has one.

    Parameters
    ----------
    claim
        The claim.
    what
        ``"colour"``, ``"shape"`` or ``"size"``.

    Returns
    -------
    Claim or None
        None if there is no second mention, if one of them leaves the attribute open, or if the
        meaning stays the same.

    Raises
    ------
    ValueError
        If there is no such attribute.
    """
    _check_attribute(what)
    if claim.second is None:
        return None
    values = getattr(claim.first, what), getattr(claim.second, what)
    if None in values:
        return None
    swapped = Claim(
        dataclasses.replace(claim.first, **{what: values[1]}),
        dataclasses.replace(claim.second, **{what: values[0]}),
        claim.relation,
    )
    return None if same_meaning(claim, swapped) else swapped


def replace_concept(claim: Claim, which: int, attribute: str, value: int | str | None) -> Claim:
    """Put another shape, colour or size into one mention of a claim.

    Parameters
    ----------
    claim
        The claim.
    which
        0 for the first mention, 1 for the second.
    attribute
        ``"colour"``, ``"shape"`` or ``"size"``; one that was left open is added.
    value
        As in `Mention`; None leaves the attribute open.

    Returns
    -------
    Claim
        The changed claim. It can still be true of a scene that the old one is true of.

    Raises
    ------
    TypeError, ValueError
        If there is no such mention, attribute or value.
    """
    _check_attribute(attribute)
    if which not in (0, 1):
        raise ValueError(f"which must be 0 or 1, got {which!r}")
    name = ("first", "second")[which]
    mention = getattr(claim, name)
    if mention is None:
        raise ValueError("which is 1, but the claim has one mention only")
    changed = dataclasses.replace(mention, **{attribute: value})
    return dataclasses.replace(claim, **{name: changed})


def _check_attribute(name: str) -> None:
    if name not in ("colour", "shape", "size"):
        raise ValueError(f"the attribute must be 'colour', 'shape' or 'size', got {name!r}")
