"""Rays against spheres, boxes and upright cylinders on a floor: what they meet, what is lit.

Numbers of scenes and bodies stand in columns, their parts in rows. Work on rays uses correctly
rounded operations only (no sine, power or matrix product), so that a ray's result does not
depend on which rays it is computed with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tutorials_lib._scene_latents import ABSENT, SHAPES

__all__ = ["Hits", "Rays", "World", "bodies", "cast", "dot", "first_hits", "light_reaching"]

CUBE, SPHERE, CYLINDER = range(len(SHAPES))

# The tangent of half the camera's field of view.
TAN_HALF_FIELD = 0.215
# Width of a penumbra over the way that the shadow has come.
PENUMBRA = 0.10
# How much of a box or a cylinder looks rounded at its edges.
ROUNDED = 0.1


@dataclass(frozen=True, eq=False)
class World:
    """n scenes of up to K bodies each.

    Attributes
    ----------
    origin, right, up, forward
        The camera: where it is and its axes, each (3, n).
    lamp
        Direction towards the lamp, of length one, (3, n).
    floor, wall
        Linear colours of the floor nearby and far away, or of the two tones of its pattern,
        (3, n).
    kind
        Index into `SHAPES`, or -1 where there is no body, (n, K).
    body
        Centre (rows 0-2), radius or half edge (3), half height (4), cosine and sine of the yaw
        (5, 6), linear paint (7-9) and radius of the bounding sphere (10), (11, n, K).
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

    @property
    def n_bodies(self) -> int:
        """The K of the shapes."""
        return self.kind.shape[1]


def bodies(
    kind: torch.Tensor,
    place: torch.Tensor,
    width: torch.Tensor,
    tall: torch.Tensor,
    yaw: torch.Tensor,
    paint: torch.Tensor,
) -> torch.Tensor:
    """Stack the rows of bodies that stand on the floor, as in `World`, (11, n, K).

    Parameters
    ----------
    kind
        Index into `SHAPES`, (n, K).
    place
        Where on the floor, (2, n, K).
    width, tall
        Radius or half edge, and half height, which are equal for a sphere, (n, K).
    yaw
        In radians, (n, K).
    paint
        Linear colour, (3, n, K).
    """
    across = torch.where(kind == CUBE, 2.0, torch.where(kind == SPHERE, 0.0, 1.0))
    # A sphere is its own bound; a hair more keeps rays that graze a body.
    bound = (across * width * width + tall * tall).sqrt() * 1.001
    rows = torch.stack([*place, tall, width, tall, yaw.cos(), yaw.sin(), *paint, bound])
    return rows.float()


@dataclass(frozen=True, eq=False)
class Rays:
    """Rays from the cameras of n scenes.

    Attributes
    ----------
    world
        The scenes.
    direction
        Of length one, (3, M), M rays in all.
    shape
        (n, P) for a frame of P rays per scene, (M,) for a list.
    scene
        The scene of each ray of a list, (M,); None for a frame.
    """

    world: World
    direction: torch.Tensor
    shape: tuple[int, ...]
    scene: torch.Tensor | None

    def spread(self, rows: torch.Tensor) -> torch.Tensor:
        """Give numbers of scenes, (C, n), to the rays: (C, n, 1) for a frame, else (C, M)."""
        return rows[:, :, None] if self.scene is None else rows[:, self.scene]

    def scene_of(self, ray: torch.Tensor) -> torch.Tensor:
        """Return the scenes of rays given by their indices."""
        return ray // self.shape[1] if self.scene is None else self.scene[ray]


@dataclass(frozen=True, eq=False)
class Hits:
    """What M rays meet first.

    Attributes
    ----------
    key
        0 on the floor, else 4 (1 + body) + face, (M,). Faces: 0 round, 1 and 2 the sides of a
        box, 3 the top.
    point
        Where, (3, M).
    ray
        Indices of the m rays that meet a body.
    normal
        Outward normals there, of length one and rounded at edges, (3, m).
    body
        Their bodies, rows as in `World`, (11, m).
    """

    key: torch.Tensor
    point: torch.Tensor
    ray: torch.Tensor
    normal: torch.Tensor
    body: torch.Tensor


def dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Inner product over a first axis of three."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cast(world: World, u: torch.Tensor, v: torch.Tensor, scene: torch.Tensor | None = None) -> Rays:
    """Aim rays at image coordinates from -1 to 1, u to the right and v upwards.

    Coordinates are (P,) or (n, P) for a frame, or (M,) with the scene of each ray.
    """
    rays = Rays(world, u, (), scene)
    right, up, forward = (rays.spread(axis) for axis in (world.right, world.up, world.forward))
    u, v = u * TAN_HALF_FIELD, v * TAN_HALF_FIELD
    length = (u * u + v * v + 1).sqrt()
    direction = torch.stack([(right[i] * u + up[i] * v + forward[i]) / length for i in range(3)])
    return Rays(world, direction.reshape(3, -1), tuple(direction.shape[1:]), scene)


def _inverse(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.abs() < 1e-7, 1e-7, x).reciprocal()


def _span(
    kind: int, start: torch.Tensor, along: torch.Tensor, body: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Where rays enter and leave bodies of one kind, and the face they enter by.

    ``start`` is relative to the centre of the body. A ray that misses leaves no later than it
    enters.
    """
    radius = body[3]
    if kind == SPHERE:
        middle = -dot(start, along)
        inside = middle * middle - dot(start, start) + radius * radius
        half = inside.clamp(min=0).sqrt()
        return middle - half, middle + half, torch.zeros_like(middle, dtype=torch.int64)
    slope = _inverse(along[2])
    middle, half = -start[2] * slope, (body[4] * slope).abs()
    enter_z, leave_z = middle - half, middle + half
    if kind == CYLINDER:
        a = (along[0] * along[0] + along[1] * along[1]).clamp(min=1e-12)
        b = start[0] * along[0] + start[1] * along[1]
        c = start[0] * start[0] + start[1] * start[1] - radius * radius
        half = (b * b - a * c).clamp(min=0).sqrt() / a
        enter_side, leave = -b / a - half, torch.minimum(-b / a + half, leave_z)
        face = torch.where(enter_z > enter_side, 3, 0)
        return torch.maximum(enter_side, enter_z), leave, face
    enters, leaves = [], []
    for x, y in ((body[5], body[6]), (-body[6], body[5])):
        slope = _inverse(along[0] * x + along[1] * y)
        middle = -(start[0] * x + start[1] * y) * slope
        half = (radius * slope).abs()
        enters.append(middle - half)
        leaves.append(middle + half)
    enter_side = torch.maximum(*enters)
    leave = torch.minimum(torch.minimum(*leaves), leave_z)
    face = torch.where(enter_z > enter_side, 3, torch.where(enters[0] > enters[1], 1, 2))
    return torch.maximum(enter_side, enter_z), leave, face


def _beyond(x: torch.Tensor) -> torch.Tensor:
    """How far a coordinate of a body, from -1 to 1, is within the rounded margin."""
    return torch.sign(x) * (x.abs() - (1 - ROUNDED)).clamp(min=0)


def _normal(kind: int, point: torch.Tensor, body: torch.Tensor) -> torch.Tensor:
    """Outward normals at points relative to the centres of bodies of one kind, (3, m)."""
    if kind == SPHERE:
        return point / body[3]
    x, y, z = point[0] / body[3], point[1] / body[3], _beyond(point[2] / body[4])
    if kind == CYLINDER:
        away = (x * x + y * y).sqrt()
        level = _beyond(away) / away.clamp(min=1e-6)
        x, y = x * level, y * level
    else:
        cos, sin = body[5], body[6]
        side, front = _beyond(x * cos + y * sin), _beyond(y * cos - x * sin)
        x, y = side * cos - front * sin, side * sin + front * cos
    length = (x * x + y * y + z * z).sqrt().clamp(min=1e-6)
    return torch.stack([x / length, y / length, z / length])


def _near(
    start: torch.Tensor, along: torch.Tensor, rays: Rays, skip: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pair rays with the bodies whose bounding spheres they meet: indices of both.

    ``skip`` holds for every ray the key of the body that it starts on, which does not count.
    """
    kind, body, n_bodies = rays.world.kind, rays.world.body, rays.world.n_bodies
    found_ray, found_body = [], []
    for k in range(n_bodies):
        # A square of -inf is the bound that no ray meets.
        square = torch.where(kind[:, k] == ABSENT, -torch.inf, body[10, :, k] * body[10, :, k])
        sphere = rays.spread(torch.cat([body[:3, :, k], square[None]]))
        offset = [sphere[i] - start[i] for i in range(3)]
        middle = dot(offset, along)
        outside = dot(offset, offset) - sphere[3]
        met = (middle * middle > outside) & ((middle > 0) | (outside < 0))
        if skip is not None:
            met &= (skip >> 2).reshape(met.shape) != k + 1
        ray = met.reshape(-1).nonzero()[:, 0]
        found_ray.append(ray)
        found_body.append(rays.scene_of(ray) * n_bodies + k)
    return torch.cat(found_ray), torch.cat(found_body)


def first_hits(rays: Rays) -> Hits:
    """Find what every ray meets first; rays that rise meet the floor very far away."""
    world = rays.world
    shaped = rays.direction.reshape(3, *rays.shape)
    origin = rays.spread(world.origin)
    ray, index = _near(origin, shaped, rays)
    kinds, bodies = world.kind.reshape(-1)[index], world.body.reshape(len(world.body), -1)
    best = torch.full((rays.direction.shape[1],), torch.inf)
    groups = []
    for kind in (CUBE, SPHERE, CYLINDER):
        picked = (kinds == kind).nonzero()[:, 0]
        which, owner = ray[picked], index[picked]
        along, body = rays.direction[:, which], bodies[:, owner]
        start = world.origin[:, rays.scene_of(which)] - body[:3]
        enter, leave, face = _span(kind, start, along, body)
        met = ((leave > enter) & (enter > 0)).nonzero()[:, 0]
        which, enter, body = which[met], enter[met], body[:, met]
        best.scatter_reduce_(0, which, enter, "amin")
        offset = start[:, met] + enter * along[:, met]
        key = 4 * (1 + owner[met] % world.n_bodies) + face[met]
        groups.append((which, enter, key, offset, _normal(kind, offset, body), body))
    which, enter, key, offset, normal, body = (
        torch.cat(parts, -1) for parts in zip(*groups, strict=True)
    )
    seen = (enter == best[which]).nonzero()[:, 0]
    which, offset, normal, body = which[seen], offset[:, seen], normal[:, seen], body[:, seen]
    down = (-shaped[2]).clamp(min=1e-3)
    point = (origin + (origin[2] / down) * shaped).reshape(3, -1)
    point[:, which] = offset + body[:3]
    keys = torch.zeros(point.shape[1], dtype=torch.int64)
    keys[which] = key[seen]
    return Hits(keys, point, which, normal, body)


def light_reaching(rays: Rays, hits: Hits) -> torch.Tensor:
    """How much of the lamp each point sees past the other bodies, from 0 to 1, (M,)."""
    world = rays.world
    ray, index = _near(hits.point.reshape(3, *rays.shape), rays.spread(world.lamp), rays, hits.key)
    kinds, bodies = world.kind.reshape(-1)[index], world.body.reshape(len(world.body), -1)
    lit = torch.ones(hits.point.shape[1])
    for kind in (CUBE, SPHERE, CYLINDER):
        picked = (kinds == kind).nonzero()[:, 0]
        which, body = ray[picked], bodies[:, index[picked]]
        along = world.lamp[:, rays.scene_of(which)]
        enter, leave, _ = _span(kind, hits.point[:, which] - body[:3], along, body)
        enter = enter.clamp(min=0)
        # The way through the body falls to zero at its outline. It stands in for the part of
        # the lamp that is covered: the further the shadow has come, the softer its edge.
        depth = (leave - enter) / (0.02 + PENUMBRA * enter + 0.25 * body[3])
        depth = depth.clamp(0, 1)
        lit.scatter_reduce_(0, which, 1 - depth * (2 - depth), "amin")
    return lit
