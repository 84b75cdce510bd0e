"""How much of the true latents a representation holds, and what chance alone would give.

Arrays and tensors go in, one sample a row; a single column may be passed with one axis. Results
are frozen, say in one line how they were computed, and keep the parts they were computed from.
R² and correlations after a fit are always measured on rows that the fit did not see.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln
from scipy.stats import rankdata
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor

from tutorials_lib._arrays import as_numpy_generator
from tutorials_lib._disentanglement import DCIResult, dci
from tutorials_lib._gaps import MIGResult, SAPResult, mig, sap
from tutorials_lib._measuring import (
    check_option,
    check_rows,
    describe_excluded,
    is_constant,
    mean_of_kept,
    split,
    standardise,
)
from tutorials_lib._validation import check_integer

__all__ = [
    "DCIResult",
    "GapResult",
    "MCCResult",
    "MIGResult",
    "R2Result",
    "SAPResult",
    "dci",
    "leakage",
    "linear_r2",
    "mcc",
    "mcc_chance_level",
    "mig",
    "modality_gap",
    "sap",
]

# Above this many rows the chance level is simulated here and scaled by the root of the ratio.
CHANCE_ROWS = 2000

Predictor = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False, repr=False)
class R2Result:
    """Held-out coefficient of determination.

    Attributes
    ----------
    score
        Mean of ``per_factor`` over the factors that are not excluded; NaN if none is left. At
        most 1; 0 is what predicting the mean gives, and a fit to noise is negative.
    per_factor
        Shape (n_factors,); NaN for excluded factors.
    excluded
        Why each excluded factor has no R², by its index.
    n_train, n_test
        Numbers of rows that the estimator was fitted and measured on.
    estimator
        What was fitted: ``"linear"``, ``"mlp"`` or ``"knn"``.
    """

    score: float
    per_factor: np.ndarray
    excluded: dict[int, str]
    n_train: int
    n_test: int
    estimator: str

    def __repr__(self) -> str:
        excluded = describe_excluded(self.excluded, len(self.per_factor))
        return (
            f"R² {self.score:.3f} ({self.estimator}, fitted on {self.n_train} rows, "
            f"measured on {self.n_test} others{excluded})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class MCCResult:
    """Mean correlation coefficient between latents and the codes assigned to them.

    Attributes
    ----------
    score
        Mean of ``per_factor`` over the latents that are not excluded; NaN if none is left.
    chance_level
        Mean score of codes that know nothing, for as many rows, latents and codes.
    per_factor
        Absolute correlation of each latent with its code, shape (n_latents,); NaN if excluded.
    assignment
        Index of the code of each latent, shape (n_latents,); −1 if excluded.
    signs
        Sign of the correlation with that code, shape (n_latents,); 0 if excluded.
    correlations
        Signed correlations of all latents (rows) with all codes (columns); NaN in the rows of
        constant latents, 0 in the columns of constant codes.
    method
        ``"pearson"`` or ``"spearman"``.
    regression
        ``None``, or ``"linear"`` if the codes are held-out linear predictions of the latents.
    n_samples
        Number of rows that the correlations were measured on.
    excluded
        Why each excluded latent has no correlation, by its index.
    constant_codes
        Indices of codes that do not vary; they count as correlation 0, not as excluded.
    """

    score: float
    chance_level: float
    per_factor: np.ndarray
    assignment: np.ndarray
    signs: np.ndarray
    correlations: np.ndarray
    method: str
    regression: str | None
    n_samples: int
    excluded: dict[int, str]
    constant_codes: tuple[int, ...]

    def __repr__(self) -> str:
        method = self.method + (" of held-out linear predictions" if self.regression else "")
        excluded = describe_excluded(self.excluded, len(self.per_factor), what="latents")
        constant = f", {len(self.constant_codes)} codes constant" if self.constant_codes else ""
        return (
            f"MCC {self.score:.3f} ({method}, n={self.n_samples}, "
            f"chance {self.chance_level:.2g}{excluded}{constant})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class GapResult:
    """Distance between the means of image and text embeddings.

    Attributes
    ----------
    gap
        ‖mean of f_x − mean of f_t‖, in the units of the embeddings.
    direction
        Unit vector from the text mean to the image mean, shape (dim,); zeros if the gap is 0.
    mean_cosine_of_pairs
        Mean cosine of the angle between f_x and f_t in the same row.
    mean_cosine_of_non_pairs
        The same over all f_x and f_t in different rows; NaN if there is one row only.
    n_samples
        Number of pairs.
    """

    gap: float
    direction: np.ndarray
    mean_cosine_of_pairs: float
    mean_cosine_of_non_pairs: float
    n_samples: int

    def __repr__(self) -> str:
        return (
            f"modality gap {self.gap:.3f} (n={self.n_samples}, mean cosine "
            f"{self.mean_cosine_of_pairs:.3f} in pairs, {self.mean_cosine_of_non_pairs:.3f} "
            "between others)"
        )


def linear_r2(
    latents: Any,
    representation: Any,
    *,
    test_fraction: float = 0.5,
    seed: int | np.random.Generator = 0,
) -> R2Result:
    """Measure how well an affine map of the representation predicts the latents.

    The map is fitted by least squares on a random part of the rows and its R² is measured on the
    rest. With fewer rows than columns the fit interpolates (the solution of least norm is taken),
    so the R² on the rows it has seen would be 1 whatever the data; on the others it is not.

    Parameters
    ----------
    latents
        Shape (n, n_latents): what is predicted.
    representation
        Shape (n, dim): what it is predicted from.
    test_fraction
        Share of the rows that is held out, strictly between 0 and 1.
    seed
        Integer or NumPy generator; decides which rows are held out.

    Returns
    -------
    R2Result
        A latent that is constant on the rows seen or on those held out has NaN and a reason, and
        is left out of the mean. Latents that have nothing to do with the representation get about
        −dim/(n_train − dim − 1), which is not clipped to 0.

    Raises
    ------
    TypeError, ValueError
        If the numbers of rows differ, if there are NaN or infinite entries, or if either part
        would have fewer than two rows.
    """
    return _held_out_r2(
        "latents", latents, "representation", representation, "linear", test_fraction, seed
    )


def leakage(
    representation: Any,
    modality_latents: Any,
    *,
    estimator: Literal["linear", "mlp", "knn"] = "mlp",
    test_fraction: float = 0.5,
    seed: int | np.random.Generator = 0,
) -> R2Result:
    """Measure how much of the modality-specific latents a representation still holds.

    A linear fit misses what is encoded otherwise (a squared latent, an angle), so the default is
    a small neural network. A value near 0 shows that *this* estimator found nothing in n_train
    rows, not that nothing is there.

    Parameters
    ----------
    representation
        Shape (n, dim).
    modality_latents
        Shape (n, n_latents), for instance m_x beside the representation of x.
    estimator
        ``"mlp"``: network with two hidden layers of width 64, stopped early on a tenth of the
        rows it is fitted on; needs at least 40 of them. ``"knn"``: mean of the 10 nearest rows
        (of all, if there are fewer). ``"linear"``: affine least squares. All see standardised
        columns.
    test_fraction
        Share of the rows that is held out, strictly between 0 and 1.
    seed
        Integer or NumPy generator; decides which rows are held out and how the network starts.

    Returns
    -------
    R2Result
        Without leakage the expected value is below 0, and it is not clipped: about
        −dim/(n_train − dim − 1) for ``"linear"``, about −0.1 (one over the number of neighbours)
        for ``"knn"``, and a few hundredths below 0 for ``"mlp"`` on some thousand rows. Compare
        with the value for shuffled ``modality_latents`` when it matters.

    Raises
    ------
    TypeError, ValueError
        As in `linear_r2`, or if the estimator is unknown or has too few rows.
    """
    return _held_out_r2(
        "modality_latents",
        modality_latents,
        "representation",
        representation,
        estimator,
        test_fraction,
        seed,
    )


def mcc(
    latents: Any,
    representation: Any,
    *,
    method: Literal["pearson", "spearman"] = "pearson",
    regression: Literal["linear"] | None = None,
    test_fraction: float = 0.5,
    seed: int | np.random.Generator = 0,
) -> MCCResult:
    """Compute the mean correlation coefficient of latents and codes.

    Without ``regression`` each latent is assigned a code of its own so that the sum of absolute
    correlations is greatest. The score is 1 if and only if each latent is a code up to sign,
    scale and shift (with ``"spearman"``: up to a monotone map), so it does see a rotation.

    With ``regression="linear"`` the codes are first replaced by predictions of the latents: an
    affine least-squares fit on a random part of the rows, applied to the rest, where the
    correlations are measured. Prediction i belongs to latent i, so nothing is assigned. This
    asks how linear the representation is; it does not see a rotation, and cannot show that single
    codes are single latents.

    Parameters
    ----------
    latents
        Shape (n, n_latents).
    representation
        Codes, shape (n, n_codes). With more codes than latents, some codes stay without a latent.
        With fewer, the latents left without a code are excluded from the mean, with the reason.
    method
        ``"pearson"``, or ``"spearman"``: the same on ranks, ties sharing their mean rank.
    regression
        See above.
    test_fraction
        Share of the rows held out, strictly between 0 and 1; used with ``regression`` only.
    seed
        Integer or NumPy generator, for the split and the chance level.

    Returns
    -------
    MCCResult
        The score and the chance level beside it. A constant latent has NaN and a reason and is
        left out of the mean. A constant code has correlation 0 with everything: an encoder that
        collapsed does not gain by it.

    Raises
    ------
    TypeError, ValueError
        If the numbers of rows differ, if there are NaN or infinite entries, if the correlations
        would rest on fewer than three rows, or if an option is unknown.

    References
    ----------
    Hyvärinen and Morioka (2016), "Unsupervised feature extraction by time-contrastive learning
    and nonlinear ICA", arXiv:1605.06336, for the score without regression; Khemakhem et al.
    (2020), "ICE-BeeM", arXiv:2002.11537, for scores up to a linear map.
    """
    check_option("method", method, ("pearson", "spearman"))
    check_option("regression", regression, (None, "linear"))
    z, codes = map(_rescale, check_rows("latents", latents, "representation", representation))
    rng = as_numpy_generator(seed)
    if regression == "linear":
        train, test = split(len(z), test_fraction, rng)
        codes = _fit_linear(codes[train], z[train])(codes[test])
        z = z[test]
    n_samples, n_latents = z.shape
    if n_samples < 3:
        raise ValueError(
            f"correlations need at least 3 rows, got {n_samples}; with fewer they are ±1 or nothing"
        )

    excluded = {int(i): "constant latent" for i in np.flatnonzero(is_constant(z))}
    constant_codes = tuple(int(j) for j in np.flatnonzero(is_constant(codes)))
    varying = np.array([i for i in range(n_latents) if i not in excluded], dtype=int)
    correlations = np.full((n_latents, codes.shape[1]), np.nan)
    correlations[varying] = _correlations(z[:, varying], codes, method)

    per_factor = np.full(n_latents, np.nan)
    assignment = np.full(n_latents, -1)
    signs = np.zeros(n_latents, dtype=int)
    if regression == "linear":
        assignment[varying] = varying
    else:
        rows, columns = linear_sum_assignment(np.abs(correlations[varying]), maximize=True)
        assignment[varying[rows]] = columns
    for i in varying:
        if assignment[i] < 0:
            excluded[int(i)] = f"no code left: {codes.shape[1]} codes for {len(varying)} latents"
            continue
        value = correlations[i, assignment[i]]
        per_factor[i], signs[i] = abs(value), np.sign(value)

    return MCCResult(
        score=mean_of_kept(per_factor),
        chance_level=(
            mcc_chance_level(
                n_samples,
                len(varying),
                codes.shape[1],
                method=method,
                matched=regression == "linear",
                # Some 400 simulated latents: the level is known to about four per cent.
                repeats=max(20, 400 // len(varying)),
                seed=rng,
            )
            if len(varying)
            else float("nan")
        ),
        per_factor=per_factor,
        assignment=assignment,
        signs=signs,
        correlations=correlations,
        method=method,
        regression=regression,
        n_samples=n_samples,
        excluded=dict(sorted(excluded.items())),
        constant_codes=constant_codes,
    )


def mcc_chance_level(
    n_samples: int,
    n_latents: int,
    n_codes: int | None = None,
    *,
    method: Literal["pearson", "spearman"] = "pearson",
    matched: bool = False,
    repeats: int = 20,
    seed: int | np.random.Generator = 0,
) -> float:
    """Simulate the MCC of codes that are independent of the latents.

    Latents and codes are independent standard normals. The assignment picks the largest of many
    chance correlations, so the level grows with the number of latents and falls like 1/√n.

    Parameters
    ----------
    n_samples
        Number of rows that the correlations are measured on, at least 3. Beyond 2,000 rows the
        level is simulated at 2,000 and multiplied by √(1999/(n_samples − 1)), the ratio of the
        standard deviations of a chance correlation; this errs by less than one per cent.
    n_latents
        Number of latents.
    n_codes
        Number of codes; as many as latents if ``None``.
    method
        As in `mcc`.
    matched
        Whether code i belongs to latent i, as in `mcc` after a regression. Then nothing is
        assigned or simulated: the level is E|r| = Γ((n−1)/2) / (√π Γ(n/2)) for n rows, exact for
        normal latents with ``"pearson"`` and to about a per cent with ``"spearman"``.
    repeats
        Number of simulated data sets.
    seed
        Integer or NumPy generator.

    Returns
    -------
    float
        The mean score of the simulated data sets.

    Raises
    ------
    TypeError, ValueError
        If a number is not an integer in its range, or if the method is unknown.
    """
    check_option("method", method, ("pearson", "spearman"))
    n_samples = check_integer("n_samples", n_samples, 3)
    n_latents = check_integer("n_latents", n_latents, 1)
    n_codes = n_latents if n_codes is None else check_integer("n_codes", n_codes, 1)
    repeats = check_integer("repeats", repeats, 1)
    rng = as_numpy_generator(seed)
    if matched:
        half = n_samples / 2
        return float(np.exp(gammaln(half - 0.5) - gammaln(half)) / np.sqrt(np.pi))
    rows = min(n_samples, CHANCE_ROWS)
    scores = []
    for _ in range(repeats):
        absolute = np.abs(
            _correlations(
                rng.standard_normal((rows, n_latents)), rng.standard_normal((rows, n_codes)), method
            )
        )
        scores.append(absolute[linear_sum_assignment(absolute, maximize=True)].mean())
    return float(np.mean(scores) * np.sqrt((rows - 1) / (n_samples - 1)))


def modality_gap(f_x: Any, f_t: Any) -> GapResult:
    """Measure the distance between the means of image and text embeddings.

    Parameters
    ----------
    f_x, f_t
        Embeddings of images and of their texts, both of shape (n, dim), row by row. They are
        taken as they are: normalise them first if the encoders do not.

    Returns
    -------
    GapResult
        The gap, its direction and mean cosines.

    Raises
    ------
    TypeError, ValueError
        If the shapes differ, if there are NaN or infinite entries, or if a row is zero, which
        has no angle.

    References
    ----------
    Liang et al. (2022), "Mind the gap: understanding the modality gap in multi-modal contrastive
    representation learning", arXiv:2203.02053.
    """
    images, texts = check_rows("f_x", f_x, "f_t", f_t)
    if images.shape != texts.shape:
        raise ValueError(
            f"f_x and f_t must have the same shape, got {images.shape} and {texts.shape}"
        )
    units = []
    for name, values in (("f_x", images), ("f_t", texts)):
        values = _rescale(values, axis=1)
        norms = np.linalg.norm(values, axis=1, keepdims=True)
        zero = int((norms == 0).sum())
        if zero:
            raise ValueError(f"{name} has {zero} rows that are zero, so that no angle exists")
        units.append(values / norms)
    n = len(images)
    difference = images.mean(axis=0) - texts.mean(axis=0)
    gap = math.hypot(*difference)
    of_pairs = float(np.sum(units[0] * units[1]))
    of_all = float(units[0].sum(axis=0) @ units[1].sum(axis=0))
    return GapResult(
        gap=gap,
        direction=difference / gap if gap > 0 else np.zeros_like(difference),
        mean_cosine_of_pairs=of_pairs / n,
        mean_cosine_of_non_pairs=(of_all - of_pairs) / (n * (n - 1)) if n > 1 else float("nan"),
        n_samples=n,
    )


def _rescale(values: np.ndarray, axis: int = 0) -> np.ndarray:
    # By powers of two, which is exact: squares of very large or small entries leave the range of
    # floats. Neither R² nor a correlation nor an angle sees it.
    exponents = np.frexp(np.abs(values).max(axis=axis, keepdims=True))[1]
    return np.ldexp(values, -exponents)


def _fit_linear(features: np.ndarray, targets: np.ndarray) -> Predictor:
    scale, mean = standardise(features), targets.mean(axis=0)
    # Centred on both sides, so that the offset is right for the solution of least norm too.
    weights = np.linalg.lstsq(scale(features), targets - mean, rcond=None)[0]
    return lambda new: scale(new) @ weights + mean


def _fit_sklearn(model: Any, features: np.ndarray, targets: np.ndarray) -> Predictor:
    scale = standardise(features)
    mean, spread = targets.mean(axis=0), targets.std(axis=0)
    single = targets.shape[1] == 1
    scaled = (targets - mean) / spread
    model.fit(scale(features), scaled[:, 0] if single else scaled)
    return lambda new: model.predict(scale(new)).reshape(len(new), -1) * spread + mean


def _held_out_r2(
    target_name: str,
    targets: Any,
    feature_name: str,
    features: Any,
    estimator: str,
    test_fraction: float,
    seed: int | np.random.Generator,
) -> R2Result:
    check_option("estimator", estimator, ("linear", "mlp", "knn"))
    z, r = map(_rescale, check_rows(target_name, targets, feature_name, features))
    rng = as_numpy_generator(seed)
    train, test = split(len(z), test_fraction, rng)
    excluded = {
        int(i): f"constant on the {len(rows)} rows {use}"
        for rows, use in ((test, "held out"), (train, "fitted on"))
        for i in np.flatnonzero(is_constant(z[rows]))
    }
    kept = np.array([i for i in range(z.shape[1]) if i not in excluded], dtype=int)
    per_factor = np.full(z.shape[1], np.nan)
    if kept.size:
        fit_x, fit_z = r[train], z[np.ix_(train, kept)]
        if estimator == "linear":
            predict = _fit_linear(fit_x, fit_z)
        elif estimator == "knn":
            predict = _fit_sklearn(KNeighborsRegressor(min(10, len(train))), fit_x, fit_z)
        else:
            if len(train) < 40:
                raise ValueError(
                    f"estimator 'mlp' needs at least 40 rows to fit, got {len(train)}; "
                    "use estimator='linear' or more rows"
                )
            model = MLPRegressor(
                hidden_layer_sizes=(64, 64),
                learning_rate_init=3e-3,
                early_stopping=True,
                max_iter=500,
                random_state=int(rng.integers(2**31)),
            )
            predict = _fit_sklearn(model, fit_x, fit_z)
        truth = z[np.ix_(test, kept)]
        residual = ((truth - predict(r[test])) ** 2).sum(axis=0)
        per_factor[kept] = 1 - residual / ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
    return R2Result(
        score=mean_of_kept(per_factor),
        per_factor=per_factor,
        excluded=dict(sorted(excluded.items())),
        n_train=len(train),
        n_test=len(test),
        estimator=estimator,
    )


def _correlations(latents: np.ndarray, codes: np.ndarray, method: str) -> np.ndarray:
    units = []
    for values in (latents, codes):
        constant = is_constant(values)
        if method == "spearman":
            values = rankdata(values, axis=0)
        centred = values - values.mean(axis=0)
        # Scaled first: squares of very small or very large entries leave the range of floats.
        peak = np.abs(centred).max(axis=0)
        centred = centred / np.where(constant, np.inf, peak)
        norms = np.linalg.norm(centred, axis=0)
        units.append(centred / np.where(constant, 1.0, norms))
    # Rounding can leave 1 + 1e-16.
    return np.clip(units[0].T @ units[1], -1.0, 1.0)
