"""Whether there is anything to find: negentropy and its null level, stability of the sources."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.utils import check_random_state

from tutorials_lib._arrays import as_float64
from tutorials_lib._ica_estimator import FastICA
from tutorials_lib._ica_whitening import whiten
from tutorials_lib._measuring import is_constant, rescale
from tutorials_lib._progress import progress_bar
from tutorials_lib._validation import check_integer, check_positive

# Hyvärinen's (1998) weights: the two terms are the entropy lost by an odd and an even departure.
ODD_WEIGHT = 36 / (8 * math.sqrt(3) - 9)
EVEN_WEIGHT = 24 / (16 * math.sqrt(3) - 27)
NORMAL_MEAN = math.sqrt(0.5)  # E exp(−y²/2) for a standard normal y


@dataclass(frozen=True, eq=False, repr=False)
class StabilityResult:
    """Whether independent halves of the data have the same sources.

    Attributes
    ----------
    score
        Mean of ``per_component``: near 1 if all sources are found again, near 0 if there is
        nothing to find.
    per_component
        Shape (n_components,), in the order of ``ica.components_``: (r − c) / (1 − c) with r the
        mean absolute correlation of the matched sources of two halves, and c the
        ``chance_level``.
    matched_correlation
        The r themselves, shape (n_components,).
    chance_level
        Mean r of two random rotations of as many dimensions.
    negentropy
        Of every component in nats, on rows it was not fitted on; mean over all halves, shape
        (n_components,).
    null_level
        What the negentropy of one of ``n_components`` normal variables exceeds with probability
        at most 0.05 altogether, on as many rows as a half has.
    n_converged, n_fits
        How many of the fits of halves converged.
    n_samples
        Rows of the data; a half has half as many.
    ica
        The estimator fitted on all rows.
    """

    score: float
    per_component: np.ndarray
    matched_correlation: np.ndarray
    chance_level: float
    negentropy: np.ndarray
    null_level: float
    n_converged: int
    n_fits: int
    n_samples: int
    ica: FastICA

    @property
    def n_beyond_null(self) -> int:
        """Number of components whose held-out negentropy exceeds the null level."""
        return int((self.negentropy > self.null_level).sum())

    def __repr__(self) -> str:
        k = len(self.per_component)
        return (
            f"stability {self.score:.3f} ({k} components, {self.n_fits // 2} pairs of halves of "
            f"{self.n_samples} rows; matched correlation {self.matched_correlation.mean():.3f}, "
            f"chance {self.chance_level:.3f}; {self.n_beyond_null} of {k} beyond the null level "
            f"of negentropy; {self.n_converged} of {self.n_fits} fits converged)"
        )


def negentropy(sources: Any) -> np.ndarray:
    """Estimate how far the marginal laws of sources are from normal, in nats.

    With y a source of mean 0 and variance 1,

        J ≈ 36/(8√3 − 9) · (E[y exp(−y²/2)])² + 24/(16√3 − 27) · (E[exp(−y²/2)] − √½)²,

    the entropy of a normal variable minus that of the law of maximal entropy with these two
    moments (to second order). J = 0 for a normal variable. If n rows are normal, and the moments
    are those of the standardised rows, then n·J tends to an exponential variable of mean 1 (each
    term to ½χ²₁), so J exceeds log(1/α)/n with probability α: see `negentropy_null_level`.

    Parameters
    ----------
    sources
        Shape (n, k) or (n,); scale and mean do not matter.

    Returns
    -------
    numpy.ndarray
        Shape (k,), at least 0; 0 for a constant column.

    Raises
    ------
    TypeError, ValueError
        If the entries are not finite real numbers or there are no rows.

    References
    ----------
    Hyvärinen (1998), "New approximations of differential entropy for independent component
    analysis and projection pursuit", NIPS 10. The null law is derived from the delta method.
    """
    y = as_float64("sources", sources)
    y = y[:, None] if y.ndim == 1 else y
    if y.ndim != 2 or len(y) == 0:
        raise ValueError(f"sources must have one row a sample, got shape {y.shape}")
    constant = is_constant(y)
    # Scaled first: squares of very small or large numbers leave the range of floats.
    y = rescale(y)
    y = rescale(y - y.mean(axis=0))
    y /= np.where(constant, 1.0, y.std(axis=0))
    bell = np.exp(-np.square(y) / 2)
    odd, even = (y * bell).mean(axis=0), bell.mean(axis=0) - NORMAL_MEAN
    return np.where(constant, 0.0, ODD_WEIGHT * odd**2 + EVEN_WEIGHT * even**2)


def negentropy_null_level(n: int, n_components: int = 1, *, alpha: float = 0.05) -> float:
    """Return what the estimated negentropy of normal variables seldom exceeds.

    Parameters
    ----------
    n
        Number of rows.
    n_components
        Number of variables that are judged together.
    alpha
        Probability that any of them exceeds the level (Bonferroni's bound), between 0 and 1.

    Returns
    -------
    float
        log(n_components / alpha) / n, in nats; exact as n grows.

    Raises
    ------
    TypeError, ValueError
        If a number is out of its range.
    """
    n = check_integer("n", n, 1)
    n_components = check_integer("n_components", n_components, 1)
    if check_positive("alpha", alpha) >= 1:
        raise ValueError(f"alpha is a probability, between 0 and 1, got {alpha!r}")
    return math.log(n_components / alpha) / n


def stability(
    X: Any,
    *,
    n_components: int | None = None,
    seeds: int = 5,
    random_state: int | np.random.RandomState | None = 0,
    progress: bool = True,
    **options: Any,
) -> StabilityResult:
    """Fit independent halves of the data from different seeds, and compare the sources.

    Different seeds alone prove little: on a finite sample of a normal law the contrast has
    optima, which belong to the sample, and every start may lead to them. Here two fits that are
    compared share no row. Their sources are matched on all rows, by the assignment that has the
    largest sum of absolute correlations. What two random rotations would reach is the chance
    level, which the score subtracts. The components are named by those of a fit on all rows.

    Parameters
    ----------
    X
        Shape (n, d): an array or a tensor.
    n_components
        As in `FastICA`.
    seeds
        Number of random splits into halves; each gives two fits.
    random_state
        As in `FastICA`.
    progress
        Whether a bar is shown when this takes longer than five seconds.
    **options
        Passed to `FastICA`, for example ``fun`` or ``max_iter``.

    Returns
    -------
    StabilityResult
        Score, correlations and held-out negentropy per component.

    Raises
    ------
    ValueError
        If there are fewer than 4 rows, or the halves have fewer dimensions than ``n_components``.
    """
    seeds = check_integer("seeds", seeds, 1)
    rng = check_random_state(random_state)
    n = len(X)
    if n < 4:
        raise ValueError(f"X must have at least 4 rows to be halved, got {n}")

    def fit(rows: Any, k: int | None) -> FastICA:
        ica = FastICA(k, random_state=rng.randint(2**31 - 1), progress=False, **options)
        ica._fit(rows)  # without a warning: the result says how many converged
        return ica

    with progress_bar(show=progress, total=2 * seeds + 1, desc="stability") as bar:
        whole = fit(X, n_components)
        k = len(whole.components_)
        if n // 2 <= k:
            raise ValueError(
                f"halves of {n} rows vary in at most {n // 2 - 1} dimensions, which is fewer than "
                f"n_components={k}; ask for fewer or bring more rows"
            )
        bar.update()
        correlations, entropies, n_converged = np.zeros((seeds, k)), np.zeros((seeds, k)), 0
        full = whiten(whole._rows(whole._check_data(X, reset=False)), torch.float64)
        for seed in range(seeds):
            order = rng.permutation(n)
            halves = [np.sort(order[: n // 2]), np.sort(order[n // 2 :])]
            fits = []
            for half in halves:
                fits.append(fit(_rows(X, half), k))
                bar.update()
            n_converged += sum(ica.converged_ for ica in fits)
            first, second = (ica.components_ for ica in fits)
            named, _ = _match(whole.components_, first, full.inverse)
            other, agreement = _match(first, second, full.inverse)
            correlations[seed] = agreement[named]
            held_out = [
                negentropy(ica.transform(_rows(X, half)))
                for ica, half in zip(fits, reversed(halves), strict=True)
            ]
            entropies[seed] = (held_out[0][named] + held_out[1][other[named]]) / 2
    matched = correlations.mean(axis=0)
    chance = rotation_chance_level(k, rng)
    # One component has nothing to be confused with: chance is 1 and any agreement is certain.
    per_component = (matched - chance) / (1 - chance) if k > 1 else np.ones(1)
    return StabilityResult(
        score=float(per_component.mean()),
        per_component=per_component,
        matched_correlation=matched,
        chance_level=chance,
        negentropy=entropies.mean(axis=0),
        null_level=negentropy_null_level(n // 2, k),
        n_converged=n_converged,
        n_fits=2 * seeds,
        n_samples=n,
        ica=whole,
    )


def rotation_chance_level(k: int, rng: np.random.RandomState) -> float:
    """Return the mean matched absolute entry of random rotations of k dimensions."""
    levels = []
    for _ in range(min(500, max(10, 20_000 // k**2))):  # the level is known to about 0.01
        rotation = np.abs(np.linalg.qr(rng.normal(size=(k, k)))[0])
        levels.append(rotation[linear_sum_assignment(rotation, maximize=True)].mean())
    return float(np.mean(levels))


def _match(
    first: np.ndarray, second: np.ndarray, factor: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    # For each row of `first`, its partner in `second` and their absolute correlation, where the
    # data have the covariance factor @ factor.T, which itself could leave the range of floats.
    units = [
        w / np.linalg.norm(w, axis=1, keepdims=True) for w in (first @ factor, second @ factor)
    ]
    table = np.abs(units[0] @ units[1].T)
    _, partners = linear_sum_assignment(table, maximize=True)
    return partners, table[np.arange(len(table)), partners]


def _rows(X: Any, index: np.ndarray) -> Any:
    if isinstance(X, torch.Tensor):
        return X[torch.from_numpy(index).to(X.device)]
    return X.iloc[index] if hasattr(X, "iloc") else np.asarray(X)[index]
