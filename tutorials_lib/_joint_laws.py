"""Checks of finite laws, and the relative entropy of two."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import rel_entr

from tutorials_lib._arrays import as_float64

__all__ = ["check_joint", "check_law", "relative_entropy"]

SUM_TOLERANCE = 1e-8


def check_joint(joint: Any) -> np.ndarray:
    """Check that an array is a joint law and return it in float64.

    Parameters
    ----------
    joint
        Array or tensor of shape (a, b), non-negative, with sum 1 to within 1e-8.

    Returns
    -------
    numpy.ndarray
        A copy of shape (a, b), divided by its sum so that it sums to 1 to rounding.

    Raises
    ------
    TypeError
        If the entries are not real numbers.
    ValueError
        If the array does not have two axes, is empty, or holds NaN, infinite or negative entries,
        or if its sum is not 1; the message says what the sum is.
    """
    return check_law("joint", joint, ndim=2)


def check_law(name: str, array: Any, ndim: int | None = None) -> np.ndarray:
    """Check that an array is non-negative and sums to 1; return it in float64."""
    values = as_float64(name, array)
    if ndim is not None and values.ndim != ndim:
        raise ValueError(
            f"{name} must have {ndim} axes (one for x, one for t), got shape {values.shape}"
        )
    if values.size == 0:
        raise ValueError(f"{name} must have at least one entry, got shape {values.shape}")
    negative = int((values < 0).sum())
    if negative:
        raise ValueError(
            f"{name} must be non-negative, got {negative} negative entries "
            f"(smallest {values.min():.3g})"
        )
    total = float(values.sum())
    if not abs(total - 1.0) <= SUM_TOLERANCE:
        raise ValueError(
            f"{name} must sum to 1 to within {SUM_TOLERANCE:g}, got the sum {total:.10g}; "
            "divide by the sum, in float64"
        )
    return values / total


def relative_entropy(p: np.ndarray, q: np.ndarray) -> float:
    """KL(p ‖ q) in nats of arrays that are known to be laws."""
    # Rounding leaves about −1e-16 where the divergence is 0.
    return max(0.0, float(rel_entr(p, q).sum()))
