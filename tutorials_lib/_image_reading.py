"""Pictures of every kind as RGB, and the geometry that a model's preprocessing asks for.

Every picture becomes 8-bit RGB before it is resized, whatever it was:

======================  ==================================================================
transparent pictures    laid on white (LA, PA, RGBA, palettes and colours marked transparent)
1, L, CMYK, YCbCr, HSV  as Pillow converts them
I;16, uint16 arrays     0 … 65535 becomes 0 … 255
I                       as I;16 if a value exceeds 255, else 0 … 255 as they are
F                       0 … 1 if no value exceeds 1, else 0 … 255
float arrays            0 … 1, rounded to 8 bits
several frames          the first one
EXIF orientation        applied; a damaged EXIF block counts as none
======================  ==================================================================

Values outside these ranges, NaN and infinite ones make a picture unreadable, with a reason.
"""

from __future__ import annotations

import io
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision.transforms import CenterCrop, Compose, Normalize, Resize
from torchvision.transforms.functional import pil_modes_mapping

__all__ = [
    "IMAGE_SUFFIXES",
    "READING",
    "ImageError",
    "as_rgb",
    "available_cores",
    "decode",
    "list_images",
    "make_geometry",
    "raise_error",
]

IMAGE_SUFFIXES = (
    ".avif .bmp .gif .jfif .jpeg .jpg .pbm .pgm .png .pnm .ppm .tga .tif .tiff .webp".split()
)
# Goes up when pictures are read differently, so that stored embeddings are not mixed.
READING = 1
# How far rounding may put a float outside its range, as a share of the range.
TOLERANCE = 1e-3
# A strip this much longer than it is wide is cut before it is resized: enlarged whole it would
# fill the memory, and only its middle is looked at.
LONG_STRIP = 8

_ORIENTATION = 0x0112
# Pillow reads the pixels of an opened picture when they are first needed, and two threads must
# not do that to one picture.
_LOADING = threading.Lock()


class ImageError(ValueError):
    """A picture that cannot be read; the message says which and why."""


def available_cores() -> int:
    """Return how many cores this process may use, eight at most."""
    if hasattr(os, "sched_getaffinity"):
        return min(8, len(os.sched_getaffinity(0)))
    return min(8, os.cpu_count() or 1)


def list_images(folder: str | Path) -> list[Path]:
    """List the pictures in a folder and the folders below it, sorted by their relative path.

    Parameters
    ----------
    folder
        Where to look. Links to folders are not followed, hidden files and folders are left out.

    Returns
    -------
    list of pathlib.Path
        The files whose suffix is one of `IMAGE_SUFFIXES`, in either case.

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        If there is no such folder.
    OSError
        If one of the folders cannot be read.
    ValueError
        If there is no picture in it.
    """
    folder = Path(folder)
    if not folder.exists():
        raise FileNotFoundError(f"there is no folder {str(folder)!r}")
    if not folder.is_dir():
        raise NotADirectoryError(
            f"{str(folder)!r} is a file, not a folder; put a single picture into a list: [path]"
        )
    found = []
    n_others = 0
    for parent, folders, names in os.walk(folder, onerror=raise_error):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.startswith("."):
                continue
            if Path(name).suffix.lower() in IMAGE_SUFFIXES:
                found.append(Path(parent, name))
            else:
                n_others += 1
    if not found:
        raise ValueError(
            f"there is no picture in {str(folder)!r} and the folders below it, and {n_others} "
            f"other files; the suffixes looked for are {' '.join(IMAGE_SUFFIXES)}"
        )
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def raise_error(error: OSError) -> None:
    """Pass on what ``os.walk`` would swallow."""
    # Otherwise a folder that may not be read would look as if it were empty.
    raise error


def decode(data: bytes, name: str) -> Image.Image:
    """Read the bytes of an image file as RGB.

    Parameters
    ----------
    data
        What the file holds.
    name
        The file's path; used in messages.

    Raises
    ------
    ImageError
        If they are no complete picture.
    """
    if not data:
        raise ImageError(f"{name}: the file is empty")
    try:
        return _to_rgb(Image.open(io.BytesIO(data)))
    except Exception as error:  # damaged files make Pillow raise nearly everything there is
        reason = "not a picture that Pillow knows" if _is_unknown(error) else str(error)
        raise ImageError(f"{name}: {reason or type(error).__name__}") from error


def as_rgb(picture: Any) -> Image.Image:
    """Turn a picture in memory into RGB.

    Parameters
    ----------
    picture
        A Pillow image; an array of shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4); or a tensor
        of shape (1, H, W) or (3, H, W). Arrays and tensors hold uint8, uint16 (arrays only), or
        floats in [0, 1].

    Raises
    ------
    ImageError
        If it is none of these, or if values are out of range.
    """
    if isinstance(picture, Image.Image):
        with _LOADING:
            try:
                return _to_rgb(picture)
            except Exception as error:
                raise ImageError(f"a Pillow image of mode {picture.mode}: {error}") from error
    if isinstance(picture, torch.Tensor):
        if picture.ndim != 3 or picture.shape[0] not in (1, 3):
            raise ImageError(
                "a tensor must have shape (3, height, width) or (1, height, width), got "
                f"{tuple(picture.shape)}"
            )
        try:
            pixels = picture.detach().cpu()
            pixels = pixels.float() if pixels.is_floating_point() else pixels
            array = pixels.permute(1, 2, 0).numpy()
        except (TypeError, RuntimeError) as error:  # sparse ones, and those without values
            reason = str(error).strip().splitlines()[0]
            raise ImageError(f"a tensor that cannot be read as an array: {reason}") from error
        return _from_array(array)
    if isinstance(picture, np.ndarray):
        return _from_array(picture)
    raise ImageError(
        "a picture must be a path, a Pillow image, an array or a tensor, got "
        f"{type(picture).__name__}"
    )


def make_geometry(transform: Compose) -> Callable[[Image.Image], np.ndarray]:
    """Split off what an open_clip preprocessing does to the shape of a picture.

    Parameters
    ----------
    transform
        The preprocessing of a model: steps that resize and crop, then conversion to RGB and to a
        tensor, then normalisation.

    Returns
    -------
    callable
        Takes an RGB picture and returns its pixels, shape (height, width, 3), uint8. Equal to
        the preprocessing without its normalisation, to the last bit; pictures that are longer
        than `LONG_STRIP` widths may differ from it by 1 of 255 levels.

    Raises
    ------
    TypeError
        If the preprocessing does not have that form.
    """
    steps = getattr(transform, "transforms", [])
    if len(steps) < 3 or not isinstance(steps[-1], Normalize):
        raise TypeError(
            "preprocess must be the evaluation transform of open_clip, which ends with its "
            f"normalisation, got {transform!r}"
        )
    reshape = Compose(steps[:-3])
    if [type(step) for step in steps[:-3]] == [Resize, CenterCrop] and isinstance(
        steps[0].size, int
    ):
        side, filter_ = steps[0].size, pil_modes_mapping[steps[0].interpolation]
    else:
        side = None

    def geometry(image: Image.Image) -> np.ndarray:
        if side is not None and max(image.size) > LONG_STRIP * min(image.size):
            return np.asarray(_resized_middle(image, side, filter_))
        return np.asarray(reshape(image))

    return geometry


def _resized_middle(image: Image.Image, side: int, filter_: int) -> Image.Image:
    """Scale the shorter edge to ``side`` and take the middle square, computing only that.

    The same sizes and offsets as in torchvision's Resize and CenterCrop, so that the filter has
    the same centres and weights.
    """
    tall = image.height > image.width
    short, long = sorted(image.size)
    enlarged = int(side * long / short)
    offset = round((enlarged - side) / 2)
    step = long / enlarged
    begin, end = offset * step, (offset + side) * step
    margin = 3 * max(1.0, step) + 1
    start, stop = max(0, int(begin - margin)), min(long, int(end + margin) + 1)
    part = (0, start, short, stop) if tall else (start, 0, stop, short)
    box = (0, begin - start, short, end - start) if tall else (begin - start, 0, end - start, short)
    return image.crop(part).resize((side, side), filter_, box=box)


def _to_rgb(image: Image.Image) -> Image.Image:
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except (OSError, SyntaxError, ValueError, TypeError, KeyError, struct.error):
        orientation = 1
    image.load()
    if orientation != 1:
        image = ImageOps.exif_transpose(image)
    mode = image.mode
    if mode.startswith("I") or mode == "F":
        return _from_wide_range(image)
    if mode in ("La", "LA", "PA", "RGBa", "RGBA") or "transparency" in image.info:
        image = image.convert("LA" if mode == "La" else "RGBA").convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image).convert("RGB")
    return image if mode == "RGB" else image.convert("RGB")


def _from_wide_range(image: Image.Image) -> Image.Image:
    values = np.asarray(image)
    if image.mode == "F":
        top = 255.0 if (values > 1 + TOLERANCE).any() else 1.0
    else:
        top = 65535.0 if image.mode.startswith("I;16") or (values > 255).any() else 255.0
    return _from_gray(values, top, f"mode {image.mode}")


def _from_gray(values: np.ndarray, top: float, what: str) -> Image.Image:
    return Image.fromarray(_to_bytes(values, top, what)).convert("RGB")


def _to_bytes(values: np.ndarray, top: float, what: str) -> np.ndarray:
    if not np.isfinite(values).all():
        raise ImageError(f"{what}: {int((~np.isfinite(values)).sum())} NaN or infinite values")
    low, high = float(values.min()), float(values.max())
    if low < -TOLERANCE * top or high > top * (1 + TOLERANCE):
        raise ImageError(
            f"{what}: values from {low:.6g} to {high:.6g}, allowed are 0 to {top:g}; scale them "
            "before, and leave the normalisation to the model's preprocessing"
        )
    scaled = np.clip(values.astype(np.float64) * (255 / top), 0, 255)
    return np.rint(scaled).astype(np.uint8)


def _from_array(array: np.ndarray) -> Image.Image:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    # Files and networks may bring the bytes in the other order.
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.size == 0 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        hint = "; channels come last" if array.ndim == 3 and array.shape[0] in (1, 3, 4) else ""
        raise ImageError(
            "an array must have shape (height, width), (height, width, 3) or "
            f"(height, width, 4) and at least one pixel, got {array.shape}{hint}"
        )
    what = f"an array of {array.dtype}"
    if array.dtype == np.bool_:
        array = array.astype(np.uint8) * np.uint8(255)
    elif array.dtype == np.uint16:
        array = _to_bytes(array, 65535.0, what)
    elif np.issubdtype(array.dtype, np.floating):
        array = _to_bytes(array, 1.0, what)
    elif array.dtype != np.uint8:
        raise ImageError(f"{what}: allowed are uint8, uint16, bool, and floats in [0, 1]")
    return _to_rgb(Image.fromarray(np.ascontiguousarray(array)))


def _is_unknown(error: Exception) -> bool:
    return type(error).__name__ == "UnidentifiedImageError"
