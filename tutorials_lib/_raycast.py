"""Images of scenes, by ray casting on the CPU."""

from __future__ import annotations

import numpy as np
import torch

from tutorials_lib._ray_geometry import (
    CUBE,
    CYLINDER,
    World,
    bodies,
    cast,
    first_hits,
    light_reaching,
)
from tutorials_lib._scene_domains import (
    cartoon,
    clutter,
    counter_hash,
    drawing,
    linear_hue,
    outlines,
    photo,
    uniforms,
)
from tutorials_lib._scene_latents import ABSENT, Scenes, check_scenes
from tutorials_lib._validation import check_integer

__all__ = ["render", "segment"]

# Half edge and radius over the size. A cube as tall as a sphere would look much larger, and a
# cylinder as wide as a cube is hard to tell from it at a few pixels.
CUBE_EDGE = 0.82
CYLINDER_RADIUS = 0.72

# The camera: how far from what it looks at, and how high in radians.
DISTANCE = 7.5
ELEVATION = 0.61
TARGET = (0.0, 0.0, 0.32)

# Rays of a pixel on an edge: a rotated grid, in pixels from its centre.
EDGE_RAYS = ((-0.375, -0.125), (0.125, -0.375), (0.375, 0.125), (-0.125, 0.375))
# Rays along a side of a pixel where there are lines, at least.
INK_DETAIL = 3
INK = 0.01
# Saturation and value of the floor nearby and far away; for cartoons, of its two tones.
GROUND = {
    "photo": ((0.18, 0.82), (0.30, 0.60)),
    "new-light": ((0.18, 0.82), (0.30, 0.60)),
    "clutter": ((0.18, 0.82), (0.30, 0.60)),
    "line": ((0.04, 0.96), (0.04, 0.96)),
    "cartoon": ((0.25, 0.95), (0.35, 0.78)),
}
# Rays that are worked on together: more take more memory, fewer take more time a ray.
CHUNK = 64 * 48 * 48


def _build(scenes: Scenes) -> World:
    """Turn latents into cameras, lamps and bodies, in float64 because that is few numbers."""
    camera = scenes.camera.double()
    azimuth, height = camera[:, 0], ELEVATION + camera[:, 1]
    distance = DISTANCE * camera[:, 2].exp()
    sin_a, cos_a, sin_e, cos_e = azimuth.sin(), azimuth.cos(), height.sin(), height.cos()
    forward = torch.stack([-cos_e * sin_a, cos_e * cos_a, -sin_e])
    right = torch.stack([cos_a, sin_a, torch.zeros_like(sin_a)])
    up = torch.stack([-sin_a * sin_e, cos_a * sin_e, cos_e])
    origin = torch.tensor(TARGET, dtype=torch.float64)[:, None] - distance * forward

    lamp_a, lamp_e = scenes.light.double().T
    lamp = torch.stack([lamp_e.cos() * lamp_a.cos(), lamp_e.cos() * lamp_a.sin(), lamp_e.sin()])
    ground = [linear_hue(scenes.background.double(), *tone) for tone in GROUND[scenes.domain]]

    kind, size = scenes.shape, scenes.size.double()
    width = torch.where(kind == CYLINDER, CYLINDER_RADIUS * size, size)
    width = torch.where(kind == CUBE, CUBE_EDGE * size, width)
    body = bodies(
        kind,
        scenes.position.double().permute(2, 0, 1),
        width,
        torch.where(kind == CUBE, width, size),
        scenes.yaw.double(),
        scenes.rgb.double().square().permute(2, 0, 1),
    )
    if scenes.domain == "clutter":
        more_kinds, more_bodies = clutter(scenes, uniforms(scenes.noise_seed))
        kind, body = torch.cat([kind, more_kinds], 1), torch.cat([body, more_bodies], 2)
    view = (tensor.float() for tensor in (origin, right, up, forward, lamp, *ground))
    return World(*view, kind=kind, body=body)


def _edges(key: torch.Tensor, lit: torch.Tensor) -> torch.Tensor:
    """Mark pixels of (n, side, side) planes that differ from a neighbour in key or light."""
    marked = torch.zeros(key.shape, dtype=torch.bool)
    for axis in (1, 2):
        length = key.shape[axis] - 1
        a, b = (key.narrow(axis, first, length) for first in (0, 1))
        c, d = (lit.narrow(axis, first, length) for first in (0, 1))
        differs = (a != b) | ((c - d).abs() > 0.15)
        for first in (0, 1):
            marked.narrow(axis, first, length).logical_or_(differs)
    return marked


def _noise(seed: torch.Tensor, count: int) -> torch.Tensor:
    """Return noise of mean 0 and variance 1 that is close to normal, (n, count).

    Each entry is the scaled sum of the four bytes of a hash, the same on every machine and in
    every batch.
    """
    x = counter_hash(seed, count)
    pairs = (x & np.uint32(0x00FF00FF)) + ((x >> np.uint32(8)) & np.uint32(0x00FF00FF))
    total = (pairs & np.uint32(0xFFFF)) + (pairs >> np.uint32(16))
    spread = ((256**2 - 1) / 12 * 4) ** 0.5
    return torch.from_numpy((total.astype(np.float32) - np.float32(510)) * np.float32(1 / spread))


def _grid(side: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Image coordinates of pixel centres, row by row from the top, each (side²,)."""
    centre = ((torch.arange(side, dtype=torch.float64) + 0.5) * (2 / side) - 1).float()
    return centre.repeat(side), (-centre).repeat_interleave(side)


def _photograph(world: World, n: int, side: int) -> torch.Tensor:
    """Linear images with smooth edges, (3, n, side, side)."""
    u, v = _grid(side)
    rays = cast(world, u, v)
    hits = first_hits(rays)
    lit = light_reaching(rays, hits)
    colour = photo(rays, hits, lit).clamp(max=1)
    marked = _edges(hits.key.reshape(n, side, side), lit.reshape(n, side, side))
    pixel = marked.reshape(-1).nonzero()[:, 0]
    scene, place = pixel // side**2, pixel % side**2
    step = 2 / side
    u = torch.cat([u[place] + x * step for x, _ in EDGE_RAYS])
    v = torch.cat([v[place] + y * step for _, y in EDGE_RAYS])
    rays = cast(world, u, v, scene.repeat(len(EDGE_RAYS)))
    hits = first_hits(rays)
    samples = photo(rays, hits, light_reaching(rays, hits)).clamp(max=1)
    parts = samples.reshape(3, len(EDGE_RAYS), -1).unbind(1)
    colour[:, pixel] = (parts[0] + parts[1] + parts[2] + parts[3]) * 0.25
    return colour.reshape(3, n, side, side)


def _artwork(scenes: Scenes, world: World, size: int, detail: int) -> torch.Tensor:
    """Linear cartoons or line drawings, (3, n, side, side) with side = size detail."""
    n, side = len(scenes), size * detail
    u, v = _grid(side)
    disorder = uniforms(scenes.noise_seed)
    # Large images get more and thinner strokes than the small ones would scaled up.
    finer = (size / 48) ** 0.5
    line = scenes.domain == "line"
    if line:
        u, v = _unsteady(u, v, side, disorder)
    rays = cast(world, u, v)
    hits = first_hits(rays)
    lit = light_reaching(rays, hits)
    if line:
        colour = drawing(rays, hits, lit, u, v, strokes=14 * finer)
    else:
        colour = cartoon(rays, hits, lit, disorder)
    width = max(1, round((0.8 if line else 1.0) * detail * finer))
    ink = outlines(hits.key.reshape(n, side, side), width)
    return torch.where(ink, INK, colour.reshape(3, n, side, side).clamp(max=1))


def _unsteady(
    u: torch.Tensor, v: torch.Tensor, side: int, disorder: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Let lines waver as if drawn by hand: image coordinates of each scene, (n, side²)."""
    along = u[:side].double()
    bent = [
        0.012 * ((3 + 4 * disorder[i]) * along[:, None] + 2 * torch.pi * disorder[i + 1]).sin()
        for i in (0, 2)
    ]
    columns, rows = (part.T.float() for part in bent)
    return u + columns.flip(1).repeat_interleave(side, 1), v + rows.repeat(1, side)


def _pooled(colour: torch.Tensor, detail: int) -> torch.Tensor:
    """Average blocks of detail x detail rays, one after the other for the sake of rounding."""
    total = colour[..., ::detail, ::detail].clone()
    for index in range(1, detail * detail):
        total += colour[..., index // detail :: detail, index % detail :: detail]
    return total / detail**2


def _checked(scenes: Scenes) -> Scenes:
    """Refuse what cannot be shown, and move far-off latents to the nearest that can."""
    check_scenes(scenes)
    wrong = int(((scenes.size <= 0) & (scenes.shape != ABSENT)).sum())
    if wrong:
        raise ValueError(f"sizes of objects must be positive, got {wrong} that are not")
    azimuth, elevation, distance = scenes.camera.T
    elevation = elevation.clamp(0.1 - ELEVATION, 1.5 - ELEVATION)
    return scenes.replace(
        size=scenes.size.clamp(1e-2, 1e2),
        position=scenes.position.clamp(-1e2, 1e2),
        rgb=scenes.rgb.clamp(0, 1),
        light=torch.stack([scenes.light[:, 0], scenes.light[:, 1].clamp(0.1, 1.5)], 1),
        camera=torch.stack([azimuth, elevation, distance.clamp(-1, 1)], 1),
        noise=scenes.noise.clamp(0, 1),
    )


def render(
    scenes: Scenes, *, size: int = 48, supersample: int = 1, batch_size: int = 64
) -> torch.Tensor:
    """Render scenes as images.

    The image of a scene depends on its latents alone, not on the batch it is in. Latents far
    beyond what is sampled are moved to the nearest that can be shown: a lamp or a camera below
    the floor rises above it, paints are cut to [0, 1], a negative noise is none.

    Parameters
    ----------
    scenes
        N scenes. Of size s, a sphere is 2 s tall and wide, a cube 1.64 s, and a cylinder is 2 s
        tall and 1.44 s wide.
    size
        Pixels a side.
    supersample
        Rays along a side of a pixel. At edges there are four times as many, so that 1 is
        smooth; 2 or 3 is for figures. Drawings and cartoons take 3 at least.
    batch_size
        Scenes that are worked on together, at most.

    Returns
    -------
    torch.Tensor
        Images on the CPU, uint8, red, green and blue, rows from the top, shape
        (N, 3, size, size).

    Raises
    ------
    TypeError
        If ``scenes`` are no scenes or a number is not an integer.
    ValueError
        If a number is below 1 or an object has no positive size.
    """
    scenes = _checked(scenes)
    size = check_integer("size", size, minimum=1)
    supersample = check_integer("supersample", supersample, minimum=1)
    batch_size = check_integer("batch_size", batch_size, minimum=1)
    inked = scenes.domain in ("line", "cartoon")
    detail = max(supersample, INK_DETAIL) if inked else supersample
    side = size * detail
    step = max(1, min(batch_size, CHUNK // side**2))
    images = torch.empty(len(scenes), 3, size, size, dtype=torch.uint8)
    for first in range(0, len(scenes), step):
        part = scenes[first : first + step]
        n, world = len(part), _build(part)
        colour = _artwork(part, world, size, detail) if inked else _photograph(world, n, side)
        shown = _pooled(colour, detail).sqrt().transpose(0, 1)
        noise = _noise(part.noise_seed, 3 * size * size).reshape(n, 3, size, size)
        shown = shown + noise * part.noise[:, None, None, None]
        images[first : first + n] = (shown * 255 + 0.5).clamp(0, 255).to(torch.uint8)
    return images


def segment(scenes: Scenes, *, size: int = 48) -> torch.Tensor:
    """Tell which object the centre of each pixel shows.

    Parameters
    ----------
    scenes
        N scenes. What clutters a scene hides the objects behind it; the wavering of a drawing
        is left out.
    size
        Pixels a side.

    Returns
    -------
    torch.Tensor
        0 for no object, 1 and 2 for the first and the second, int64, shape (N, size, size).

    Raises
    ------
    TypeError
        If ``scenes`` are no scenes or ``size`` is not an integer.
    ValueError
        If ``size`` is below 1 or an object has no positive size.
    """
    scenes = _checked(scenes)
    size = check_integer("size", size, minimum=1)
    shown = torch.empty(len(scenes), size, size, dtype=torch.int64)
    step = max(1, CHUNK // size**2)
    for first in range(0, len(scenes), step):
        hits = first_hits(cast(_build(scenes[first : first + step]), *_grid(size)))
        body = hits.key >> 2
        shown[first : first + step] = torch.where(body > 2, 0, body).reshape(-1, size, size)
    return shown
