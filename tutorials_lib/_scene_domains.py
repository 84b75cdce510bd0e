"""What the domains of the scenes look like: photographs, cartoons, drawings, and clutter.

Colours are linear, with the square root for the eye's curve, and 1 is the brightest a screen
shows. The disorder of a scene comes from a hash of its ``noise_seed``.
"""

from __future__ import annotations


import numpy as np
import torch

from tutorials_lib._ray_geometry import Hits, Rays, World, dot
from tutorials_lib._scene_latents import ABSENT

__all__ = ["counter_hash", "linear_hue", "photo"]

SUN = 1.0
AMBIENT = 0.36
FILL = 0.26


def counter_hash(seed: torch.Tensor, count: int) -> np.ndarray:
    """Return ``count`` numbers per seed, uint32, shape (n, count), a function of seed and index.

    The seed goes through the finaliser of splitmix64 (Steele, Lea and Flood, 2014), the index
    is mixed in by two rounds of a multiplicative 32-bit hash.
    """
    whole = (1 << 64) - 1
    words = []
    for value in seed.tolist():
        x = (value + 0x9E3779B97F4A7C15) & whole
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & whole
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & whole
        words.append(x ^ (x >> 31))
    key = np.array(words, dtype=np.uint64).reshape(-1, 1)
    high, low = (key >> np.uint64(32)).astype(np.uint32), key.astype(np.uint32)
    x = np.arange(count, dtype=np.uint32)[None] * np.uint32(0x9E3779B9) + low
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= (x >> np.uint32(15)) + high
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return x


def uniforms(seed: torch.Tensor, count: int) -> torch.Tensor:
    """Return hashed numbers in [0, 1), float64, (count, n): the disorder, apart from the noise."""
    other = seed ^ 0x5DEECE66D
    return torch.from_numpy(counter_hash(other, count).T.astype(np.float64) / 2**32)


def linear_hue(
    hue: torch.Tensor, saturation: torch.Tensor | float, value: torch.Tensor | float
) -> torch.Tensor:
    """Return the linear colour of hue, saturation and value, (3, n)."""
    channels = [
        (((hue + shift) % 1.0) * 6 - 3).abs().sub(1).clamp(0, 1) for shift in (0.0, 2 / 3, 1 / 3)
    ]
    return (value * (1 - saturation + saturation * torch.stack(channels))) ** 2


def _exposure(lamp: torch.Tensor) -> torch.Tensor:
    """Brighten scenes whose lamp grazes the floor."""
    return 1.2 / (0.55 + 0.7 * lamp[2])


def photo(rays: Rays, hits: Hits, lit: torch.Tensor) -> torch.Tensor:
    """Shade as a photograph would: returns the linear colours of the rays, (3, M)."""
    world = rays.world
    lamp = rays.spread(world.lamp)
    point = hits.point.reshape(3, *rays.shape)
    shade = torch.full_like(point[0], AMBIENT)
    for k in range(world.n_bodies):
        # Bodies hide the sky from the floor around their feet.
        there = torch.where(world.kind[:, k] == ABSENT, 0.0, 0.75)
        foot = rays.spread(torch.cat([world.body[:4, :, k], there[None]]))
        x, y = point[0] - foot[0], point[1] - foot[1]
        away = (x * x + y * y) / (foot[3] * foot[3])
        shade = shade * (1 - foot[4] / (1 + away * away))
    shade = (shade + SUN * lamp[2] * lit.reshape(rays.shape)) * _exposure(lamp)
    spot = (point[0] * point[0] + point[1] * point[1]) * 0.06
    shade = shade / (1 + 0.3 * spot * spot)
    far = spot / (1 + spot)
    floor, wall = rays.spread(world.floor), rays.spread(world.wall)
    colour = ((floor + (wall - floor) * far) * shade).reshape(3, -1)
    colour[:, hits.ray] = _paint(rays, hits, lit)
    return colour


def _paint(rays: Rays, hits: Hits, lit: torch.Tensor) -> torch.Tensor:
    """Colours of the points on bodies, (3, m)."""
    world, normal, body = rays.world, hits.normal, hits.body
    scene = rays.scene_of(hits.ray)
    lamp, along, light = world.lamp[:, scene], rays.direction[:, hits.ray], lit[hits.ray]
    facing = dot(normal, lamp).clamp(min=0)
    # A weak lamp on the left of the camera tells the faces in shadow apart.
    aside = dot(normal, world.up[:, scene] * 0.5 - world.right[:, scene] * 0.85)
    fill = 0.5 + 0.5 * aside
    sky = 0.5 + 0.5 * normal[2]
    low = (0.5 * hits.point[2, hits.ray] / body[4]).clamp(0, 1)
    soft = AMBIENT * (0.2 + 0.8 * sky) * (0.55 + 0.45 * low) + FILL * fill * fill
    bounce = 0.3 * (1 - sky) * world.floor[:, scene] * (1 - 0.5 * low)
    half = lamp - along
    glint = (dot(normal, half) / dot(half, half).sqrt()).clamp(min=0)
    for _ in range(5):
        glint = glint * glint
    glint = 0.35 * glint * light * (facing > 0)
    rim = (1 + dot(normal, along)).clamp(min=0)
    rim = 0.10 * rim * rim * rim * sky
    exposure = _exposure(lamp)
    return (body[7:10] * (SUN * facing * light + soft + bounce) + glint + rim) * exposure
