"""Renderer of scenes: geometry against closed forms and a slow reference, and determinism."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from tutorials_lib import _ray_geometry, _raycast
from tutorials_lib._ray_geometry import TAN_HALF_FIELD
from tutorials_lib._raycast import (
    CUBE_EDGE,
    CYLINDER_RADIUS,
    DISTANCE,
    ELEVATION,
    TARGET,
    render,
    segment,
)
from tutorials_lib._scene_domains import counter_hash
from tutorials_lib._scene_latents import COLOURS, DOMAINS, SHAPES, Scenes

CUBE, SPHERE, CYLINDER = range(3)


def draw(n: int, seed: int, domain: str = "photo", pairs: bool | None = None) -> Scenes:
    """Scenes of objects that do not touch, of one object or two."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float, *size: int) -> torch.Tensor:
        return low + (high - low) * torch.rand(n, *size, generator=generator)

    shape = torch.randint(len(SHAPES), (n, 2), generator=generator)
    colour = torch.randint(len(COLOURS), (n, 2), generator=generator)
    if pairs is not True:
        single = torch.rand(n, generator=generator) < (0.3 if pairs is None else 1.1)
        shape[single, 1] = colour[single, 1] = -1
    first = uniform(-1, 1, 2)
    second = first
    while bool((touching := (second - first).norm(dim=1) < 1.15).any()):
        second = torch.where(touching[:, None], uniform(-1, 1, 2), second)
    return Scenes(
        shape=shape,
        colour=colour,
        size=uniform(0.28, 0.47, 2),
        position=torch.stack([first, second], 1),
        rgb=uniform(0.1, 0.9, 2, 3),
        yaw=uniform(0, 2 * math.pi, 2),
        light=torch.stack([uniform(0, 2 * math.pi), uniform(0.6, 1.2)], 1),
        background=uniform(0, 1),
        camera=torch.stack([uniform(-0.1, 0.1), uniform(-0.1, 0.1), uniform(-0.06, 0.06)], 1),
        noise=uniform(0, 0.04),
        noise_seed=torch.randint(2**62, (n,), generator=generator),
        domain=domain,
    )


def plain(n: int, seed: int = 0, **fields: torch.Tensor | str) -> Scenes:
    """Single objects in front of the usual camera, without noise."""
    still = {"camera": torch.zeros(n, 3), "noise": torch.zeros(n)}
    return draw(n, seed, pairs=False).replace(**still, **fields)


def project(points: np.ndarray, camera: np.ndarray, size: int) -> np.ndarray:
    """Columns and rows of points in an image, by the pinhole formula in float64."""
    elevation = ELEVATION + camera[1]
    turn = np.array(
        [
            [math.cos(camera[0]), math.sin(camera[0]), 0],
            [-math.sin(camera[0]), math.cos(camera[0]), 0],
            [0, 0, 1],
        ]
    )
    tilt = np.array(
        [
            [1, 0, 0],
            [0, math.cos(elevation), -math.sin(elevation)],
            [0, math.sin(elevation), math.cos(elevation)],
        ]
    )
    right, away, up = tilt @ turn @ (points - np.array(TARGET)).T
    scale = size / 2 / TAN_HALF_FIELD / (away + DISTANCE * math.exp(camera[2]))
    return np.stack([size / 2 + right * scale, size / 2 - up * scale], 1)


# --- Determinism


@pytest.mark.parametrize("size", [48, 19])
@pytest.mark.parametrize("domain", DOMAINS)
def test_pixels_depend_on_the_scene_alone(domain, size):
    """Not on the batch, its order or the size of the batches."""
    scenes = draw(13, 1, domain)
    images = render(scenes, size=size)
    assert torch.equal(images, render(scenes, size=size, batch_size=4))
    order = torch.randperm(13, generator=torch.Generator().manual_seed(0))
    assert torch.equal(images[order], render(scenes[order], size=size))
    alone = torch.cat([render(scenes[i], size=size) for i in range(3)])
    assert torch.equal(images[:3], alone)


@pytest.mark.parametrize("domain", DOMAINS)
def test_absent_object_leaves_no_trace(domain):
    scenes = plain(6, 2, domain=domain)
    other = draw(6, 3)
    swapped = {
        name: torch.stack([getattr(scenes, name)[:, 0], 50 * getattr(other, name)[:, 1]], 1)
        for name in ("size", "position", "rgb", "yaw")
    }
    swapped["size"][:3, 1] = -1
    swapped["position"][:, 1] = scenes.position[:, 0]
    changed = scenes.replace(**swapped)
    assert torch.equal(render(scenes), render(changed))
    assert torch.equal(segment(scenes), segment(changed))


def test_order_of_the_slots_does_not_show():
    """Up to one step of a pixel, because products are rounded in another order."""
    scenes = draw(12, 4, pairs=True)
    pairs = ("shape", "colour", "size", "position", "rgb", "yaw")
    swapped = scenes.replace(**{name: getattr(scenes, name).flip(1) for name in pairs})
    difference = render(scenes).int() - render(swapped).int()
    assert int(difference.abs().max()) <= 1
    assert torch.equal((3 - segment(scenes)) % 3, segment(swapped))


# --- Geometry


def test_sphere_on_the_axis_has_the_silhouette_of_the_pinhole_formula():
    """A sphere of radius r at distance d covers a disc of radius tan(asin(r / d))."""
    radius, size = TARGET[2], 300
    scenes = plain(1, size=torch.full((1, 2), radius), position=torch.zeros(1, 2, 2))
    scenes = scenes.replace(shape=torch.tensor([[SPHERE, -1]]))
    shown = segment(scenes, size=size)[0].numpy() == 1
    expected = math.tan(math.asin(radius / DISTANCE)) / TAN_HALF_FIELD * size / 2
    assert math.sqrt(shown.sum() / math.pi) == pytest.approx(expected, rel=0.003)
    rows, columns = np.nonzero(shown)
    centre = (size - 1) / 2
    np.testing.assert_allclose([rows.mean(), columns.mean()], [centre, centre], atol=0.05)
    reach = np.hypot(rows - centre, columns - centre).max()
    assert expected - 1 < reach < expected + 1


def test_centres_of_single_objects_are_where_the_pinhole_formula_puts_them():
    scenes, size = draw(60, 5, pairs=False), 96
    shown = segment(scenes, size=size)
    for index in range(60):
        x, y = scenes.position[index, 0].tolist()
        tall = float(scenes.size[index, 0])
        tall *= CUBE_EDGE if scenes.shape[index, 0] == CUBE else 1
        place = project(np.array([[x, y, tall]]), scenes.camera[index].numpy(), size)[0]
        column, row = np.floor(place).astype(int)
        assert shown[index, row, column] == 1
        rows, columns = np.nonzero(shown[index].numpy())
        # The middle of what is seen of a tall body lies off its centre by perspective alone.
        np.testing.assert_allclose([columns.mean() + 0.5, rows.mean() + 0.5], place, atol=2)


def inside(points: np.ndarray, scenes: Scenes, index: int, slot: int) -> np.ndarray:
    """Whether points are inside an object, from its definition."""
    shape, size = int(scenes.shape[index, slot]), float(scenes.size[index, slot])
    if shape == -1:
        return np.zeros(points.shape[:-1], dtype=bool)
    x, y = np.moveaxis(points[..., :2] - scenes.position[index, slot].numpy(), -1, 0)
    z, yaw = points[..., 2], float(scenes.yaw[index, slot])
    if shape == SPHERE:
        return x**2 + y**2 + (z - size) ** 2 < size**2
    if shape == CYLINDER:
        return (np.hypot(x, y) < CYLINDER_RADIUS * size) & (z > 0) & (z < 2 * size)
    turned = (x + 1j * y) * np.exp(-1j * yaw)
    half = CUBE_EDGE * size
    return (abs(turned.real) < half) & (abs(turned.imag) < half) & (z > 0) & (z < 2 * half)


def test_segments_agree_with_marching_along_rays():
    """Steps of 0.01 pass by a corner thinner than that: up to 0.3 % of pixels, at outlines."""
    scenes, size = draw(5, 6, pairs=True), 32
    shown = segment(scenes, size=size).numpy()
    for index in range(5):
        azimuth, offset, log_distance = scenes.camera[index].double().tolist()
        elevation, distance = ELEVATION + offset, DISTANCE * math.exp(log_distance)
        towards = np.array(
            [
                math.cos(elevation) * math.sin(azimuth),
                -math.cos(elevation) * math.cos(azimuth),
                math.sin(elevation),
            ]
        )
        eye = np.array(TARGET) + distance * towards
        right = np.cross(-towards, [0, 0, 1])
        right /= np.linalg.norm(right)
        up = np.cross(right, -towards)
        grid = (np.arange(size) + 0.5) / size * 2 - 1
        u, v = np.meshgrid(grid * TAN_HALF_FIELD, -grid * TAN_HALF_FIELD)
        ray = u[..., None] * right + v[..., None] * up - towards
        ray /= np.linalg.norm(ray, axis=-1, keepdims=True)
        expected = np.zeros((size, size), dtype=int)
        for step in np.arange(distance - 2.5, distance + 3, 0.01):
            points = eye + step * ray
            for slot in (0, 1):
                hit = (expected == 0) & (points[..., 2] > 0)
                expected[hit & inside(points, scenes, index, slot)] = slot + 1
        assert (shown[index] != expected).mean() < 0.003
        assert {0, 1, 2} >= set(np.unique(expected)) > {0}


def test_moving_right_or_away_moves_pixels_right_or_up():
    for axis, image_axis, sign in ((0, 1, 1), (1, 0, -1)):
        scenes = plain(3, 7, shape=torch.tensor([[CUBE, -1], [SPHERE, -1], [CYLINDER, -1]]))
        middles = []
        for place in (-0.8, -0.2, 0.4, 1.0):
            position = torch.zeros(3, 2, 2)
            position[..., axis] = place
            shown = segment(scenes.replace(position=position)) == 1
            where = torch.arange(48.0).reshape(-1, 1) if image_axis == 0 else torch.arange(48.0)
            middles.append((shown * where).sum((1, 2)) / shown.sum((1, 2)))
        steps = sign * torch.stack(middles).diff(dim=0)
        assert bool((steps > 3).all())


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_nearer_object_hides_the_further_one(shape):
    scenes = plain(2).replace(
        shape=torch.full((2, 2), shape),
        colour=torch.tensor([[0, 2], [0, 2]]),
        size=torch.full((2, 2), 0.4),
        position=torch.tensor([[[0.0, -0.5], [0.0, 0.5]], [[0.0, 0.5], [0.0, -0.5]]]),
    )
    shown = segment(scenes, size=64)
    alone = segment(
        scenes.replace(
            shape=torch.tensor([[shape, -1]] * 2),
            colour=scenes.colour * torch.tensor([1, 0]) - torch.tensor([0, 1]),
        ),
        size=64,
    )
    assert torch.equal(shown[0] == 1, alone[0] == 1)
    assert int((shown[1] == 1).sum()) < int((alone[1] == 1).sum())


def test_objects_in_the_corners_stay_in_view(monkeypatch):
    """The largest objects show at least three quarters of what a wider field shows of them."""
    corners = torch.tensor([[x, y] for x in (-1.0, 1.0) for y in (-1.0, 1.0)])
    scenes = plain(12).replace(
        shape=torch.tensor([[shape, -1] for shape in range(3) for _ in range(4)]),
        position=corners.repeat(3, 1)[:, None].repeat(1, 2, 1),
        size=torch.full((12, 2), 0.47),
    )
    area = (segment(scenes, size=200) == 1).sum((1, 2))
    monkeypatch.setattr(_ray_geometry, "TAN_HALF_FIELD", 2 * TAN_HALF_FIELD)
    whole = (segment(scenes, size=400) == 1).sum((1, 2))
    assert float((area / whole).min()) > 0.75


# --- Light and paint


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_shadow_falls_away_from_the_lamp(shape):
    """The floor is darker behind the object than at the point opposite."""
    n = 8
    azimuth = torch.arange(n) * (2 * math.pi / n) + 0.1
    scenes = plain(n, 8).replace(
        shape=torch.tensor([[shape, -1]] * n),
        size=torch.full((n, 2), 0.35),
        position=torch.zeros(n, 2, 2),
        light=torch.stack([azimuth, torch.full((n,), 0.7)], 1),
    )
    size = 96
    images, shown = render(scenes, size=size).float().mean(1), segment(scenes, size=size)
    compared = 0
    for index in range(n):
        away = -np.array([math.cos(azimuth[index]), math.sin(azimuth[index]), 0])
        places = project(np.stack([0.65 * away, -0.65 * away]), np.zeros(3), size)
        (column, row), (other_column, other_row) = np.floor(places).astype(int)
        if shown[index, row, column] or shown[index, other_row, other_column]:
            continue
        compared += 1
        assert images[index, row, column] < 0.85 * images[index, other_row, other_column]
    assert compared >= 5


def test_objects_cast_shadows_on_each_other():
    """A low lamp behind a cube leaves the sphere in front of it in the shade."""
    scenes = plain(2).replace(
        shape=torch.tensor([[SPHERE, CUBE], [SPHERE, -1]]),
        colour=torch.tensor([[0, 0], [0, -1]]),
        size=torch.tensor([[0.3, 0.45]] * 2),
        position=torch.tensor([[[-0.6, 0.0], [0.3, 0.0]]] * 2),
        yaw=torch.zeros(2, 2),
        light=torch.tensor([[0.0, 0.25]] * 2),
        background=torch.zeros(2),
        rgb=torch.full((2, 2, 3), 0.6),
    )
    images = render(scenes).float().mean(1)
    sphere = segment(scenes)[1] == 1
    assert images[0][sphere].mean() < 0.8 * images[1][sphere].mean()


@pytest.mark.parametrize("domain", DOMAINS)
def test_paint_shows_in_every_domain(domain):
    """The channel of the paint is the strongest on its object: red, green and blue."""
    paint = torch.full((9, 2, 3), 0.1)
    paint[torch.arange(9), 0, torch.arange(9) % 3] = 0.8
    shape = torch.tensor([[index // 3, -1] for index in range(9)])
    scenes = plain(9, 9, shape=shape, rgb=paint, domain=domain)
    scenes = scenes.replace(size=torch.full((9, 2), 0.45), position=scenes.position * 0.7)
    images = render(scenes).float()
    mask = (segment(scenes) == 1)[:, None]
    seen = (images * mask).sum((2, 3)) / mask.sum((2, 3))
    assert torch.equal(seen.argmax(1), torch.arange(9) % 3)
    excess = seen.max(1).values - seen.median(1).values
    assert bool((excess > (12 if domain == "line" else 40)).all())


def test_large_images_average_to_small_ones():
    scenes = draw(8, 10).replace(noise=torch.zeros(8))
    small = render(scenes).float()
    for size, supersample in ((240, 1), (96, 2)):
        large = render(scenes, size=size, supersample=supersample).float()
        pooled = torch.nn.functional.avg_pool2d(large, size // 48)
        assert float((pooled - small).abs().mean()) < 0.8
        assert float((pooled - small).abs().quantile(0.99)) < 12


# --- Noise and disorder


def test_noise_has_the_standard_deviation_asked_for():
    """Over 55 296 entries: the bound of 2 % is seven standard errors."""
    scenes = plain(8, 11, background=torch.zeros(8))
    clean = render(scenes).float()
    noisy = render(scenes.replace(noise=torch.full((8,), 0.03))).float()
    middle = (clean > 40) & (clean < 215)
    difference = (noisy - clean)[middle] / 255
    assert len(difference) > 20_000
    assert float(difference.std()) == pytest.approx(0.03, rel=0.02)
    assert abs(float(difference.mean())) < 6 * 0.03 / math.sqrt(len(difference))


def test_hash_is_uniform_and_seeds_are_unrelated():
    """Each bit is fair and shared by neighbouring seeds half the time, to six standard errors."""
    words = counter_hash(torch.arange(64), 4000)
    bits = np.unpackbits(words.view(np.uint8).reshape(64, 4000, 4), axis=2)
    bound = 6 * 0.5 / math.sqrt(64 * 4000)
    np.testing.assert_allclose(bits.mean((0, 1)), 0.5, atol=bound)
    np.testing.assert_allclose((bits[1:] == bits[:-1]).mean((0, 1)), 0.5, atol=bound)
    np.testing.assert_allclose((bits[:, 1:] == bits[:, :-1]).mean((0, 1)), 0.5, atol=bound)
    assert np.array_equal(counter_hash(torch.tensor([5, -1]), 10)[:1], words[5:6, :10])


def test_clutter_hides_a_part_of_an_object_only():
    photo = draw(200, 12)
    scenes = photo.replace(domain="clutter")
    clear, shown = segment(photo), segment(scenes)
    hidden = []
    for slot in (1, 2):
        area = (clear == slot).sum((1, 2))
        # An object behind the other one may be in view by a few pixels only.
        enough = area > 40
        gone = ((clear == slot) & (shown != slot)).sum((1, 2))
        hidden.append(gone[enough] / area[enough])
        assert not bool(((shown == slot) & (clear != slot)).any())
    share = torch.cat(hidden)
    assert float(share.max()) < 0.4
    assert float(share.quantile(0.95)) < 0.27
    assert 0.3 < float((share > 0.04).float().mean()) < 0.9


@pytest.mark.parametrize("domain", ["line", "cartoon", "clutter"])
def test_disorder_follows_the_noise_seed(domain):
    scenes = plain(4, 13, domain=domain)
    other = scenes.replace(noise_seed=scenes.noise_seed + 1)
    changed = (render(scenes) != render(other)).flatten(1).float().mean(1)
    assert bool((changed > 0.01).all())
    photos = scenes.replace(domain="photo")
    assert torch.equal(render(photos), render(other.replace(domain="photo")))


@pytest.mark.parametrize("domain", ["line", "cartoon"])
def test_outlines_are_dark(domain):
    scenes = plain(10, 14, domain=domain)
    shown = segment(scenes)
    outline = torch.zeros_like(shown, dtype=torch.bool)
    outline[:, :, 1:] |= shown[:, :, 1:] != shown[:, :, :-1]
    outline[:, 1:] |= shown[:, 1:] != shown[:, :-1]
    dark = -torch.nn.functional.max_pool2d(-render(scenes).float().mean(1), 3, 1, 1)
    assert float(dark[outline].median()) < 110
    if domain == "line":
        assert float(render(scenes).float().mean(1).median()) > 220


# --- Edges of what is allowed


@pytest.mark.parametrize("domain", DOMAINS)
def test_extreme_latents_give_finite_images(domain, monkeypatch):
    scenes = draw(8, 15, domain, pairs=True)
    big, row = 1e30, torch.arange(8)
    fields = {
        name: getattr(scenes, name).clone()
        for name in ("size", "position", "rgb", "light", "background", "camera", "noise", "yaw")
    }
    fields["size"][0], fields["size"][1] = big, 1e-30
    fields["position"][2], fields["position"][0] = big, 0
    fields["rgb"][3], fields["light"][3] = -big, -big
    fields["camera"][4], fields["camera"][5] = big, -big
    fields["background"][6], fields["noise"][6], fields["yaw"][6] = -big, big, big
    fields["noise"][7] = -1
    scenes = dataclasses.replace(scenes, **fields, noise_seed=(row - 4) * 2**60)
    seen = []
    pooled = _raycast._pooled
    monkeypatch.setattr(_raycast, "_pooled", lambda *args: seen.append(pooled(*args)) or seen[-1])
    images = render(scenes)
    assert images.dtype == torch.uint8 and images.shape == (8, 3, 48, 48)
    assert bool(torch.isfinite(torch.cat([part.flatten() for part in seen])).all())
    assert float(torch.cat([part.flatten() for part in seen]).min()) >= 0


@pytest.mark.parametrize("domain", DOMAINS)
def test_no_scenes_and_one_pixel(domain):
    scenes = draw(2, 16, domain)
    assert render(scenes[:0]).shape == (0, 3, 48, 48)
    assert segment(scenes[:0], size=7).shape == (0, 7, 7)
    assert render(scenes, size=1).shape == (2, 3, 1, 1)


def test_bad_input_is_refused():
    scenes = draw(2, 17)
    for name in ("size", "supersample", "batch_size"):
        with pytest.raises(ValueError, match=name):
            render(scenes, **{name: 0})
        with pytest.raises(TypeError, match=name):
            render(scenes, **{name: 1.5})
    with pytest.raises(TypeError, match="Scenes"):
        render(torch.zeros(2, 3))
    with pytest.raises(TypeError, match="size"):
        segment(scenes, size="large")
    with pytest.raises(ValueError, match="positive"):
        segment(scenes.replace(size=-scenes.size))
