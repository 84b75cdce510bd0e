"""What the measures of disentanglement share: checks of rows and factors, splits, means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import numpy as np

from tutorials_lib._arrays import as_float64
from tutorials_lib._validation import check_positive

FactorKind = Literal["continuous", "discrete"]

# Whole numbers with more values than this are taken for measurements, not for classes.
MOST_CLASSES = 50


def check_option(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Refuse a value that is not among those allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def check_rows(
    first_name: str, first: Any, second_name: str, second: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Read two arrays as float64 matrices with one row a sample and equally many rows."""
    checked = []
    for name, array in ((first_name, first), (second_name, second)):
        values = as_float64(name, array)
        if values.ndim == 1:
            values = values[:, None]
        if values.ndim != 2 or values.size == 0:
            raise ValueError(
                f"{name} must have one row a sample and at least one column, "
                f"got shape {values.shape}"
            )
        checked.append(values)
    if len(checked[0]) != len(checked[1]):
        raise ValueError(
            f"{first_name} and {second_name} must have as many rows, "
            f"got {len(checked[0])} and {len(checked[1])}"
        )
    return checked[0], checked[1]


def resolve_kinds(
    latents: np.ndarray, factor_kinds: FactorKind | Sequence[FactorKind] | None
) -> tuple[FactorKind, ...]:
    """Say of each column whether it is continuous or discrete.

    Unless the caller says so, a column is discrete if its entries are whole numbers with at most
    `MOST_CLASSES` values and at least two rows a value on average.

    Raises
    ------
    ValueError
        If the kinds given are unknown or too few, or if no two rows of a column said to be
        discrete share a value.
    """
    n, n_factors = latents.shape
    n_values = [len(np.unique(column)) for column in latents.T]
    if factor_kinds is None:
        whole = (latents == np.round(latents)).all(axis=0)
        return tuple(
            "discrete" if w and 2 * v <= n and v <= MOST_CLASSES else "continuous"
            for w, v in zip(whole, n_values, strict=True)
        )
    given = [factor_kinds] * n_factors if isinstance(factor_kinds, str) else list(factor_kinds)
    for kind in given:
        check_option("factor_kinds", kind, ("continuous", "discrete"))
    if len(given) != n_factors:
        raise ValueError(
            f"factor_kinds must name one kind for each of {n_factors} factors, got {len(given)}"
        )
    for i, kind in enumerate(given):
        if kind == "discrete" and n > 1 and n_values[i] == n:
            raise ValueError(
                f"factor {i} is said to be discrete but each of its {n} rows has a value of its "
                "own; call it continuous"
            )
    return cast("tuple[FactorKind, ...]", tuple(given))


def rescale(values: np.ndarray) -> np.ndarray:
    """Bring each column to the order of one by a power of two, which rounds nothing."""
    exponents = np.frexp(np.abs(values).max(axis=0, keepdims=True))[1]
    return np.ldexp(values, -exponents)


def is_constant(values: np.ndarray) -> np.ndarray:
    """Say of each column whether it varies no more than rounding does."""
    return np.ptp(values, axis=0) <= 1e-12 * np.abs(values).max(axis=0)


def split(n: int, test_fraction: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw which rows are fitted on and which are held out."""
    test_fraction = check_positive("test_fraction", test_fraction)
    if test_fraction >= 1:
        raise ValueError(f"test_fraction must lie between 0 and 1, got {test_fraction}")
    n_test = round(n * test_fraction)
    if min(n_test, n - n_test) < 2:
        raise ValueError(
            f"{n} rows with test_fraction={test_fraction:g} leave {n - n_test} rows to fit and "
            f"{n_test} to measure; both need at least 2"
        )
    order = rng.permutation(n)
    return order[n_test:], order[:n_test]


def constant_on_either(
    latents: np.ndarray, train: np.ndarray, test: np.ndarray
) -> tuple[dict[int, str], np.ndarray]:
    """Name the factors that do not vary on one part of the rows, and list the others."""
    excluded = {
        int(i): f"constant on the {len(rows)} rows {use}"
        for rows, use in ((test, "held out"), (train, "fitted on"))
        for i in np.flatnonzero(is_constant(latents[rows]))
    }
    kept = np.array([i for i in range(latents.shape[1]) if i not in excluded], dtype=int)
    return dict(sorted(excluded.items())), kept


def standardise(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Learn mean and standard deviation of each column; constant columns become zeros."""
    mean, scale = values.mean(axis=0), values.std(axis=0)
    scale[is_constant(values)] = np.inf
    return lambda new: (new - mean) / scale


def mean_of_kept(per_factor: np.ndarray) -> float:
    """Average the entries that are not NaN; NaN if there is none."""
    kept = per_factor[~np.isnan(per_factor)]
    return float(kept.mean()) if kept.size else float("nan")


def describe_excluded(excluded: dict[int, str], total: int, what: str = "factors") -> str:
    """Word how many factors were left out, for the end of a result's line."""
    return f", {len(excluded)} of {total} {what} excluded" if excluded else ""


def describe_scores(kinds: Sequence[FactorKind], excluded: dict[int, str], of_classes: str) -> str:
    """Word which score was taken of how many factors, such as ``R² of 2, accuracy of 1``."""
    kept = [kind for i, kind in enumerate(kinds) if i not in excluded]
    counts = (("R²", kept.count("continuous")), (of_classes, kept.count("discrete")))
    parts = [f"{score} of {count}" for score, count in counts if count]
    return f"{' and '.join(parts) or 'no'} factors"
