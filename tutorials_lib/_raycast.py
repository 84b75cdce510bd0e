"""Images of scenes: a ray caster for spheres, boxes and cylinders that stand on a floor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tutorials_lib._scene_latents import ABSENT, SHAPES, Scenes
from tutorials_lib._validation import check_integer

__all__ = ["render", "segment"]

CUBE, SPHERE, CYLINDER = range(len(SHAPES))
# An object of size s is 2 s tall if round; a cube of half edge s would look much the largest.
CUBE_EDGE = 0.86
CYLINDER_RADIUS = 0.78

# The camera: how far from what it looks at, how high, and the tangent of half its field of view.
DISTANCE = 7.5
ELEVATION = 0.61
TAN_HALF_FIELD = 0.215
TARGET = (0.0, 0.0, 0.32)

SUN = 1.0
AMBIENT = 0.36
# Half the width of a penumbra over the way from the occluder.
PENUMBRA = 0.10
# Samples of a pixel on an edge: a rotated grid, in pixels from its centre.
EDGE_SAMPLES = ((-0.375, -0.125), (0.125, -0.375), (0.375, 0.125), (-0.125, 0.375))
# Pixels that are worked on together: planes of this many floats stay in a core's cache.
CHUNK = 24 * 48 * 48


@dataclass(frozen=True, eq=False)
class _World:
    """Scenes as the ray caster wants them: n scenes, K bodies each, one number a row.

    Attributes
    ----------
    origin, right, up, forward
        The camera, each (3, n).
    lamp
        Direction towards the lamp, (3, n).
    floor, wall
        Linear colours, (3, n).
    kind
        Index into SHAPES, or -1 if there is no such body, (n K,) in scene-major order.
    body
        Centre (rows 0-2), radius or half edge (3), half height (4), cosine and sine of the yaw
        (5, 6), linear paint (7-9), bounding radius (10) of each body, (11, n K).
    n_bodies
        K.
    """

    origin: torch.Tensor
    right: torch.Tensor
    up: torch.Tensor
    forward: torch.Tensor
    lamp: torch.Tensor
    floor: torch.Tensor
    wall: torch.Tensor
    kind: torch.Tensor
    body: torch.Tensor
    n_bodies: int


def _hue(hue: torch.Tensor, saturation: float, value: float) -> torch.Tensor:
    """Return the linear colour of a hue, shape (3, n)."""
    channels = [
        (((hue + shift) % 1.0) * 6 - 3).abs().sub(1).clamp(0, 1) for shift in (0.0, 2 / 3, 1 / 3)
    ]
    return (value * (1 - saturation + saturation * torch.stack(channels))) ** 2


def _build(scenes: Scenes) -> _World:
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
    tensors = (origin, right, up, forward, lamp, _hue(hue, 0.20, 0.80), _hue(hue, 0.30, 0.62))
    return _World(
        *(tensor.float() for tensor in tensors),
        kind=kind.reshape(-1),
        body=torch.stack(rows).float().reshape(len(rows), -1),
        n_bodies=kind.shape[1],
    )


@dataclass(frozen=True, eq=False)
class _Rays:
    """Rays of n scenes: as a frame of P rays each, or M rays each with the index of its scene."""

    world: _World
    direction: torch.Tensor
    shape: tuple[int, ...]
    scene: torch.Tensor | None

    def spread(self, rows: torch.Tensor) -> torch.Tensor:
        """Give numbers of scenes, (C, n), to the rays: (C, n, 1) or (C, M)."""
        return rows[:, :, None] if self.scene is None else rows[:, self.scene]

    def scene_of(self, ray: torch.Tensor) -> torch.Tensor:
        return ray // self.shape[1] if self.scene is None else self.scene[ray]


def _cast(world: _World, u: torch.Tensor, v: torch.Tensor, scene: torch.Tensor | None) -> _Rays:
    """Aim rays at image coordinates from -1 to 1, u to the right and v upwards."""
    rays = _Rays(world, u, (), scene)
    right, up, forward = (rays.spread(axis) for axis in (world.right, world.up, world.forward))
    u, v = u * TAN_HALF_FIELD, v * TAN_HALF_FIELD
    length = (u * u + v * v + 1).sqrt().reciprocal()
    along = [(right[i] * u + up[i] * v + forward[i]) * length for i in range(3)]
    direction = torch.stack(along)
    return _Rays(world, direction.reshape(3, -1), tuple(direction.shape[1:]), scene)


def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Inner product over the first axis; a sum of three in a fixed order."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _away_from_zero(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.abs() < 1e-7, 1e-7, x)


def _span(
    kind: int, start: torch.Tensor, along: torch.Tensor, body: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Where rays enter and leave bodies of one kind, and through which face they enter.

    ``start`` is relative to the centre of the body. A ray misses if it leaves before it enters.
    Faces: 0 round, 1 and 2 the sides of a box, 3 top or bottom.
    """
    radius, tall = body[3], body[4]
    if kind == SPHERE:
        middle = -_dot(start, along)
        inside = middle * middle - _dot(start, start) + radius * radius
        half = inside.clamp(min=0).sqrt()
        enter, leave = middle - half, middle + half
        return enter, torch.where(inside > 0, leave, enter), torch.zeros_like(middle).long()
    slope = _away_from_zero(along[2]).reciprocal()
    middle, half = -start[2] * slope, (tall * slope).abs()
    enter_z, leave_z = middle - half, middle + half
    if kind == CYLINDER:
        a = (along[0] * along[0] + along[1] * along[1]).clamp(min=1e-12)
        b = start[0] * along[0] + start[1] * along[1]
        c = start[0] * start[0] + start[1] * start[1] - radius * radius
        inside = b * b - a * c
        half = inside.clamp(min=0).sqrt() / a
        middle = -b / a
        enter_r, leave_r = middle - half, middle + half
        leave = torch.minimum(leave_r, leave_z)
        enter = torch.maximum(enter_r, enter_z)
        leave = torch.where(inside > 0, leave, enter)
        return enter, leave, (enter_z > enter_r).long() * 3
    cos, sin = body[5], body[6]
    bounds = [(enter_z, leave_z)]
    for x, y in ((cos, sin), (-sin, cos)):
        slope = _away_from_zero(along[0] * x + along[1] * y).reciprocal()
        middle = -(start[0] * x + start[1] * y) * slope
        half = (radius * slope).abs()
        bounds.append((middle - half, middle + half))
    (enter_z, leave_z), (enter_x, leave_x), (enter_y, leave_y) = bounds
    side = torch.maximum(enter_x, enter_y)
    leave = torch.minimum(torch.minimum(leave_x, leave_y), leave_z)
    face = torch.where(enter_z > side, 3, torch.where(enter_x > enter_y, 1, 2))
    return torch.maximum(side, enter_z), leave, face


def _normal(
    kind: int, point: torch.Tensor, along: torch.Tensor, face: torch.Tensor, body: torch.Tensor
) -> torch.Tensor:
    """Outward normals at points relative to the centres of bodies of one kind, (3, m)."""
    if kind == SPHERE:
        return point / body[3]
    top = (face == 3).float() * -along[2].sign()
    level = (face != 3).float()
    if kind == CYLINDER:
        x, y = point[0] / body[3], point[1] / body[3]
    else:
        first = face == 1
        x, y = torch.where(first, body[5], -body[6]), torch.where(first, body[6], body[5])
        sign = -(along[0] * x + along[1] * y).sign()
        x, y = x * sign, y * sign
    return torch.stack([x * level, y * level, top])


@dataclass(frozen=True, eq=False)
class _Hits:
    """What M rays meet. ``ray`` lists the rays that meet a body; the others meet the floor.

    ``key`` is 0 on the floor, else 4 (1 + index of the body) + face; ``point`` is (3, M); the
    rest is about the rays listed.
    """

    key: torch.Tensor
    point: torch.Tensor
    ray: torch.Tensor
    normal: torch.Tensor
    body: torch.Tensor


def _near(
    start: torch.Tensor, along: torch.Tensor, rays: _Rays, skip: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pairs of a ray and a body whose bounding sphere it meets: indices of both.

    ``skip`` holds for every ray the key of what it starts on, which does not count.
    """
    world = rays.world
    n_bodies = world.n_bodies
    bodies = world.body.reshape(len(world.body), -1, n_bodies)
    kinds = world.kind.reshape(-1, n_bodies)
    found_ray, found_body = [], []
    for k in range(n_bodies):
        # A bounding radius whose square is -inf never meets a ray.
        bound = torch.where(kinds[:, k] == ABSENT, -torch.inf, bodies[10, :, k] ** 2)
        sphere = rays.spread(torch.cat([bodies[:3, :, k], bound[None]]))
        offset = [sphere[i] - start[i] for i in range(3)]
        middle = _dot(offset, along)
        outside = _dot(offset, offset) - sphere[3]
        met = (middle * middle > outside) & ((middle > 0) | (outside < 0))
        if skip is not None:
            met &= (skip >> 2).reshape(met.shape) != k + 1
        ray = met.reshape(-1).nonzero()[:, 0]
        found_ray.append(ray)
        found_body.append(rays.scene_of(ray) * n_bodies + k)
    return torch.cat(found_ray), torch.cat(found_body)


def _first_hits(rays: _Rays) -> _Hits:
    """Find what every ray meets first."""
    world = rays.world
    shaped = rays.direction.reshape(3, *rays.shape)
    origin = rays.spread(world.origin)
    ray, index = _near(origin, shaped, rays, None)
    kinds = world.kind[index]
    best = torch.full((rays.direction.shape[1],), torch.inf)
    groups = []
    for kind in (CUBE, SPHERE, CYLINDER):
        picked = (kinds == kind).nonzero()[:, 0]
        which, owner = ray[picked], index[picked]
        along, body = rays.direction[:, which], world.body[:, owner]
        start = world.origin[:, rays.scene_of(which)] - body[:3]
        enter, leave, face = _span(kind, start, along, body)
        met = ((leave > enter) & (enter > 0)).nonzero()[:, 0]
        which, enter = which[met], enter[met]
        along, start, body = along[:, met], start[:, met], body[:, met]
        best.scatter_reduce_(0, which, enter, "amin")
        offset = start + enter * along
        normal = _normal(kind, offset, along, face[met], body)
        code = 4 * (1 + owner[met] % world.n_bodies) + face[met]
        groups.append((which, enter, offset + body[:3], normal, code, body))
    which, enter, place, normal, code, body = (
        torch.cat(parts, -1) for parts in zip(*groups, strict=True)
    )
    seen = (enter == best[which]).nonzero()[:, 0]
    which = which[seen]
    # A ray that rises meets the floor nowhere; far away everything has the colour of the wall.
    down = (-shaped[2]).clamp(min=1e-3)
    point = origin + (origin[2] / down) * shaped
    point = point.reshape(3, -1)
    point[:, which] = place[:, seen]
    key = torch.zeros(point.shape[1], dtype=torch.int64)
    key[which] = code[seen]
    return _Hits(key, point, which, normal[:, seen], body[:, seen])


def _lit(rays: _Rays, hits: _Hits) -> torch.Tensor:
    """How much of the lamp each point sees past the other bodies, from 0 to 1."""
    world = rays.world
    lamp = rays.spread(world.lamp)
    ray, index = _near(hits.point.reshape(3, *rays.shape), lamp, rays, hits.key)
    kinds = world.kind[index]
    lit = torch.ones(hits.point.shape[1])
    for kind in (CUBE, SPHERE, CYLINDER):
        picked = (kinds == kind).nonzero()[:, 0]
        which, body = ray[picked], world.body[:, index[picked]]
        along = world.lamp[:, rays.scene_of(which)]
        enter, leave, _ = _span(kind, hits.point[:, which] - body[:3], along, body)
        enter = enter.clamp(min=0)
        # The way through the body falls to zero at its outline: it stands in for the part of
        # the lamp that is covered, the more so the further the shadow has come.
        depth = (leave - enter) / (0.02 + PENUMBRA * enter + 0.25 * body[3])
        depth = depth.clamp(0, 1)
        lit.scatter_reduce_(0, which, 1 - depth * (2 - depth), "amin")
    return lit


def _photo(rays: _Rays, hits: _Hits, lit: torch.Tensor) -> torch.Tensor:
    """Linear colours of the rays, (3, M)."""
    world = rays.world
    lamp = rays.spread(world.lamp)
    exposure = 1.25 / (0.55 + 0.7 * lamp[2])
    point = hits.point.reshape(3, *rays.shape)
    shade = torch.full_like(point[0], AMBIENT)
    bodies = world.body.reshape(len(world.body), -1, world.n_bodies)
    kinds = world.kind.reshape(-1, world.n_bodies)
    for k in range(world.n_bodies):
        there = torch.where(kinds[:, k] == ABSENT, 0.0, 0.75)
        foot = rays.spread(torch.cat([bodies[:4, :, k], there[None]]))
        x, y = point[0] - foot[0], point[1] - foot[1]
        away = (x * x + y * y) / (foot[3] * foot[3])
        shade = shade * (1 - foot[4] / (1 + away * away))
    shade = (shade + SUN * lamp[2] * lit.reshape(rays.shape)) * exposure
    spot = (point[0] * point[0] + point[1] * point[1]) * 0.06
    shade = shade / (1 + spot * spot * 0.3)
    far = (spot / (1 + spot)).clamp(0, 1)
    floor, wall = rays.spread(world.floor), rays.spread(world.wall)
    colour = (floor + (wall - floor) * far) * shade
    colour = colour.reshape(3, -1)

    ray, normal, body = hits.ray, hits.normal, hits.body
    scene = rays.scene_of(ray)
    lamp, along = world.lamp[:, scene], rays.direction[:, ray]
    light = lit[ray]
    facing = _dot(normal, lamp)
    sun = SUN * facing.clamp(min=0) * light
    # A weak lamp on the left of the camera tells the faces in shadow apart.
    aside = world.up[:, scene] * 0.6 - world.right[:, scene] * 0.8
    fill = (0.5 + 0.5 * _dot(normal, aside)).clamp(min=0)
    sky = 0.5 + 0.5 * normal[2]
    ground = (hits.point[2, ray] / (body[4] + body[4])).clamp(0, 1)
    ambient = AMBIENT * (0.35 + 0.65 * sky) * (0.6 + 0.4 * ground) + 0.22 * fill
    half = lamp - along
    half = half / _dot(half, half).sqrt()
    glint = _dot(normal, half).clamp(min=0)
    for _ in range(5):
        glint = glint * glint
    glint = glint * light * (facing > 0)
    exposure = 1.25 / (0.55 + 0.7 * lamp[2])
    paint = body[7:10] * ((sun + ambient) * exposure) + 0.30 * glint
    colour[:, ray] = paint
    return colour


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
    """Noise of mean 0 and variance 1 from a hash of seed and index alone, (n, count).

    Each entry is the sum of the four bytes of a hash of 32 bits, scaled: close to normal, and
    the same numbers on every machine and in every batch.
    """
    mask = (1 << 64) - 1
    words = []
    for value in seed.tolist():
        # splitmix64
        x = (value + 0x9E3779B97F4A7C15) & mask
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        words.append(x ^ (x >> 31))
    key = np.array(words, dtype=np.uint64)[:, None]
    high, low = (key >> np.uint64(32)).astype(np.uint32), key.astype(np.uint32)
    x = np.arange(count, dtype=np.uint32)[None] * np.uint32(0x9E3779B9) + low
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= (x >> np.uint32(15)) + high
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    pairs = (x & np.uint32(0x00FF00FF)) + ((x >> np.uint32(8)) & np.uint32(0x00FF00FF))
    total = (pairs & np.uint32(0xFFFF)) + (pairs >> np.uint32(16))
    spread = ((256**2 - 1) / 12 * 4) ** 0.5
    return torch.from_numpy((total.astype(np.float32) - np.float32(510)) * np.float32(1 / spread))


def _grid(side: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Image coordinates of pixel centres, row by row from the top, each (side²,)."""
    centre = ((torch.arange(side, dtype=torch.float64) + 0.5) * (2 / side) - 1).float()
    return centre.repeat(side), (-centre).repeat_interleave(side)


def _frame(world: _World, n: int, side: int) -> torch.Tensor:
    """Linear images with smooth edges, (3, n, side, side)."""
    u, v = _grid(side)
    rays = _cast(world, u, v, None)
    hits = _first_hits(rays)
    lit = _lit(rays, hits)
    colour = _photo(rays, hits, lit)
    marked = _edges(hits.key.reshape(n, side, side), lit.reshape(n, side, side))
    pixel = marked.reshape(-1).nonzero()[:, 0]
    scene, place = pixel // side**2, pixel % side**2
    step = 2 / side
    u = torch.cat([u[place] + x * step for x, _ in EDGE_SAMPLES])
    v = torch.cat([v[place] + y * step for _, y in EDGE_SAMPLES])
    rays = _cast(world, u, v, scene.repeat(len(EDGE_SAMPLES)))
    hits = _first_hits(rays)
    samples = _photo(rays, hits, _lit(rays, hits)).clamp(max=1.0)
    parts = samples.reshape(3, len(EDGE_SAMPLES), -1).unbind(1)
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
        hits = _first_hits(_cast(_build(part), *_grid(size), None))
        shown[first : first + step] = (hits.key >> 2).reshape(-1, size, size)
    return shown
