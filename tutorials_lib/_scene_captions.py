"""Captions of scenes: what they mean, how they are worded, when they are true.

A caption has two parts. The `Claim` is its meaning: which objects there are and how they stand. The
`Wording` is everything else: template, synonyms, order. `write_caption` joins the two,
`parse_caption` takes the claim back out, and `describes` says of which scenes it is true.
`tutorials_lib.scenes` is where to import all of it from.
"""

from __future__ import annotations

import dataclasses

import torch

from tutorials_lib._scene_grammar import (
    LEXICON,
    RELATIONS,
    SIZES,
    TEMPLATES,
    TURNED,
    Claim,
    Mention,
    Wording,
    check_claim,
    parse_caption,
    vocabulary,
    write_caption,
)
from tutorials_lib._scene_latents import (
    ABSENT,
    COLOURS,
    OTHER_COLOUR,
    RELATION_MARGIN,
    SHAPES,
    SIZE_SPLIT,
    Scenes,
    check_scenes,
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

# All mentions, by (shape + 1, colour + 1, size) with 0 for what is left open, the last one fastest.
_MENTIONS = tuple(
    Mention(shape, colour, size)
    for shape in (None, *range(len(SHAPES)))
    for colour in (None, *range(len(COLOURS)))
    for size in (None, *SIZES)
)
_RANK = {mention: rank for rank, mention in enumerate(_MENTIONS)}


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
    counts = [*(len(words) for words in LEXICON.values()), len(TEMPLATES), 2]
    # float64, so that rounding up to an index that does not exist has no probability.
    uniform = torch.rand(n, len(counts) + 2, generator=as_generator(seed), dtype=torch.float64)
    picks = (uniform[:, :-2] * torch.tensor(counts)).long().tolist()
    aparts = (uniform[:, -2:] < 0.2).tolist()
    return [
        Wording(pick[-2], tuple(pick[:-2]), (apart[0], apart[1]), bool(pick[-1]))
        for pick, apart in zip(picks, aparts, strict=True)
    ]


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
        If ``scenes`` are no scenes, or a probability is no number from 0 to 1.
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

    draws = torch.rand(
        len(check_scenes(scenes)), 12, generator=as_generator(seed), dtype=torch.float64
    )
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


def _normal_form(claim: Claim) -> Claim:
    """Of a claim and its turned form, the one that stands for both."""
    if claim.second is None:
        return claim
    if claim.relation is not None:
        return claim if claim.relation in ("left", "front") else claim.turned()
    first, second = sorted((claim.first, claim.second), key=_RANK.__getitem__, reverse=True)
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
        As `parse_caption`, or if ``scenes`` are no scenes.
    """
    claim = _as_claim(caption)
    first = _matches(claim.first, check_scenes(scenes))
    if claim.second is None:
        return first.any(1)
    # Column i: the mentions fit object i and the other one.
    true = first & _matches(claim.second, scenes).flip(1)
    if claim.relation is not None:
        hold = _relations_hold(scenes.position)
        columns = [RELATIONS.index(claim.relation), RELATIONS.index(TURNED[claim.relation])]
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
    TypeError, ValueError
        If it is no claim, or there is no such attribute.
    """
    check_claim(claim)
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
        If it is no claim, or there is no such mention, attribute or value.
    """
    check_claim(claim)
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
