"""Reading pictures: every mode, damaged files, and the geometry of open_clip to the last bit."""

from __future__ import annotations

import io
import os
import threading

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from tutorials_lib._image_reading import (
    ImageError,
    as_rgb,
    decode,
    list_images,
    make_geometry,
)

# Pillow warns of some of what is damaged here, beside raising.
pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning:PIL", "ignore::PIL.Image.DecompressionBombWarning"
)

GRADIENT = np.arange(0, 256, 4, dtype=np.uint8).reshape(8, 8)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image).astype(int)


# --- Modes


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "YCbCr", "HSV"])
def test_case_04_opaque_modes_are_what_pillow_makes_of_them(mode):
    image = Image.fromarray(noise(6, 5, 3)).convert(mode)
    result = as_rgb(image)
    assert result.mode == "RGB"
    np.testing.assert_array_equal(pixels(result), pixels(image.convert("RGB")))


def test_case_04_sixteen_bits_are_scaled_and_not_clipped():
    """Pillow's own conversion turns everything above 255 white."""
    wide = GRADIENT.astype(np.uint16) * 257
    expected = np.repeat(GRADIENT[:, :, None], 3, axis=2)
    from_png = decode(encoded(Image.fromarray(wide), "PNG"), "wide.png")
    for result in (as_rgb(Image.fromarray(wide)), as_rgb(wide), from_png):
        np.testing.assert_array_equal(pixels(result), expected)
    as_int32 = Image.fromarray(wide.astype(np.int32))
    assert as_int32.mode == "I"
    np.testing.assert_array_equal(pixels(as_rgb(as_int32)), expected)
    # An I image made from eight bits holds 0 … 255.
    np.testing.assert_array_equal(pixels(as_rgb(Image.fromarray(GRADIENT).convert("I"))), expected)


def test_floats_are_read_in_either_range():
    expected = np.repeat(GRADIENT[:, :, None], 3, axis=2)
    for values in (GRADIENT / np.float32(255), GRADIENT.astype(np.float32)):
        np.testing.assert_array_equal(pixels(as_rgb(Image.fromarray(values))), expected)
    for values in (GRADIENT / np.float32(255), GRADIENT / 255, (GRADIENT / 255)[:, :, None]):
        np.testing.assert_array_equal(pixels(as_rgb(values)), expected)


def test_case_04_transparent_pictures_lie_on_white():
    colours = noise(4, 4, 4)
    for alpha, expected in ((255, colours[:, :, :3]), (0, np.full((4, 4, 3), 255))):
        colours[:, :, 3] = alpha
        for result in (as_rgb(Image.fromarray(colours)), as_rgb(colours)):
            np.testing.assert_array_equal(pixels(result), expected)
    half = np.full((2, 2, 4), [200, 100, 0, 128], dtype=np.uint8)
    np.testing.assert_allclose(pixels(as_rgb(half))[0, 0], [227, 177, 127], atol=1)
    gray = Image.merge("LA", [Image.new("L", (2, 2), 40), Image.new("L", (2, 2), 0)])
    assert (pixels(as_rgb(gray)) == 255).all()
    premultiplied = Image.new("RGBA", (2, 2), (10, 20, 30, 0)).convert("RGBa")
    assert (pixels(as_rgb(premultiplied)) == 255).all()


def test_case_04_palettes_with_a_transparent_colour_lie_on_white():
    image = Image.new("P", (3, 1))
    image.putpalette([9, 9, 9, 50, 60, 70, 80, 90, 100])
    image.putdata([0, 1, 2])
    for kind, options in (("GIF", {"transparency": 0}), ("PNG", {"transparency": b"\0\xff\xff"})):
        result = pixels(decode(encoded(image, kind, **options), "palette"))
        np.testing.assert_array_equal(result[0], [[255] * 3, [50, 60, 70], [80, 90, 100]])
    keyed = Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], dtype=np.uint8))
    result = pixels(decode(encoded(keyed, "PNG", transparency=(1, 2, 3)), "keyed.png"))
    np.testing.assert_array_equal(result[0], [[255] * 3, [4, 5, 6]])


def test_case_04_a_rotated_photograph_equals_the_upright_one():
    """All eight orientations, from a file and in memory; the given image stays as it is."""
    turn = Image.Transpose
    undone_by = [None, turn.FLIP_LEFT_RIGHT, turn.ROTATE_180, turn.FLIP_TOP_BOTTOM]
    undone_by += [turn.TRANSPOSE, turn.ROTATE_270, turn.TRANSVERSE, turn.ROTATE_90]
    stored = Image.fromarray(noise(5, 7, 3))
    for orientation, operation in enumerate(undone_by, start=1):
        upright = stored if operation is None else stored.transpose(operation)
        exif = Image.Exif()
        exif[0x0112] = orientation
        data = encoded(stored, "PNG", exif=exif.tobytes())
        np.testing.assert_array_equal(pixels(decode(data, "turned.png")), pixels(upright))
        opened = Image.open(io.BytesIO(data))
        np.testing.assert_array_equal(pixels(as_rgb(opened)), pixels(upright))
        np.testing.assert_array_equal(pixels(opened), pixels(stored))


def test_a_damaged_exif_block_does_not_hide_the_picture():
    data = encoded(Image.fromarray(noise(8, 8, 3)), "JPEG", exif=b"Exif\0\0no such thing at all")
    assert decode(data, "odd.jpg").size == (8, 8)


def test_the_first_frame_of_an_animation_is_read():
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    data = encoded(frames[0], "PNG", save_all=True, append_images=frames[1:])
    assert decode(data, "moving.png").getpixel((0, 0)) == (255, 0, 0)


# --- What cannot be read


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"])
def test_case_03_a_file_cut_anywhere_is_refused_with_its_name(kind):
    whole = encoded(Image.fromarray(noise(32, 32, 3)), kind)
    assert decode(whole, "whole").size == (32, 32)
    for share in (0.02, 0.3, 0.6, 0.9):
        with pytest.raises(ImageError, match=r"^holiday/beach\.x: ."):
            decode(whole[: int(share * len(whole))], "holiday/beach.x")


def test_case_03_an_empty_file_and_other_files_have_a_reason():
    with pytest.raises(ImageError, match=r"a\.png: the file is empty"):
        decode(b"", "a.png")
    with pytest.raises(ImageError, match=r"a\.png: not a picture"):
        decode(b"%PDF-1.4 and so on", "a.png")


def test_noise_for_a_file_never_raises_anything_else():
    """Bytes changed at random in every format: a picture or an `ImageError`."""
    rng = np.random.default_rng(0)
    for kind in ("JPEG", "PNG", "GIF", "BMP", "TIFF"):
        whole = np.frombuffer(encoded(Image.fromarray(noise(9, 9, 3)), kind), dtype=np.uint8)
        for _ in range(60):
            damaged = whole.copy()
            damaged[rng.integers(0, len(whole), 4)] = rng.integers(0, 256, 4)
            try:
                assert decode(damaged.tobytes(), "x").mode == "RGB"
            except ImageError:
                continue


@pytest.mark.parametrize(
    ("picture", "words"),
    [
        (np.array([[0.5, np.nan]]), "1 NaN"),
        (np.array([[0.5, 1.2]]), "from 0.5 to 1.2"),
        (np.array([[-0.5, 0.2]]), "from -0.5 to 0.2"),
        (np.array([[1, 2]]), "int64: allowed are uint8"),
        (np.zeros((3, 5, 5), dtype=np.uint8), "channels come last"),
        (np.zeros((5, 5, 2), dtype=np.uint8), r"shape \(height, width\)"),
        (np.zeros((0, 5, 3), dtype=np.uint8), "at least one pixel"),
        (torch.zeros(2, 5, 5), "a tensor must have shape"),
        (torch.full((3, 2, 2), 7.0), "from 7 to 7"),
        (Image.fromarray(np.array([[-3.0, 900.0]], dtype=np.float32)), "mode F: values from -3"),
        (None, "got NoneType"),
    ],
)
def test_pictures_out_of_range_are_refused(picture, words):
    with pytest.raises(ImageError, match=words):
        as_rgb(picture)


def test_rounding_just_outside_the_range_is_no_error():
    assert pixels(as_rgb(np.array([[-1e-7, 1 + 1e-7]])))[0, :, 0].tolist() == [0, 255]


# --- Geometry


def transform(**options):
    settings = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4), "is_train": False}
    return open_clip.image_transform(**{"image_size": 24, **settings, **options})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"interpolation": "bilinear"},
        {"resize_mode": "squash"},
        {"resize_mode": "longest"},
        {"image_size": (24, 16)},
    ],
)
@pytest.mark.parametrize("size", [(24, 24), (90, 61), (61, 90), (24, 100), (7, 5), (1, 1)])
def test_geometry_is_that_of_open_clip_to_the_last_bit(options, size):
    """Also for sizes that are not square and pictures smaller than the model's."""
    image = Image.fromarray(noise(size[1], size[0], 3))
    reference = transform(**options)
    ours = torch.from_numpy(make_geometry(reference)(image).copy()).permute(2, 0, 1)
    mean, std = (torch.tensor(v).reshape(3, 1, 1) for v in ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)))
    assert torch.equal(ours.float().div(255).sub(mean).div(std), reference(image))


@pytest.mark.parametrize("size", [(400, 30), (31, 401), (900, 3), (2, 1000)])
def test_strips_are_resized_as_open_clip_does_but_in_little_memory(size):
    image = Image.fromarray(noise(size[1], size[0], 3))
    reference = transform(mean=(0.0,) * 3, std=(1.0,) * 3)
    ours = make_geometry(reference)(image).astype(int)
    theirs = (reference(image).permute(1, 2, 0).numpy() * 255).round().astype(int)
    assert np.abs(ours - theirs).max() <= 1


def test_a_strip_that_would_fill_the_memory_is_resized():
    """Enlarged whole, the first would be 224 × 13,440,000 pixels."""
    geometry = make_geometry(transform(image_size=224))
    for shape in ((1, 60_000, 3), (60_000, 1, 3)):
        assert geometry(Image.fromarray(np.full(shape, 77, np.uint8))).mean() == 77


def test_a_foreign_transform_is_refused():
    with pytest.raises(TypeError, match="evaluation transform of open_clip"):
        make_geometry(lambda image: image)


def test_one_lazily_opened_picture_can_be_read_by_many_threads():
    opened = Image.open(io.BytesIO(encoded(Image.fromarray(noise(300, 300, 3)), "PNG")))
    results: list[np.ndarray] = []
    threads = [
        threading.Thread(target=lambda: results.append(pixels(as_rgb(opened)))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for result in results:
        np.testing.assert_array_equal(result, noise(300, 300, 3))


# --- Folders


def test_a_folder_is_listed_by_relative_path(tmp_path):
    names = ["b.JPG", "a/z.png", "a/é 图.webp", "a.b/c.gif", ".hidden/x.png", "._a.jpg", "note.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [path.relative_to(tmp_path).as_posix() for path in list_images(tmp_path)]
    assert found == ["a.b/c.gif", "a/z.png", "a/é 图.webp", "b.JPG"]


def test_folders_that_hold_nothing_are_an_error(tmp_path):
    (tmp_path / "note.txt").touch()
    with pytest.raises(ValueError, match=r"no picture in .* and 1 other files.*\.png"):
        list_images(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        list_images(tmp_path / "nowhere")
    with pytest.raises(NotADirectoryError, match="put a single picture into a list"):
        list_images(tmp_path / "note.txt")


def test_a_folder_that_cannot_be_read_is_an_error_and_not_empty(tmp_path, monkeypatch):
    (tmp_path / "closed").mkdir()
    Image.new("RGB", (2, 2)).save(tmp_path / "a.png")
    real = os.scandir

    def scandir(path):
        if os.fspath(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PermissionError, match="closed"):
        list_images(tmp_path)


def test_the_order_of_bytes_does_not_matter():
    wide = GRADIENT.astype(np.uint16) * 257
    for array in (wide, GRADIENT / np.float32(255)):
        swapped = array.astype(array.dtype.newbyteorder(">"))
        np.testing.assert_array_equal(pixels(as_rgb(swapped)), pixels(as_rgb(array)))


@pytest.mark.parametrize("layout", ["sparse", "meta"])
def test_tensors_without_pixels_are_unreadable_pictures(layout):
    tensor = torch.zeros(3, 4, 4)
    tensor = tensor.to_sparse() if layout == "sparse" else tensor.to("meta")
    with pytest.raises(ImageError, match="a tensor that cannot be read"):
        as_rgb(tensor)
