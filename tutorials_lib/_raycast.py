"""Images of scenes, by ray casting on the CPU."""

from __future__ import annotations

import numpy as np
import torch

from tutorials_lib._ray_geometry import (
    CUBE,
    CYLINDER,
    World,
    cast,
    first_hits,
    light_reaching,
)
from tutorials_lib._scene_domains import counter_hash, linear_hue, photo
from tutorials_lib._scene_latents import Scenes
from tutorials_lib._validation import check_integer

__all__ = ["render", "segment"]

# A cube as tall as a sphere would look much larger, and a cylinder as wide as a cube is hard to
# tell from it at a few pixels.
CUBE_EDGE = 0.82
CYLINDER_RADIUS = 0.72

# The camera: how far from what it looks at, and how high in radians.
DISTANCE = 7.5
ELEVATION = 0.61
TARGET = (0.0, 0.0, 0.32)

# Rays of a pixel on an edge: a rotated grid, in pixels from its centre.
EDGE_RAYS = ((-0.375, -0.125), (0.125, -0.375), (0.375, 0.125), (-0.125, 0.375))
# Rays that are worked on together: planes of this many floats stay in the cache.
CHUNK = 32 * 48 * 48


def _build(scenes: Scenes) -> World:
    """Turn latents into cameras, lamps and bodies, in float64 because that is few numbers."""
    camera = scenes.camera.double()
    azimuth, height = camera[:, 0], (ELEVATION + camera[:, 1]).clamp(0.1, 1.5)
    distance = DISTANCE * camera[:, 2].clamp(-1, 1).exp()
    sin_a, cos_a, sin_e, cos_e = azimuth.sin(), azimuth.cos(), height.sin(), height.cos()
    forward = torch.stack([-cos_e * sin_a, cos_e * cos_a, -sin_e])
    right = torch.stack([cos_a, sin_a, torch.zeros_like(sin_a)])
    up = torch.stack([-sin_a * sin_e, cos_a * sin_e, cos_e])
    origin = torch.tensor(TARGET, dtype=torch.float64)[:, None] - distance * forward

    lamp_a, lamp_e = scenes.light[:, 0].double(), scenes.light[:, 1].double().clamp(0.1, 1.5)
    lamp = torch.stack([lamp_e.cos() * lamp_a.cos(), lamp_e.cos() * lamp_a.sin(), lamp_e.sin()])

    hue = scenes.background.double()
    kind = scenes.shape
    size = scenes.size.double().clamp(1e-3, 1e3)
    cube, cylinder = kind == CUBE, kind == CYLINDER
    width = torch.where(cube, CUBE_EDGE * size, torch.where(cylinder, CYLINDER_RADIUS * size, size))
    tall = torch.where(cube, CUBE_EDGE * size, size)
    bound = torch.where(
        cube, 3**0.5 * width, torch.where(cylinder, (width**2 + tall**2).sqrt(), size)
    )
    place = scenes.position.double().clamp(-1e3, 1e3)
    paint = scenes.rgb.double().clamp(0, 1) ** 2
    yaw = scenes.yaw.double()
    rows = [place[..., 0], place[..., 1], tall, width, tall, yaw.cos(), yaw.sin()]
    rows += [paint[..., 0], paint[..., 1], paint[..., 2], bound * 1.001]
    tensors = (
        origin,
        right,
        up,
        forward,
        lamp,
        linear_hue(hue, 0.18, 0.82),
        linear_hue(hue, 0.30, 0.60),
    )
    return World(*(tensor.float() for tensor in tensors), kind=kind, body=torch.stack(rows).float())


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


def _frame(world: World, n: int, side: int) -> torch.Tensor:
    """Linear images with smooth edges, (3, n, side, side)."""
    u, v = _grid(side)
    rays = cast(world, u, v)
    hits = first_hits(rays)
    lit = light_reaching(rays, hits)
    colour = photo(rays, hits, lit)
    marked = _edges(hits.key.reshape(n, side, side), lit.reshape(n, side, side))
    pixel = marked.reshape(-1).nonzero()[:, 0]
    scene, place = pixel // side**2, pixel % side**2
    step = 2 / side
    u = torch.cat([u[place] + x * step for x, _ in EDGE_RAYS])
    v = torch.cat([v[place] + y * step for _, y in EDGE_RAYS])
    rays = cast(world, u, v, scene.repeat(len(EDGE_RAYS)))
    hits = first_hits(rays)
    samples = photo(rays, hits, light_reaching(rays, hits)).clamp(max=1.0)
    parts = samples.reshape(3, len(EDGE_RAYS), -1).unbind(1)
    colour[:, pixel] = (parts[0] + parts[1] + parts[2] + parts[3]) * 0.25
    return colour.reshape(3, n, side, side)


def render(
    scenes: Scenes, *, size: int = 48, supersample: int = 1, batch_size: int = 64
) -> torch.Tensor:
    """Render scenes as images.

    Parameters
    ----------
    scenes
        N scenes.
    size
        Pixels a side.
    supersample
        Rays along a side of a pixel; pixels on edges get four times as many rays.
    batch_size
        Scenes that are worked on together, at most.

    Returns
    -------
    torch.Tensor
        Images, uint8, shape (N, 3, size, size).
    """
    size = check_integer("size", size, minimum=1)
    supersample = check_integer("supersample", supersample, minimum=1)
    batch_size = check_integer("batch_size", batch_size, minimum=1)
    if scenes.domain not in ("photo", "new-light"):
        raise NotImplementedError(f"the domain {scenes.domain!r} has no renderer yet")
    side = size * supersample
    step = max(1, min(batch_size, CHUNK // side**2))
    images = torch.empty(len(scenes), 3, size, size, dtype=torch.uint8)
    for first in range(0, len(scenes), step):
        part = scenes[first : first + step]
        n = len(part)
        colour = _frame(_build(part), n, side).clamp(0, 1)
        if supersample > 1:
            blocks = colour.reshape(3, n, size, supersample, size, supersample)
            colour = blocks.mean(dim=(3, 5))
        shown = colour.sqrt().transpose(0, 1)
        noise = _noise(part.noise_seed, 3 * size * size).reshape(n, 3, size, size)
        shown = shown + noise * part.noise.clamp(min=0)[:, None, None, None]
        images[first : first + n] = (shown * 255 + 0.5).clamp(0, 255).to(torch.uint8)
    return images


def segment(scenes: Scenes, *, size: int = 48) -> torch.Tensor:
    """Tell which object each pixel shows at its centre."""
    size = check_integer("size", size, minimum=1)
    shown = torch.empty(len(scenes), size, size, dtype=torch.int64)
    step = max(1, CHUNK // size**2)
    for first in range(0, len(scenes), step):
        part = scenes[first : first + step]
        hits = first_hits(cast(_build(part), *_grid(size), None))
        shown[first : first + step] = (hits.key >> 2).reshape(-1, size, size)
    return shown
