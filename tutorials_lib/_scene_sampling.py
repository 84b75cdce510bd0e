"""Laws of scenes, and their latents as numbers; `tutorials_lib.scenes` exports them."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable

import torch

from tutorials_lib._scene_latents import (
    ABSENT,
    COLOUR_RGB,
    COLOURS,
    DOMAINS,
    OTHER_COLOUR,
    SHAPES,
    SIZE_RANGE,
    SIZE_SPLIT,
    Scenes,
    check_scenes,
)
from tutorials_lib._validation import as_generator, check_integer

__all__ = [
    "HELD_OUT",
    "binding_counts",
    "combinations",
    "concept_counts",
    "in_support",
    "private_latents",
    "sample_scenes",
    "shared_latents",
    "shift_domain",
    "swap_colours",
]

# One combination of each shape and three colours, for splits that train on all the others.
HELD_OUT = (("green", "cube"), ("purple", "sphere"), ("yellow", "cylinder"))

# Sizes stay this far from the split between small and large.
_SIZE_GAP = 0.025
# Objects stand within this square, and this far apart beside their own sizes.
_REACH = 0.85
_CLEARANCE = 0.12
# A colour without a name is at least this far from every named one, in RGB.
_NAMELESS_DISTANCE = 0.3


def combinations(*, exclude: Iterable[tuple[str, str]] = ()) -> torch.Tensor:
    """Table of the combinations of colour and shape that may occur.

    Parameters
    ----------
    exclude
        Pairs such as ``("green", "cube")`` that may not.

    Returns
    -------
    torch.Tensor
        Booleans of shape (8, 3), colours by shapes.

    Raises
    ------
    ValueError
        If a word is no colour or shape of `COLOURS` and `SHAPES`.
    """
    allowed = torch.ones(len(COLOURS), len(SHAPES), dtype=torch.bool)
    for pair in exclude:
        if len(pair) != 2 or pair[0] not in COLOURS or pair[1] not in SHAPES:
            raise ValueError(
                f"a combination is a pair of one of {', '.join(COLOURS)} and one of "
                f"{', '.join(SHAPES)}, got {pair!r}"
            )
        allowed[COLOURS.index(pair[0]), SHAPES.index(pair[1])] = False
    return allowed


def sample_scenes(
    size: int,
    *,
    singles: float = 0.0,
    nameless: float = 0.0,
    allowed: torch.Tensor | None = None,
    support: str = "full",
    domain: str = "photo",
    seed: int | torch.Generator,
) -> Scenes:
    """Draw scenes; the latents that only the image has are drawn with them.

    Colour and shape of each object are uniform over the allowed combinations and independent
    between the objects. Sizes, positions, lamp, camera and paint are independent of them, but for
    objects not standing in one another.

    Parameters
    ----------
    size
        Number of scenes.
    singles
        Probability that a scene has one object instead of two.
    nameless
        Probability that an object has a colour without a name, 8 in `Scenes.colour`.
    allowed
        Combinations that may occur, booleans of shape (8, 3) as from `combinations`; ``None``
        allows all.
    support
        ``"full"``, or ``"restricted"``: every multiset of two colours and two shapes occurs in
        one binding only, the one that `in_support` names. Colours, shapes and multisets keep the
        laws that they have under full support.
    domain
        One of `DOMAINS`; see `shift_domain`.
    seed
        An integer or a generator.

    Returns
    -------
    Scenes
        ``size`` scenes.

    Raises
    ------
    TypeError
        If an argument has another type.
    ValueError
        If a number, the domain or the support is not one of those above, if nothing is allowed,
        or if the support is restricted while combinations are excluded: then some multisets have
        no binding left.
    """
    size = check_integer("size", size, 0)
    for name, value in (("singles", singles), ("nameless", nameless)):
        if not isinstance(value, numbers.Real):
            raise TypeError(f"{name} is a probability between 0 and 1, got {value!r}")
        if not 0 <= value <= 1:
            raise ValueError(f"{name} is a probability between 0 and 1, got {value!r}")
    if support not in ("full", "restricted"):
        raise ValueError(f"support must be 'full' or 'restricted', got {support!r}")
    if domain not in DOMAINS:
        raise ValueError(f"domain must be one of {', '.join(DOMAINS)}, got {domain!r}")
    allowed = combinations() if allowed is None else torch.as_tensor(allowed)
    if allowed.shape != (len(COLOURS), len(SHAPES)) or allowed.dtype != torch.bool:
        raise ValueError(
            f"allowed must hold booleans of shape (8, 3), got {allowed.dtype} of shape "
            f"{tuple(allowed.shape)}; combinations(exclude=…) makes one"
        )
    if not allowed.any():
        raise ValueError("allowed leaves no combination to draw")
    if support == "restricted" and not allowed.all():
        raise ValueError(
            "with restricted support every combination must be allowed: a multiset whose one "
            "binding holds an excluded combination could not be drawn"
        )
    generator = as_generator(seed)
    pairs = allowed.nonzero()
    drawn = pairs[torch.randint(len(pairs), (size, 2), generator=generator)]
    colour, shape = drawn[..., 0], drawn[..., 1]
    no_name = torch.rand(size, 2, generator=generator) < nameless
    colour = torch.where(no_name, OTHER_COLOUR, colour)
    alone = torch.rand(size, generator=generator) < singles
    colour[alone, 1] = shape[alone, 1] = ABSENT
    if support == "restricted":
        wrong = ~_in_support(colour, shape)
        colour[wrong] = colour[wrong].flip(1)

    low, high = SIZE_RANGE
    # Uniform on the two intervals left when the neighbourhood of the split is cut out.
    sizes = low + (high - low - 2 * _SIZE_GAP) * torch.rand(size, 2, generator=generator)
    sizes += 2 * _SIZE_GAP * (sizes > SIZE_SPLIT - _SIZE_GAP)
    scenes = Scenes(
        shape=shape,
        colour=colour,
        size=sizes,
        position=_positions(sizes, ~alone, generator),
        rgb=_paint(colour, generator),
        yaw=torch.rand(size, 2, generator=generator) * (math.pi / 2),
        light=_between((size, 2), (-1.0, 0.65), (1.0, 1.1), generator),
        background=torch.rand(size, generator=generator),
        camera=_between((size, 3), (-0.1, -0.07, -0.05), (0.1, 0.07, 0.05), generator),
        noise=_between((size,), 0.0, 0.03, generator),
        noise_seed=torch.randint(2**62, (size,), generator=generator),
    )
    return shift_domain(scenes, domain, seed=generator)


def shift_domain(scenes: Scenes, domain: str, *, seed: int | torch.Generator) -> Scenes:
    """Show the same objects in the same places as another domain does.

    ``"photo"`` changes nothing but the name. ``"new-light"`` draws the lamp from all around and
    from low to high, and camera and noise from wider ranges. ``"line"`` is a line drawing,
    ``"cartoon"`` a flat rendition on patterned ground, and ``"clutter"`` adds small pieces and
    something that covers a part. They play the roles of ImageNet-V2, Sketch, R and A.

    Parameters
    ----------
    scenes
        Scenes of any domain.
    domain
        One of `DOMAINS`.
    seed
        An integer or a generator; used by ``"new-light"`` only.

    Returns
    -------
    Scenes
        New scenes, as many.

    Raises
    ------
    ValueError
        If the domain is unknown.
    """
    generator = as_generator(seed)
    if domain == "new-light":
        count = len(check_scenes(scenes))
        return scenes.replace(
            domain=domain,
            light=_between((count, 2), (-math.pi, 0.45), (math.pi, 1.35), generator),
            camera=_between((count, 3), (-0.2, -0.12, -0.1), (0.2, 0.12, 0.1), generator),
            noise=_between((count,), 0.0, 0.06, generator),
        )
    return check_scenes(scenes).replace(domain=domain)


def in_support(scenes: Scenes) -> torch.Tensor:
    """Whether scenes belong to the restricted support, where a multiset has one binding.

    Two objects of different named colours and different shapes could exchange their colours. Sort
    their colours and their shapes by index as c₁ < c₂ and s₁ < s₂. In the restricted support c₁
    goes with s₁ if c₁ + c₂ + s₁ + s₂ is even and with s₂ if it is odd. This rule is balanced: each
    colour goes with each shape equally often. Scenes without such a pair all belong.

    Parameters
    ----------
    scenes
        N scenes.

    Returns
    -------
    torch.Tensor
        Booleans of shape (N,).
    """
    return _in_support(check_scenes(scenes).colour, scenes.shape)


def swap_colours(scenes: Scenes) -> Scenes:
    """Exchange the colours, with their shades, of the two objects of each scene.

    Raises
    ------
    ValueError
        If a scene has one object only.
    """
    if bool((check_scenes(scenes).n_objects < 2).any()):
        raise ValueError("swap_colours needs scenes of two objects; drop those with one first")
    return scenes.replace(colour=scenes.colour.flip(1), rgb=scenes.rgb.flip(1))


def concept_counts(scenes: Scenes) -> torch.Tensor:
    """How many objects have each colour and each shape: all that a bag of concepts can know.

    Parameters
    ----------
    scenes
        N scenes.

    Returns
    -------
    torch.Tensor
        float32, shape (N, 11): the eight colours, then the three shapes. Colours without a name
        count nowhere.
    """
    colours = (check_scenes(scenes).colour[..., None] == torch.arange(len(COLOURS))).sum(1)
    shapes = (scenes.shape[..., None] == torch.arange(len(SHAPES))).sum(1)
    return torch.cat([colours, shapes], 1).float()


def binding_counts(scenes: Scenes) -> torch.Tensor:
    """How many objects have each combination of colour and shape: what binding adds.

    Parameters
    ----------
    scenes
        N scenes.

    Returns
    -------
    torch.Tensor
        float32, shape (N, 24), the column of colour c and shape s being 3c + s.
    """
    named = (check_scenes(scenes).colour >= 0) & (scenes.colour < OTHER_COLOUR)
    pair = torch.where(named, len(SHAPES) * scenes.colour + scenes.shape, -1)
    return (pair[..., None] == torch.arange(len(COLOURS) * len(SHAPES))).sum(1).float()


def shared_latents(scenes: Scenes) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Return what captions may speak of, as numbers: the image's coupled latents z_x.

    Parameters
    ----------
    scenes
        N scenes of equally many objects.

    Returns
    -------
    latents
        float32, shape (N, 14) for one object or (N, 28) for two, the left one first: one-hot
        colour, one-hot shape, size and position.
    names
        Name of each column, such as ``"red"`` or ``"x"``; ``"left red"`` for two objects.

    Raises
    ------
    ValueError
        If the scenes have different numbers of objects.
    """
    counts = set(check_scenes(scenes).n_objects.tolist())
    if len(counts) > 1:
        raise ValueError(
            "shared_latents needs scenes of equally many objects; pick those with "
            "scenes[scenes.n_objects == 1] or == 2"
        )
    order = torch.zeros(len(scenes), 1, dtype=torch.int64)
    prefixes: tuple[str, ...] = ("",)
    if counts == {2}:
        order = scenes.position[..., 0].argsort(dim=1, stable=True)
        prefixes = ("left ", "right ")
    rows = torch.arange(len(scenes))[:, None]
    blocks = torch.cat(
        [
            scenes.colour[rows, order, None] == torch.arange(len(COLOURS)),
            scenes.shape[rows, order, None] == torch.arange(len(SHAPES)),
            scenes.size[rows, order, None],
            scenes.position[rows, order],
        ],
        dim=2,
    )
    columns = (*COLOURS, *SHAPES, "size", "x", "y")
    names = tuple(prefix + column for prefix in prefixes for column in columns)
    return blocks.flatten(1), names


def private_latents(scenes: Scenes) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Return what only the image has, as numbers: the image's private latents m_x.

    Angles enter by cosine and sine, the yaw of the first object by those of four times its value,
    which is what a cube shows. The shade is how much lighter than its colour's usual paint the
    first object is; for colours without a name, how light it is.

    Parameters
    ----------
    scenes
        N scenes.

    Returns
    -------
    latents
        float32, shape (N, 12).
    names
        Name of each column.
    """
    usual = torch.tensor([*COLOUR_RGB, (0.0, 0.0, 0.0)])
    hue = 2 * math.pi * check_scenes(scenes).background
    columns = {
        "light azimuth (cos)": scenes.light[:, 0].cos(),
        "light azimuth (sin)": scenes.light[:, 0].sin(),
        "light elevation": scenes.light[:, 1],
        "background hue (cos)": hue.cos(),
        "background hue (sin)": hue.sin(),
        "camera azimuth": scenes.camera[:, 0],
        "camera elevation": scenes.camera[:, 1],
        "camera distance": scenes.camera[:, 2],
        "noise": scenes.noise,
        "shade": (scenes.rgb[:, 0] - usual[scenes.colour[:, 0]]).mean(1),
        "yaw (cos)": (4 * scenes.yaw[:, 0]).cos(),
        "yaw (sin)": (4 * scenes.yaw[:, 0]).sin(),
    }
    return torch.stack(list(columns.values()), 1), tuple(columns)


def _in_support(colour: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
    named = ((colour >= 0) & (colour < OTHER_COLOUR)).all(1)
    ambiguous = named & (colour[:, 0] != colour[:, 1]) & (shape[:, 0] != shape[:, 1])
    low_with_low = (colour[:, 0] < colour[:, 1]) == (shape[:, 0] < shape[:, 1])
    even = (colour.sum(1) + shape.sum(1)) % 2 == 0
    return ~ambiguous | (low_with_low == even)


def _positions(sizes: torch.Tensor, pair: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw uniform positions, again where two objects would stand in one another."""
    positions = torch.empty(len(sizes), 2, 2)
    waiting = torch.arange(len(sizes))
    while len(waiting):
        drawn = _REACH * (2 * torch.rand(len(waiting), 2, 2, generator=generator) - 1)
        positions[waiting] = drawn
        distance = (drawn[:, 0] - drawn[:, 1]).norm(dim=1)
        close = distance < sizes[waiting].sum(1) + _CLEARANCE
        waiting = waiting[close & pair[waiting]]
    return positions


def _paint(colour: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw a shade around each named colour; for the nameless, paint far from all named ones."""
    named = torch.tensor(COLOUR_RGB)
    usual = torch.cat([named, torch.zeros(1, 3)])[colour]
    lightness = torch.exp(0.12 * torch.randn(*colour.shape, 1, generator=generator))
    tint = 0.03 * torch.randn(*colour.shape, 3, generator=generator)
    paint = (usual * lightness + tint).clamp(0.02, 1.0)
    waiting = (colour == OTHER_COLOUR).nonzero()
    while len(waiting):
        drawn = torch.rand(len(waiting), 3, generator=generator)
        paint[waiting[:, 0], waiting[:, 1]] = drawn
        far = torch.cdist(drawn, named).amin(1) > _NAMELESS_DISTANCE
        waiting = waiting[~far]
    return paint


def _between(
    shape: tuple[int, ...],
    low: float | tuple[float, ...],
    high: float | tuple[float, ...],
    generator: torch.Generator,
) -> torch.Tensor:
    low, high = torch.tensor(low), torch.tensor(high)
    return low + (high - low) * torch.rand(*shape, generator=generator)
