"""Checks of arguments that every module of the library shares."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
import torch

__all__ = [
    "as_generator",
    "check_finite",
    "check_integer",
    "check_positive",
    "resolve_device",
]


def check_finite(name: str, array: Any) -> None:
    """Refuse NaN and infinite entries.

    Parameters
    ----------
    name
        What the caller calls the array; used in the message.
    array
        A tensor, an array or anything ``numpy.asarray`` turns into numbers, of any shape.

    Raises
    ------
    TypeError
        If the entries are not numbers.
    ValueError
        If an entry is NaN or infinite; the message counts them.
    """
    if isinstance(array, torch.Tensor):
        bad = int((~torch.isfinite(array.detach())).sum())
        total = array.numel()
    else:
        values = np.asarray(array)
        if not (np.issubdtype(values.dtype, np.number) or values.dtype == np.bool_):
            raise TypeError(f"{name} must hold numbers, got entries of dtype {values.dtype}")
        bad = int((~np.isfinite(values)).sum())
        total = values.size
    if bad:
        raise ValueError(
            f"{name} must be finite, got {bad} NaN or infinite entries out of {total}; "
            "remove them or find where they arise"
        )


def check_positive(name: str, value: Any, allow_zero: bool = False) -> float:
    """Return ``value`` as a float if it is a finite positive number.

    Parameters
    ----------
    name
        What the caller calls the value; used in the message.
    value
        A real number: a Python or NumPy scalar, or a tensor with one entry.
    allow_zero
        Whether zero is allowed.

    Returns
    -------
    float
        The value.

    Raises
    ------
    TypeError
        If ``value`` is not a real number (booleans are refused).
    ValueError
        If ``value`` is NaN, infinite, negative, or zero when zero is not allowed.
    """
    if isinstance(value, torch.Tensor | np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {value!r} ({type(value).__name__})")
    number = float(value)
    if not math.isfinite(number) or number < 0 or (number == 0 and not allow_zero):
        bound = ">= 0" if allow_zero else "> 0"
        raise ValueError(f"{name} must be a finite number {bound}, got {value!r}")
    return number


def check_integer(name: str, value: Any, minimum: int) -> int:
    """Return ``value`` as an int if it is an integer no smaller than ``minimum``.

    Parameters
    ----------
    name
        What the caller calls the value; used in the message.
    value
        A Python or NumPy integer (booleans and floats are refused).
    minimum
        The smallest value allowed.

    Returns
    -------
    int
        The value.

    Raises
    ------
    TypeError
        If ``value`` is not an integer.
    ValueError
        If ``value`` is below ``minimum``.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r} ({type(value).__name__})")
    number = int(value)
    if number < minimum:
        raise ValueError(f"{name} must be an integer >= {minimum}, got {number}")
    return number


def as_generator(
    seed: int | torch.Generator, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Turn a seed into a ``torch.Generator``; never touches the global state.

    Parameters
    ----------
    seed
        An integer from 0 to 2**63 - 1, or a generator, which is returned as it is so that
        successive draws from it differ.
    device
        Where a generator made from an integer lives.

    Returns
    -------
    torch.Generator
        The generator.

    Raises
    ------
    TypeError
        If ``seed`` is neither (``None``, booleans and floats are refused).
    ValueError
        If the integer is out of range.
    """
    if isinstance(seed, torch.Generator):
        return seed
    if isinstance(seed, bool | np.bool_) or not isinstance(seed, numbers.Integral):
        raise TypeError(
            f"seed must be an integer or a torch.Generator, got {seed!r} "
            f"({type(seed).__name__}); randomness is always explicit, for example seed=0"
        )
    number = int(seed)
    if not 0 <= number < 2**63:
        raise ValueError(f"seed must lie between 0 and 2**63 - 1, got {number}")
    return torch.Generator(device=device).manual_seed(number)


def resolve_device(device: str | torch.device | None) -> torch.device:
    """Turn a device name into a device that this machine has.

    Parameters
    ----------
    device
        A name such as ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"`` in either case, a
        device, or ``None`` for the best one there is: CUDA, else MPS, else the CPU.

    Returns
    -------
    torch.device
        The device.

    Raises
    ------
    TypeError
        If ``device`` is neither a string, nor a device, nor ``None``.
    ValueError
        If the name is not one of a device kind known here.
    RuntimeError
        If the device is not available; the message names what is.
    """
    available = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        available.append("mps")
    available.append("cpu")
    if device is None:
        return torch.device(available[0].split(":")[0])
    if not isinstance(device, str | torch.device):
        raise TypeError(
            f"device must be a string, a torch.device or None, got {device!r} "
            f"({type(device).__name__})"
        )
    try:
        resolved = torch.device(device.strip().lower() if isinstance(device, str) else device)
    except RuntimeError as error:
        raise ValueError(
            f"device must be 'cpu', 'cuda', 'cuda:<index>' or 'mps', got {device!r}"
        ) from error
    if resolved.type not in ("cpu", "cuda", "mps"):
        raise ValueError(f"device must be 'cpu', 'cuda', 'cuda:<index>' or 'mps', got {device!r}")
    kinds = {name.split(":")[0] for name in available}
    # Only CUDA devices are numbered: "cpu:0" and "mps:0" are the one device of their kind.
    by_kind = resolved.index is None or resolved.type != "cuda"
    if not (resolved.type in kinds if by_kind else str(resolved) in available):
        raise RuntimeError(
            f"device {str(resolved)!r} was asked for but is not available on this machine; "
            f"available: {', '.join(available)}"
        )
    return resolved
