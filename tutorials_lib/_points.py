"""Checks that latent points are float tensors and lie where their law does.

Those of points return them in float64. Points within float32 rounding of the sphere, the box or the
circles pass and are moved onto it.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from tutorials_lib._validation import check_finite

__all__ = [
    "check_dtype",
    "check_in_box",
    "check_interval",
    "check_on_circles",
    "check_on_sphere",
    "check_points",
    "check_signs",
]

# A point counts as being on the sphere, or in the box, within this: float32 rounding passes.
_TOLERANCE = 1e-5


def check_dtype(dtype: Any) -> None:
    """Refuse a type of tensor that draws are not made in."""
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"dtype must be torch.float32 or torch.float64, got {dtype}")


def check_points(name: str, z: Any, dim: int | None = None) -> torch.Tensor:
    """Return points in float64 after checking type, shape and finiteness."""
    if not isinstance(z, torch.Tensor) or z.dtype not in (torch.float32, torch.float64):
        kind = z.dtype if isinstance(z, torch.Tensor) else type(z).__name__
        raise TypeError(f"{name} must be a torch tensor of float32 or float64, got {kind}")
    if z.ndim == 0 or z.shape[-1] < 1 or (dim is not None and z.shape[-1] != dim):
        wanted = "the latent dimension" if dim is None else str(dim)
        raise ValueError(
            f"{name} must have a last axis of {wanted} coordinates, got shape {tuple(z.shape)}"
        )
    check_finite(name, z)
    return z.double()


def check_on_sphere(name: str, z: Any, dim: int | None = None) -> torch.Tensor:
    """Return points of unit norm, divided by it."""
    z = check_points(name, z, dim)
    if z.shape[-1] < 2:
        raise ValueError(f"{name} must have at least 2 coordinates to lie on a sphere, got 1")
    norm = z.norm(dim=-1, keepdim=True)
    off = int(((norm - 1).abs() > _TOLERANCE).sum())
    if off:
        worst = float(norm.flatten()[(norm.detach() - 1).abs().argmax()])
        raise ValueError(
            f"{name} must have unit norm, got {off} of {norm.numel()} points off the sphere "
            f"(the furthest has norm {worst:.6g}); divide by the norm first"
        )
    return z / norm


def check_in_box(name: str, z: Any, low: float, high: float) -> torch.Tensor:
    """Return points of [low, high]^dim, clipped to it."""
    z = check_points(name, z)
    slack = _TOLERANCE * (high - low)
    off = int(((z < low - slack) | (z > high + slack)).sum())
    if off:
        raise ValueError(
            f"{name} must lie between {low:g} and {high:g} in every coordinate, got {off} of "
            f"{z.numel()} coordinates outside"
        )
    return z.clamp(low, high)


def check_on_circles(name: str, z: Any, dim: int | None = None) -> torch.Tensor:
    """Return the circles of a product of circles as unit vectors of shape (..., circles, 2)."""
    z = check_points(name, z, dim)
    if z.shape[-1] % 2:
        raise ValueError(f"{name} must have two coordinates per circle, got {z.shape[-1]}")
    circles = z.shape[-1] // 2
    pairs = z.unflatten(-1, (circles, 2)) * math.sqrt(circles)
    return check_on_sphere(f"each circle of {name}, times sqrt({circles}),", pairs)


def check_signs(name: str, z: Any, dim: int | None = None) -> torch.Tensor:
    """Return points with coordinates +-1/sqrt(dim), scaled to signs +-1."""
    z = check_points(name, z, dim)
    scaled = z * math.sqrt(z.shape[-1])
    off = int(((scaled.abs() - 1).abs() > _TOLERANCE).sum())
    if off:
        raise ValueError(
            f"{name} must have coordinates +-1/sqrt({z.shape[-1]}), got {off} of {z.numel()} "
            "that are not"
        )
    return scaled


def check_interval(low: Any, high: Any) -> tuple[float, float]:
    """Return two finite floats, the first below the second."""
    for name, value in (("low", low), ("high", high)):
        check_finite(name, value)
    if not float(low) < float(high):
        raise ValueError(f"low must be below high, got low={low!r} and high={high!r}")
    return float(low), float(high)
