"""MIG and SAP: how far the best code of a factor is ahead of the second best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import entr
from scipy.stats import rankdata

from tutorials_lib._arrays import as_numpy_generator
from tutorials_lib._measuring import (
    FactorKind,
    check_option,
    check_rows,
    constant_on_either,
    describe_excluded,
    describe_scores,
    is_constant,
    mean_of_kept,
    rescale,
    resolve_kinds,
    split,
    standardise,
)
from tutorials_lib._progress import progress_bar
from tutorials_lib._validation import check_integer

__all__ = ["MIGResult", "SAPResult", "mig", "sap"]


@dataclass(frozen=True, eq=False, repr=False)
class MIGResult:
    """Mutual information gap.

    Attributes
    ----------
    score
        Mean of ``per_factor`` over the factors that are not excluded; NaN if none is left.
    chance_level
        Mean score after the rows of the latents have been shuffled.
    per_factor
        Gap of each factor over its entropy, between 0 and 1, shape (n_factors,); NaN if excluded.
    best_code
        Index of the code with the most information on each factor, shape (n_factors,); −1 if
        excluded.
    mutual_information
        Plug-in estimates in nats, shape (n_codes, n_factors); 0 for constant codes and factors.
    chance_information
        The same after shuffling, averaged over the shuffles: the bias of the estimates.
    entropies
        Of the factors as they were binned, in nats, shape (n_factors,).
    excluded
        Why each excluded factor has no gap, by its index.
    factor_kinds
        ``"continuous"`` (binned) or ``"discrete"`` (as it is), one for each factor.
    bins, binning
        How many bins there were, and of which sort.
    n_samples
        Number of rows.
    """

    score: float
    chance_level: float
    per_factor: np.ndarray
    best_code: np.ndarray
    mutual_information: np.ndarray
    chance_information: np.ndarray
    entropies: np.ndarray
    excluded: dict[int, str]
    factor_kinds: tuple[FactorKind, ...]
    bins: int
    binning: str
    n_samples: int

    def __repr__(self) -> str:
        excluded = describe_excluded(self.excluded, len(self.per_factor))
        return (
            f"MIG {self.score:.3f} (plug-in, {self.bins} {self.binning} bins, "
            f"n={self.n_samples}, chance {self.chance_level:.2g}{excluded})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class SAPResult:
    """Separated attribute predictability.

    Attributes
    ----------
    score
        Mean of ``per_factor`` over the factors that are not excluded; NaN if none is left.
    per_factor
        Gap of each factor, shape (n_factors,); NaN if excluded. At most 1 − ``baseline``.
    best_code
        Index of the code that predicts each factor best, shape (n_factors,); −1 if excluded.
    scores
        Score of each single code for each factor, shape (n_codes, n_factors), on rows held out:
        R² for continuous factors, balanced accuracy for discrete ones, or ``baseline`` where that
        is greater. NaN in the columns of excluded factors.
    baseline
        What a constant code scores, shape (n_factors,): 0 for continuous factors, one over the
        number of classes held out for discrete ones; NaN if excluded.
    excluded
        Why each excluded factor has no gap, by its index.
    factor_kinds
        ``"continuous"`` or ``"discrete"``, one for each factor.
    n_train, n_test
        Numbers of rows that the predictions were fitted and measured on.
    """

    score: float
    per_factor: np.ndarray
    best_code: np.ndarray
    scores: np.ndarray
    baseline: np.ndarray
    excluded: dict[int, str]
    factor_kinds: tuple[FactorKind, ...]
    n_train: int
    n_test: int

    def __repr__(self) -> str:
        scores = describe_scores(self.factor_kinds, self.excluded, "balanced accuracy")
        excluded = describe_excluded(self.excluded, len(self.per_factor))
        return (
            f"SAP {self.score:.3f} ({scores}, fitted on {self.n_train} rows, "
            f"measured on {self.n_test} others{excluded})"
        )


def mig(
    latents: Any,
    representation: Any,
    *,
    bins: int = 20,
    binning: Literal["equal-frequency", "equal-width"] = "equal-frequency",
    factor_kinds: FactorKind | Sequence[FactorKind] | None = None,
    chance_repeats: int = 20,
    seed: int | np.random.Generator = 0,
    progress: bool = True,
) -> MIGResult:
    """Compute the mutual information gap of a representation.

    For factor k, the gap is I(c₁; z_k) − I(c₂; z_k) over H(z_k), where c₁ and c₂ are the two codes
    that know most about it; with one single code, I(c₁; z_k) over H(z_k). It is 1 if one code
    determines the factor and the others know nothing of it, and 0 if two codes know as much.

    Codes and continuous factors are binned; discrete factors are taken as they are. A column with
    no more than ``bins`` values keeps them, each a bin of its own. Otherwise ``"equal-frequency"``
    cuts the ranks of the rows, ties sharing their mean rank, into parts of equal length, so that
    monotone maps of a code change nothing; ``"equal-width"`` cuts the range from the smallest to
    the largest entry. A row on the edge of two bins goes into the one nearer the middle, and on
    an edge in the middle itself into a bin of its own.

    Plug-in estimates from n rows are too large by about (a − 1)(b − 1)/(2n) nats for tables of
    a × b cells. Much of this leaves with the difference, but not all: compare the score with the
    chance level, and ``mutual_information`` with ``chance_information``.

    Parameters
    ----------
    latents
        True factors, shape (n, n_factors).
    representation
        Codes, shape (n, n_codes).
    bins
        Number of bins, at least 2.
    binning
        See above.
    factor_kinds
        ``"continuous"`` or ``"discrete"``, for all factors or one for each. If ``None``, a factor
        is discrete if its entries are whole numbers with at most 50 values and at least two rows
        a value on average.
    chance_repeats
        How often the rows are shuffled for the chance level.
    seed
        Integer or NumPy generator, for the shuffles.
    progress
        Whether to show a progress bar if the shuffles take over five seconds.

    Returns
    -------
    MIGResult
        The score and the chance level beside it. A constant factor has NaN and a reason and is
        left out of the mean.

    Raises
    ------
    TypeError, ValueError
        If the numbers of rows differ, if there are NaN or infinite entries, if an option is out
        of range, or if there are so few rows that no two share a bin.

    References
    ----------
    Chen et al. (2018), "Isolating sources of disentanglement in variational autoencoders",
    arXiv:1802.04942, section 4.1. There the codes are random given the input; here they are what
    the encoder returns.
    """
    check_option("binning", binning, ("equal-frequency", "equal-width"))
    bins = check_integer("bins", bins, 2)
    chance_repeats = check_integer("chance_repeats", chance_repeats, 1)
    rng = as_numpy_generator(seed)
    z, codes = check_rows("latents", latents, "representation", representation)
    kinds = resolve_kinds(z, factor_kinds)
    z, codes = rescale(z), rescale(codes)

    code_labels = _discretise(
        "representation", codes, ["continuous"] * codes.shape[1], bins, binning
    )
    factor_labels = _discretise("latents", z, kinds, bins, binning)
    entropies = np.array([_entropy(np.bincount(labels)) for labels in factor_labels])
    excluded = {int(k): "constant factor" for k in np.flatnonzero(is_constant(z))}
    kept = np.array([k for k in range(z.shape[1]) if k not in excluded], dtype=int)

    information = _information(code_labels, factor_labels)
    by_chance = []
    for _ in progress_bar(range(chance_repeats), show=progress, desc="MIG by chance"):
        order = rng.permutation(len(z))
        by_chance.append(_information(code_labels, [labels[order] for labels in factor_labels]))

    def gaps(table: np.ndarray) -> np.ndarray:
        return _gaps(table[:, kept], np.zeros(len(kept))) / entropies[kept]

    per_factor = np.full(z.shape[1], np.nan)
    per_factor[kept] = gaps(information)
    best_code = np.full(z.shape[1], -1)
    best_code[kept] = information[:, kept].argmax(axis=0)
    return MIGResult(
        score=mean_of_kept(per_factor),
        chance_level=mean_of_kept(np.array([gaps(table) for table in by_chance])),
        per_factor=per_factor,
        best_code=best_code,
        mutual_information=information,
        chance_information=np.mean(by_chance, axis=0),
        entropies=entropies,
        excluded=excluded,
        factor_kinds=kinds,
        bins=bins,
        binning=binning,
        n_samples=len(z),
    )


def sap(
    latents: Any,
    representation: Any,
    *,
    factor_kinds: FactorKind | Sequence[FactorKind] | None = None,
    test_fraction: float = 0.5,
    seed: int | np.random.Generator = 0,
) -> SAPResult:
    """Compute the separated attribute predictability of a representation.

    Each factor is predicted from each single code: a continuous one by a line, scored by R²; a
    discrete one by thresholds, scored by accuracy averaged over the classes. The thresholds cut
    the code into one interval a class, in the order of the class means, where the balanced
    accuracy on the rows fitted on is greatest. The gap of a factor is the score of the best code
    less that of the second best; with one single code, less that of a constant (``baseline``).

    Lines and thresholds are fitted on a random part of the rows and scored on the rest. A code
    that scores less than a constant, as fits to noise do, counts as a constant: 0 for R² and 1/k
    for the accuracy on k classes. So the gap is at most 1 for a continuous factor and at most
    1 − 1/k for a discrete one, which is what a perfect code beside codes of noise is near.

    Parameters
    ----------
    latents
        True factors, shape (n, n_factors).
    representation
        Codes, shape (n, n_codes).
    factor_kinds
        As in `mig`.
    test_fraction
        Share of the rows that is held out, strictly between 0 and 1.
    seed
        Integer or NumPy generator; decides which rows are held out.

    Returns
    -------
    SAPResult
        A factor that is constant on the rows seen or on those held out has NaN and a reason, and
        is left out of the mean.

    Raises
    ------
    TypeError, ValueError
        If the numbers of rows differ, if there are NaN or infinite entries, or if either part
        would have fewer than two rows.

    References
    ----------
    Kumar, Sattigeri and Balakrishnan (2018), "Variational inference of disentangled latent
    concepts from unlabeled observations", arXiv:1711.00848, section 3. There R² is the squared
    correlation on the rows fitted on.
    """
    z, codes = check_rows("latents", latents, "representation", representation)
    kinds = resolve_kinds(z, factor_kinds)
    z, codes = rescale(z), rescale(codes)
    train, test = split(len(z), test_fraction, as_numpy_generator(seed))
    excluded, kept = constant_on_either(z, train, test)
    scale = standardise(codes[train])
    fit_codes, new_codes = scale(codes[train]), scale(codes[test])

    scores = np.full((codes.shape[1], z.shape[1]), np.nan)
    baseline = np.full(z.shape[1], np.nan)
    for k in kept:
        fit_z, new_z = z[train, k], z[test, k]
        if kinds[k] == "continuous":
            baseline[k] = 0.0
            found = _r2_of_lines(fit_codes, fit_z, new_codes, new_z)
        else:
            baseline[k] = 1 / len(np.unique(new_z))
            found = [
                _accuracy_of_thresholds(fit, fit_z, new, new_z)
                for fit, new in zip(fit_codes.T, new_codes.T, strict=True)
            ]
        scores[:, k] = np.maximum(found, baseline[k])
    per_factor = np.full(z.shape[1], np.nan)
    per_factor[kept] = _gaps(scores[:, kept], baseline[kept])
    best_code = np.full(z.shape[1], -1)
    best_code[kept] = scores[:, kept].argmax(axis=0)
    return SAPResult(
        score=mean_of_kept(per_factor),
        per_factor=per_factor,
        best_code=best_code,
        scores=scores,
        baseline=baseline,
        excluded=excluded,
        factor_kinds=kinds,
        n_train=len(train),
        n_test=len(test),
    )


def _gaps(table: np.ndarray, of_nothing: np.ndarray) -> np.ndarray:
    # Codes in the rows. One single code is compared with what a constant code would have.
    if len(table) == 1:
        table = np.vstack([table, of_nothing])
    second, first = np.sort(table, axis=0)[-2:]
    return first - second


def _discretise(
    name: str, values: np.ndarray, kinds: Sequence[FactorKind], bins: int, binning: str
) -> list[np.ndarray]:
    """Label the rows of each column by 0, 1, …, one label a bin that is not empty."""
    n = len(values)
    columns = []
    for j, (column, kind) in enumerate(zip(values.T, kinds, strict=True)):
        as_it_is = np.unique(column, return_inverse=True)[1]
        labels = as_it_is
        if is_constant(column[:, None])[0]:
            labels = np.zeros(n, dtype=int)
        elif kind == "continuous" and as_it_is.max() >= bins:
            # Places run from −bins/2 to bins/2 and change sign with the code, so that the cuts
            # below, symmetric about 0, put the same rows together.
            if binning == "equal-frequency":
                places = bins * (rankdata(column) - (n + 1) / 2) / n
            else:
                low, high = column.min(), column.max()
                places = bins * (column - (low + high) / 2) / (high - low)
            # Rounded so that a row on an edge stays there whatever the units of the column.
            places = np.round(places, 9)
            middle = 0.5 if bins % 2 else 0.0
            cells = np.sign(places) * np.maximum(np.ceil(np.abs(places) - middle), 0)
            labels = np.unique(cells, return_inverse=True)[1]
        if n > 1 and labels.max() == n - 1:
            raise ValueError(
                f"no two of the {n} rows share one of {bins} bins in column {j} of {name}, so "
                "that it would seem to know everything; take fewer bins or more rows"
            )
        columns.append(labels)
    return columns


def _entropy(counts: np.ndarray) -> float:
    return float(entr(counts / counts.sum()).sum())


def _information(codes: list[np.ndarray], factors: list[np.ndarray]) -> np.ndarray:
    """Plug-in mutual information in nats of all codes (rows) and factors (columns)."""
    table = np.zeros((len(codes), len(factors)))
    of_codes = [_entropy(np.bincount(labels)) for labels in codes]
    for k, factor in enumerate(factors):
        n_classes = int(factor.max()) + 1
        of_factor = _entropy(np.bincount(factor))
        for j, code in enumerate(codes):
            of_both = _entropy(np.bincount(code * n_classes + factor))
            table[j, k] = of_codes[j] + of_factor - of_both
    # Rounding can leave −1e-16.
    return np.maximum(table, 0.0)


def _r2_of_lines(
    fit_codes: np.ndarray, fit_z: np.ndarray, new_codes: np.ndarray, new_z: np.ndarray
) -> np.ndarray:
    # The codes are standardised on the rows fitted on: the slope is the mean product.
    mean = fit_z.mean()
    slopes = fit_codes.T @ (fit_z - mean) / len(fit_z)
    residuals = (new_z - mean)[:, None] - new_codes * slopes
    spread = ((new_z - new_z.mean()) ** 2).sum()
    return 1 - (residuals**2).sum(axis=0) / spread


def _accuracy_of_thresholds(
    fit_code: np.ndarray, fit_labels: np.ndarray, new_code: np.ndarray, new_labels: np.ndarray
) -> float:
    """Cut a code into an interval a class and return the balanced accuracy on the new rows.

    The code is of the order of one. The cuts maximise the balanced accuracy on the rows fitted
    on, by dynamic programming over the classes in the order of their means.
    """
    classes, labels = np.unique(fit_labels, return_inverse=True)
    means = np.bincount(labels, fit_code) / np.bincount(labels)
    if means[0] > means[-1]:
        # One orientation for a code and its negative: where several cuts are best, both take
        # the same.
        fit_code, new_code, means = -fit_code, -new_code, -means
    order = np.argsort(means, kind="stable")
    rows = np.argsort(fit_code, kind="stable")
    ordered = fit_code[rows]
    # Positions where a cut separates values, the two ends among them.
    cuts = np.concatenate([[0], np.flatnonzero(np.diff(ordered) > 0) + 1, [len(rows)]])
    is_class = labels[rows] == order[:, None]
    below = np.pad(is_class.cumsum(axis=1), ((0, 0), (1, 0)))[:, cuts]
    below = below / below[:, -1:]

    # best[i]: greatest sum of recalls of the classes so far, if they share the values below cut i.
    best, starts = below[0], []
    for share in below[1:]:
        gain = best - share
        highest = np.maximum.accumulate(gain)
        # The first of equals, up to rounding.
        is_new = np.diff(highest, prepend=-np.inf) > 1e-12
        starts.append(np.maximum.accumulate(np.where(is_new, np.arange(len(cuts)), 0)))
        best = highest + share
    ends = [len(cuts) - 1]
    for start in reversed(starts):
        ends.append(start[ends[-1]])
    edges = np.concatenate([[-np.inf], ordered, [np.inf]])
    positions = cuts[ends[:0:-1]]
    thresholds = edges[positions] / 2 + edges[positions + 1] / 2

    # Rows on a threshold, up to rounding, go above it.
    above = np.searchsorted(thresholds - 1e-9, new_code, side="right")
    predicted = classes[order[above]]
    recalls = [np.mean(predicted[new_labels == c] == c) for c in np.unique(new_labels)]
    return float(np.mean(recalls))
