"""What the domains of the scenes look like: photographs, cartoons, drawings, and clutter.

Colours are linear, with the square root for the eye's curve, and 1 is the brightest a screen
shows. The disorder of a scene comes from a hash of its ``noise_seed``.
"""

from __future__ import annotations

import numpy as np
import torch

from tutorials_lib._ray_geometry import CUBE, CYLINDER, SPHERE, Hits, Rays, bodies, dot
from tutorials_lib._scene_latents import ABSENT, Scenes

__all__ = [
    "cartoon",
    "clutter",
    "counter_hash",
    "drawing",
    "linear_hue",
    "outlines",
    "photo",
    "uniforms",
]

SUN = 1.0
AMBIENT = 0.36
FILL = 0.26

# Small pieces on the floor of a cluttered scene, and the hashed numbers that its disorder takes.
N_PIECES = 7
N_UNIFORMS = 8 * (N_PIECES + 1)


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


def uniforms(seed: torch.Tensor) -> torch.Tensor:
    """Return the disorder of scenes, hashed numbers in [0, 1), float64, (N_UNIFORMS, n)."""
    # Not the seed itself, which the noise of the pixels is hashed from.
    words = counter_hash(seed ^ 0x5DEECE66D, N_UNIFORMS)
    return torch.from_numpy(words.T.astype(np.float64) / 2**32)


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


def _tone(rays: Rays, hits: Hits, lit: torch.Tensor) -> torch.Tensor:
    """How much light of the lamp falls on the points on bodies, from 0 to 1, (m,)."""
    lamp = rays.world.lamp[:, rays.scene_of(hits.ray)]
    return dot(hits.normal, lamp).clamp(min=0) * lit[hits.ray]


def cartoon(rays: Rays, hits: Hits, lit: torch.Tensor, disorder: torch.Tensor) -> torch.Tensor:
    """Paint flat tones on a patterned floor: linear colours of a frame of rays, (3, M)."""
    world = rays.world
    point = hits.point.reshape(3, *rays.shape)
    angle, period = disorder[1] * torch.pi, 0.35 + 0.35 * disorder[2]
    cos, sin = angle.cos() / period, angle.sin() / period
    # The corner of the pattern is no place in particular.
    rows = torch.stack([cos, sin, disorder[3], disorder[4], disorder[0]]).float()
    cos, sin, first, second, choice = rays.spread(rows)
    x = cos * point[0] + sin * point[1] + first
    y = cos * point[1] - sin * point[0] + second
    column, row = x.floor(), y.floor()
    checks = (column + row) * 0.5 != ((column + row) * 0.5).floor()
    stripes = x - column < 0.5
    across, along = x - column - 0.5, y - row - 0.5
    dots = across * across + along * along < 0.08
    pattern = torch.where(choice < 1 / 3, checks, torch.where(choice < 2 / 3, stripes, dots))
    ground = torch.where(pattern, rays.spread(world.wall), rays.spread(world.floor))
    ground = ground * torch.where(lit.reshape(rays.shape) < 0.5, 0.45, 1.0)
    colour = ground.reshape(3, -1)

    tone = _tone(rays, hits, lit)
    flat = torch.where(tone > 0.6, 1.15, torch.where(tone > 0.2, 0.7, 0.36))
    lamp = world.lamp[:, rays.scene_of(hits.ray)]
    half = lamp - rays.direction[:, hits.ray]
    glint = dot(hits.normal, half) / dot(half, half).sqrt()
    # A flat face would be all highlight or none.
    curved = (hits.key[hits.ray] & 3) == 0
    highlight = (glint > 0.985) & (tone > 0) & curved
    colour[:, hits.ray] = torch.where(highlight, 1.0, hits.body[7:10] * flat)
    return colour


def _strokes(across: torch.Tensor, share: torch.Tensor | float) -> torch.Tensor:
    """Mark parallel strokes, one per unit of ``across``, that cover a share of the paper."""
    return across - across.floor() < share


def drawing(
    rays: Rays, hits: Hits, lit: torch.Tensor, u: torch.Tensor, v: torch.Tensor, strokes: float
) -> torch.Tensor:
    """Hatch bodies in pencils of their paints and shadows in grey: linear colours, (3, M).

    ``strokes`` is how many go across the image, whose coordinates of the rays are ``u, v``.
    """
    paper = rays.world.floor
    colour = rays.spread(paper).expand(3, *rays.shape).reshape(3, -1).clone()
    rising = ((v - u) * (0.35 * strokes)).expand(rays.shape).reshape(-1)
    falling = ((v + u) * (0.35 * strokes)).expand(rays.shape).reshape(-1)
    steep = ((0.4 * v - u) * (0.45 * strokes)).expand(rays.shape).reshape(-1)
    shadow = (lit < 0.5) & _strokes(rising, 0.35)
    colour = torch.where(shadow, colour * 0.45, colour)
    tone = _tone(rays, hits, lit)
    first = _strokes(falling[hits.ray], torch.where(tone > 0.6, 0.3, 0.5))
    second = _strokes(steep[hits.ray], 0.4) & (tone < 0.3)
    white = paper[:, rays.scene_of(hits.ray)]
    pencil = white * 0.45 + hits.body[7:10] * 0.55
    drawn = torch.where(first, pencil, white)
    colour[:, hits.ray] = torch.where(second, drawn * pencil / white, drawn)
    return colour


def outlines(key: torch.Tensor, width: int) -> torch.Tensor:
    """Mark lines where keys change, (n, side, side), ``width`` entries wide."""
    edge = torch.zeros(key.shape)
    edge[:, :, 1:] += key[:, :, 1:] != key[:, :, :-1]
    edge[:, 1:] += key[:, 1:] != key[:, :-1]
    left = width // 2
    for padding, window in (
        ((left, width - 1 - left, 0, 0), (1, width)),
        ((0, 0, left, width - 1 - left), (width, 1)),
    ):
        edge = torch.nn.functional.pad(edge, padding)
        edge = torch.nn.functional.max_pool2d(edge[:, None], window, stride=1)[:, 0]
    return edge > 0


def clutter(scenes: Scenes, disorder: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Strew small pieces on the floor and put a post in front of an object.

    Nothing stands inside an object: what would is left out.

    Returns
    -------
    kind
        Of the pieces and the post, -1 where left out, (n, N_PIECES + 1).
    body
        Rows as in `World`, (11, n, N_PIECES + 1).
    """
    there = scenes.shape != ABSENT
    size = scenes.size.double()
    centre = scenes.position.double()

    x, y, width, which, yaw, hue, value = disorder[: 7 * N_PIECES].reshape(7, N_PIECES, -1).mT
    place = torch.stack([2.6 * x - 1.3, 2.8 * y - 1.2])
    width = 0.035 + 0.06 * width
    kind = torch.where(which < 0.45, CUBE, torch.where(which < 0.8, SPHERE, CYLINDER))
    paint = linear_hue(hue, 0.6, 0.3 + 0.6 * value)
    for slot in (0, 1):
        gap = (place - centre[:, slot].T[:, :, None]).square().sum(0).sqrt()
        near = gap < 1.2 * size[:, slot, None] + 1.5 * width
        kind = torch.where(near & there[:, slot, None], ABSENT, kind)
    kinds, pieces = kind, bodies(kind, place, width, width, 2 * torch.pi * yaw, paint)

    pick, side, gap, high, thick, hue, value, show = disorder[-8:]
    second = (there[:, 1] & (pick < 0.5)).long()
    target = torch.arange(len(scenes))
    s, shape = size[target, second], scenes.shape[target, second]
    half = s * torch.where(shape == CYLINDER, 0.72, 0.95)
    azimuth = scenes.camera[:, 0].double()
    towards = torch.stack([azimuth.sin(), -azimuth.cos()])
    right = torch.stack([azimuth.cos(), azimuth.sin()])
    away = 1.25 * s + 0.15 + 0.1 * gap
    aside = half * torch.where(side < 0.5, -0.15 - 1.1 * side, 0.15 + 1.1 * (side - 0.5))
    place = centre[target, second].T + away * towards + aside * right
    thick = half * (0.11 + 0.06 * thick)
    tall = (0.6 + 0.4 * high) * (1.35 * s + 0.35 * away)
    kind = torch.where(show < 0.5, CUBE, CYLINDER)
    other = 1 - second
    gap = (place - centre[target, other].T).square().sum(0).sqrt()
    blocked = there[target, other] & (gap < 1.2 * size[target, other] + 1.5 * thick)
    kind = torch.where(blocked, ABSENT, kind)[:, None]
    paint = linear_hue(hue, 0.35, 0.25 + 0.35 * value)[:, :, None]
    post = bodies(kind, place[:, :, None], thick[:, None], tall[:, None], hue[:, None], paint)
    return torch.cat([kinds, kind], 1), torch.cat([pieces, post], 2)
