"""Conversions that the NumPy modules of the library share."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import torch

from tutorials_lib._validation import check_finite

__all__ = ["as_float64", "as_numpy_generator"]


def as_float64(name: str, array: Any, *, finite: bool = True) -> np.ndarray:
    """Copy numbers into a NumPy array of float64.

    Parameters
    ----------
    name
        What the caller calls the array; used in messages.
    array
        A tensor on any device, with or without a gradient, or anything NumPy reads as real
        numbers, of any shape.
    finite
        Whether NaN and infinite entries are refused.

    Returns
    -------
    numpy.ndarray
        A new array of the same shape.

    Raises
    ------
    TypeError
        If the entries are not real numbers.
    ValueError
        If an entry is NaN or infinite and ``finite`` is true.
    """
    if isinstance(array, torch.Tensor):
        # First to the CPU: not every device knows float64.
        array = array.detach().cpu()
        array = (array if array.is_complex() else array.to(torch.float64)).numpy()
    values = np.asarray(array)
    if not (np.issubdtype(values.dtype, np.number) or values.dtype == np.bool_) or np.iscomplexobj(
        values
    ):
        raise TypeError(f"{name} must hold real numbers, got entries of dtype {values.dtype}")
    if finite:
        check_finite(name, values)
    return values.astype(np.float64)


def as_numpy_generator(seed: int | np.random.Generator) -> np.random.Generator:
    """Turn a seed into a ``numpy.random.Generator``; never touches the global state.

    Parameters
    ----------
    seed
        A non-negative integer, or a generator, which is returned as it is so that successive
        draws from it differ.

    Returns
    -------
    numpy.random.Generator
        The generator.

    Raises
    ------
    TypeError
        If ``seed`` is neither (``None``, booleans and floats are refused).
    ValueError
        If the integer is negative.
    """
    if isinstance(seed, np.random.Generator):
        return seed
    if isinstance(seed, bool | np.bool_) or not isinstance(seed, numbers.Integral):
        raise TypeError(
            f"seed must be an integer or a numpy.random.Generator, got {seed!r} "
            f"({type(seed).__name__}); randomness is always explicit, for example seed=0"
        )
    if seed < 0:
        raise ValueError(f"seed must be >= 0, got {seed}")
    return np.random.default_rng(int(seed))
