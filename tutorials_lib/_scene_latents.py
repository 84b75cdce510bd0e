"""Scenes as latents: what a scene is made of; `tutorials_lib.scenes` is where to import it from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tutorials_lib._validation import check_finite

__all__ = [
    "ABSENT",
    "COLOURS",
    "COLOUR_RGB",
    "DOMAINS",
    "OTHER_COLOUR",
    "RELATION_MARGIN",
    "SHAPES",
    "SIZE_RANGE",
    "SIZE_SPLIT",
    "Scenes",
    "check_scenes",
    "concatenate",
]

COLOURS = ("red", "green", "blue", "yellow", "purple", "cyan", "brown", "grey")
COLOUR_RGB = (
    (0.80, 0.14, 0.14),
    (0.16, 0.58, 0.20),
    (0.16, 0.32, 0.84),
    (0.96, 0.84, 0.16),
    (0.54, 0.18, 0.70),
    (0.20, 0.80, 0.82),
    (0.45, 0.26, 0.12),
    (0.52, 0.52, 0.54),
)
SHAPES = ("cube", "sphere", "cylinder")
DOMAINS = ("photo", "new-light", "line", "cartoon", "clutter")

ABSENT = -1
# An object whose colour has no name in COLOURS; captions leave its colour out.
OTHER_COLOUR = len(COLOURS)

# Sizes of objects, in units of the floor. "Large" begins at the split; nothing is sampled close
# to it, so that the word is never a matter of taste.
SIZE_RANGE = (0.28, 0.47)
SIZE_SPLIT = 0.375
# How much further left, right, in front or behind an object must stand for the word to be true.
RELATION_MARGIN = 0.2

# What scenes are picked by, beside slices.
_POSITIONS = (int, np.integer, list, range, np.ndarray, torch.Tensor)
_INDEX = (torch.uint8, torch.bool, torch.int8, torch.int16, torch.int32, torch.int64)
# Field, entries after the first axis, dtype.
_FIELDS: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
    "shape": ((2,), torch.int64),
    "colour": ((2,), torch.int64),
    "size": ((2,), torch.float32),
    "position": ((2, 2), torch.float32),
    "rgb": ((2, 3), torch.float32),
    "yaw": ((2,), torch.float32),
    "light": ((2,), torch.float32),
    "background": ((), torch.float32),
    "camera": ((3,), torch.float32),
    "noise": ((), torch.float32),
    "noise_seed": ((), torch.int64),
}


@dataclass(frozen=True, eq=False, repr=False)
class Scenes:
    """A batch of N scenes, each of one or two objects on a floor.

    The first four fields are what a caption may speak of; the rest only the image has.

    Attributes
    ----------
    shape
        Index into `SHAPES`, shape (N, 2); -1 in the second column if there is one object only.
    colour
        Index into `COLOURS`, 8 for a colour without a name, -1 for an absent object; shape (N, 2).
    size
        How large the object is, in floor units, shape (N, 2): the radius of a sphere and half of
        the height of a cylinder, whose radius is 0.72 of it; half of the edge of a cube is 0.82
        of it.
    position
        Where the object stands: x to the right and y away from the camera, both from -1 to 1;
        shape (N, 2, 2).
    rgb
        The paint of the object: a shade of its colour, entries in [0, 1], shape (N, 2, 3).
    yaw
        Rotation about the vertical axis in radians, shape (N, 2). It shows on cubes only.
    light
        Azimuth and elevation of the lamp in radians, shape (N, 2).
    background
        Hue of the floor and the wall, in [0, 1), shape (N,).
    camera
        Azimuth and elevation away from the usual ones in radians, and the logarithm of the
        distance over the usual one, shape (N, 3).
    noise
        Standard deviation of the noise of a pixel, whose range is [0, 1], shape (N,).
    noise_seed
        Chooses the noise, and in some domains the disorder around the objects, shape (N,).
    domain
        How the scenes are rendered, one of `DOMAINS`.

    Raises
    ------
    TypeError
        If a field is no tensor of its dtype.
    ValueError
        If shapes do not fit, an index or the domain is unknown, an entry is NaN or infinite, an
        object is half absent, or the first object is absent.
    """

    shape: torch.Tensor
    colour: torch.Tensor
    size: torch.Tensor
    position: torch.Tensor
    rgb: torch.Tensor
    yaw: torch.Tensor
    light: torch.Tensor
    background: torch.Tensor
    camera: torch.Tensor
    noise: torch.Tensor
    noise_seed: torch.Tensor
    domain: str = "photo"

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        count = len(self.shape) if isinstance(self.shape, torch.Tensor) and self.shape.ndim else 0
        for name, (rest, dtype) in _FIELDS.items():
            value = getattr(self, name)
            if not isinstance(value, torch.Tensor) or value.dtype != dtype:
                got = getattr(value, "dtype", type(value).__name__)
                raise TypeError(f"{name} must be a tensor of dtype {dtype}, got {got}")
            if tuple(value.shape) != (count, *rest):
                raise ValueError(
                    f"{name} must have shape {(count, *rest)}, got {tuple(value.shape)}"
                )
            check_finite(name, value)
        for name, most in (("shape", len(SHAPES) - 1), ("colour", OTHER_COLOUR)):
            value = getattr(self, name)
            if bool(((value < ABSENT) | (value > most)).any()):
                raise ValueError(f"{name} must lie between -1 (absent) and {most}")
        if bool(((self.shape == ABSENT) != (self.colour == ABSENT)).any()):
            raise ValueError("an absent object has shape -1 and colour -1, not only one of them")
        if bool((self.shape[:, 0] == ABSENT).any()):
            raise ValueError("the first object of a scene must be present; only the second may not")
        if self.domain not in DOMAINS:
            raise ValueError(f"domain must be one of {', '.join(DOMAINS)}, got {self.domain!r}")

    def __len__(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        pairs = int((self.n_objects == 2).sum())
        return (
            f"{len(self)} scenes ({len(self) - pairs} of one object, {pairs} of two), "
            f"domain {self.domain!r}"
        )

    def __getitem__(self, index: int | slice | torch.Tensor | np.ndarray | list[int]) -> Scenes:
        """Pick scenes by position, slice, indices or a mask; always a batch, also for one.

        Raises
        ------
        TypeError
            If the index is none of these.
        IndexError
            If there is no such scene, or a mask has another length.
        """
        if not isinstance(index, slice):
            index = torch.as_tensor(index) if isinstance(index, _POSITIONS) else None
            allowed = index is not None and index.ndim < 2
            # A list of unsigned bytes may be a mask of old or indices.
            if not allowed or (index.numel() and index.dtype not in _INDEX[index.ndim :]):
                raise TypeError(
                    "scenes are picked by an integer, a slice, a list or tensor of integers, or a "
                    "mask of as many booleans as there are scenes"
                )
            is_mask = index.dtype == torch.bool
            if is_mask and index.shape != (len(self),):
                raise IndexError(
                    f"a mask must have shape ({len(self)},), one entry a scene, got "
                    f"{tuple(index.shape)}"
                )
            index = index.reshape(-1) if is_mask else index.reshape(-1).long()
            far = [] if is_mask else index[(index < -len(self)) | (index >= len(self))].tolist()
            if far:
                raise IndexError(f"there are {len(self)} scenes, got index {far[0]}")
            index = index.to(self.shape.device)
        picked = {name: getattr(self, name)[index] for name in _FIELDS}
        return Scenes(**picked, domain=self.domain)

    @property
    def n_objects(self) -> torch.Tensor:
        """Number of objects of each scene, 1 or 2, shape (N,)."""
        return (self.shape != ABSENT).sum(1)

    def replace(self, **fields: torch.Tensor | str) -> Scenes:
        """Return the scenes with some fields changed, everything else as it is."""
        return dataclasses.replace(self, **fields)


def check_scenes(scenes: Any) -> Scenes:
    """Return scenes as they are; anything else is refused.

    Raises
    ------
    TypeError
        If it is something else.
    """
    if not isinstance(scenes, Scenes):
        raise TypeError(f"scenes must be Scenes, got {type(scenes).__name__}")
    return scenes


def concatenate(*batches: Scenes) -> Scenes:
    """Join batches of scenes of one domain into one batch.

    Raises
    ------
    TypeError
        If a batch is no `Scenes`; a list of them is passed as ``concatenate(*batches)``.
    ValueError
        If there is nothing to join or the domains differ.
    """
    domains = {check_scenes(batch).domain for batch in batches}
    if len(domains) != 1:
        raise ValueError(f"scenes to join must have one domain, got {sorted(domains) or 'none'}")
    joined = {name: torch.cat([getattr(batch, name) for batch in batches]) for name in _FIELDS}
    return Scenes(**joined, domain=domains.pop())
