"""A computable choice between FastICA on all dimensions, PCA first, and neither."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from sklearn.utils import check_random_state

from tutorials_lib._arrays import as_float64
from tutorials_lib._ica_estimator import FastICA
from tutorials_lib._ica_evidence import StabilityResult, _rows, stability
from tutorials_lib._measuring import is_constant, rescale
from tutorials_lib._validation import check_integer

# A pipeline is accepted if its stability reaches the first number, and this share of its
# components has more held-out negentropy than normal variables would.
STABLE, BEYOND_NULL = 0.7, 0.5
# A component that is correlated with the modality by more than this is the modality.
IS_MODALITY = 0.5
# A share of the variance between modalities below this is no gap.
IS_GAP = 0.01


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation:
    """Which pipeline fits some embeddings, and what was measured.

    Attributes
    ----------
    pipeline
        ``"FastICA"``, ``"PCA+FastICA"`` or ``"neither"``.
    k
        Number of components to ask for; ``None`` with ``"neither"``.
    reasons
        Sentences that say how the choice came about.
    measured
        The quantities by name, in the order in which `recommend_pipeline` lists them.
    candidates
        A `StabilityResult` for every number of components that was tried, by that number.
    """

    pipeline: Literal["FastICA", "PCA+FastICA", "neither"]
    k: int | None
    reasons: tuple[str, ...]
    measured: dict[str, float]
    candidates: dict[int, StabilityResult]

    def __repr__(self) -> str:
        width = max(map(len, self.measured))
        table = [f"  {name:<{width}}  {value:.4g}" for name, value in self.measured.items()]
        tried = [f"  k = {k}: {result!r}" for k, result in self.candidates.items()]
        choice = self.pipeline if self.k is None else f"{self.pipeline} with k = {self.k}"
        return "\n".join([choice, *(f"- {reason}" for reason in self.reasons), *table, *tried])


def group_means(X: Any, labels: Any) -> dict[Any, np.ndarray]:
    """Compute the mean of the rows of every group.

    Parameters
    ----------
    X
        Shape (n, d).
    labels
        One label a row, such as ``"image"`` and ``"text"``.

    Returns
    -------
    dict
        Mean in float64, shape (d,), by label.
    """
    labels = _labels(labels, len(X))
    return {
        label: as_float64("X", _rows(X, np.flatnonzero(labels == label))).mean(axis=0)
        for label in np.unique(labels).tolist()
    }


def center_by(X: Any, labels: Any, *, means: dict[Any, np.ndarray] | None = None) -> Any:
    """Subtract from every row the mean of its group.

    Stacked image and text embeddings have two means. The difference (the modality gap) is a
    direction with two values, which is as far from normal as a variable can be, so FastICA makes
    it a source. With each modality at its own mean, no linear function of the embeddings is
    correlated with the modality, whatever FastICA does with them.

    Parameters
    ----------
    X
        Shape (n, d): an array or a tensor.
    labels
        One label a row.
    means
        What `group_means` returned for other rows, to treat new rows like those; computed from X
        if ``None``.

    Returns
    -------
    numpy.ndarray or torch.Tensor
        The centred rows; of the type and, if it is a float, dtype of X.

    Raises
    ------
    TypeError, ValueError
        If the number of labels is not that of the rows, a label is NaN, labels are of several
        types, or a label has no mean or one of another length.

    Examples
    --------
    >>> center_by(np.array([[1.0], [3.0], [10.0]]), ["image", "image", "text"]).ravel()
    array([-1.,  1.,  0.])
    """
    if not isinstance(X, torch.Tensor):
        X = np.asarray(X)
    labels = _labels(labels, len(X))
    means = group_means(X, labels) if means is None else means
    if isinstance(X, torch.Tensor):
        centred = X.detach().clone() if X.is_floating_point() else X.to(torch.float32)
    else:
        centred = X.astype(X.dtype if np.issubdtype(X.dtype, np.floating) else np.float64)
    for label in np.unique(labels).tolist():
        if label not in means:
            raise ValueError(f"means has no entry for the label {label!r}; it has {list(means)}")
        mask = labels == label
        mean = as_float64(f"means[{label!r}]", means[label])
        if mean.shape not in ((), tuple(X.shape[1:])):
            raise ValueError(
                f"means[{label!r}] must have shape {tuple(X.shape[1:])}, as a row of X, got "
                f"{mean.shape}"
            )
        if isinstance(centred, torch.Tensor):
            mask = torch.from_numpy(mask).to(centred.device)
            mean = torch.from_numpy(mean).to(centred.dtype).to(centred.device)
            centred[mask] -= mean
        else:
            centred[mask] = centred[mask] - mean
    return centred


def recommend_pipeline(
    embeddings: Any,
    *,
    modality: Any = None,
    seeds: int = 2,
    max_rows: int = 20_000,
    max_iter: int = 200,
    random_state: int | np.random.RandomState | None = 0,
    progress: bool = True,
) -> Recommendation:
    """Choose between FastICA on all dimensions, PCA first, and neither.

    A pipeline is good if independent halves of the rows give the same sources (`stability` at
    least 0.7) and at least half of the sources have more held-out negentropy than normal ones
    would. FastICA on all dimensions is taken if it is good. Else PCA+FastICA is tried with as
    many components as there are eigenvalues of the correlation matrix beyond those of unrelated
    columns (parallel analysis), and with as many as the participation ratio says; the larger
    number that is good is taken. Else the answer is neither: the law may be invariant to
    rotations, as a uniform one on a sphere is, or the rows too few.

    What is measured:

    ``n``, ``d``, ``rank``
        Rows used, columns, and dimensions in which the rows vary.
    ``participation_ratio``
        (Σλ)²/Σλ² for the eigenvalues λ of the covariance: the number of dimensions that carry
        variance if they all carry the same.
    ``beyond_noise``
        Eigenvalues of the correlation matrix larger than those, in order, of a copy in which
        every column is permuted by itself.
    ``norm_cv``
        Standard deviation of ‖x‖ over its mean: 0 for embeddings on a sphere.
    ``radial_ratio``
        Var ‖s‖² / Σ Var s_i² for the sources s of all dimensions: 1 if their squares are
        uncorrelated, as independence demands; 0 if the whitened rows lie on a sphere; above 1 if
        large values come together. NaN if the s_i² are constant.
    ``stability``, ``beyond_null``
        Of the pipeline chosen, else of FastICA on all dimensions.
    ``gap_share``, ``modality_correlation``
        With ``modality`` only: share of the variance that lies between the means of the
        modalities, and the largest absolute correlation of a source of the embeddings as they
        are with the modality. Everything else is measured after `center_by`.

    Parameters
    ----------
    embeddings
        Shape (n, d).
    modality
        One of two labels a row, if image and text embeddings are stacked.
    seeds
        As in `stability`.
    max_rows
        Only this many rows, at random, are used.
    max_iter
        As in `FastICA`.
    random_state
        As in `FastICA`.
    progress
        Whether bars are shown.

    Returns
    -------
    Recommendation
        Pipeline, number of components, reasons and measurements.

    Raises
    ------
    TypeError, ValueError
        If the embeddings are not finite numbers in rows, are constant, or there are too few; if
        there are other than two modalities.

    References
    ----------
    Horn (1965), "A rationale and test for the number of factors in factor analysis",
    Psychometrika 30(2), for parallel analysis. The thresholds are choices, not theorems.
    """
    rng = check_random_state(random_state)
    max_rows = check_integer("max_rows", max_rows, 4)
    n = len(embeddings)
    labels = None if modality is None else _labels(modality, n)
    if labels is not None and len(np.unique(labels)) != 2:
        raise ValueError(f"modality must have two different labels, got {len(np.unique(labels))}")
    index = np.arange(n) if n <= max_rows else np.sort(rng.choice(n, max_rows, replace=False))
    x = as_float64("embeddings", _rows(embeddings, index))
    if x.ndim != 2 or len(x) < 4:
        raise ValueError(f"embeddings must have at least 4 rows and 2 axes, got shape {x.shape}")
    options = {"seeds": seeds, "max_iter": max_iter, "random_state": rng, "progress": progress}
    # What is measured of the embeddings themselves does not depend on their unit.
    unit = np.ldexp(1.0, np.frexp(np.abs(x).max())[1])
    norms = np.linalg.norm(x / unit, axis=1)
    reasons: list[str] = []
    of_modality: dict[str, float] = {}
    if labels is not None:
        x, of_modality = _remove_modality(x, labels[index], rng, max_iter, reasons)

    whole = stability(x, **options)
    rank = len(whole.per_component)
    sources = whole.ica.transform(x)
    squares = np.square(sources)
    spread = squares.var(axis=0).sum()
    variances = np.linalg.eigvalsh(np.cov((x / unit).T).reshape(x.shape[1], -1))
    beyond = _beyond_noise(x, rng)
    measured = {
        "n": float(len(x)),
        "d": float(x.shape[1]),
        "rank": float(rank),
        "participation_ratio": float(variances.sum() ** 2 / np.square(variances).sum()),
        "beyond_noise": float(beyond),
        "norm_cv": float(norms.std() / norms.mean()) if norms.mean() > 0 else math.nan,
        "radial_ratio": (
            float(squares.sum(axis=1).var() / spread) if spread > 1e-9 * rank else math.nan
        ),
    }
    candidates = {rank: whole}
    chosen: int | None = rank if _is_good(whole) else None
    reasons.append(_judge(f"FastICA on all {rank} dimensions", whole))
    if chosen is None:
        tries = {beyond, round(measured["participation_ratio"])}
        for k in sorted((k for k in tries if 2 <= k < rank), reverse=True):
            candidates[k] = stability(x, n_components=k, **options)
            reasons.append(_judge(f"PCA to {k} dimensions and FastICA", candidates[k]))
            if _is_good(candidates[k]):
                chosen = k
                break
    if chosen is None:
        reasons.append(
            "No choice gives sources that other rows confirm: use the embeddings as they are, or "
            "whitened, and do not name single directions."
        )
    if measured["radial_ratio"] < 0.3:
        reasons.append(
            f"The whitened rows are close to a sphere (radial ratio "
            f"{measured['radial_ratio']:.2f}; 1 under independence): the sources' sizes depend "
            "on each other, whatever their correlations."
        )
    judged = candidates[rank if chosen is None else chosen]
    measured["stability"] = judged.score
    measured["beyond_null"] = float(judged.n_beyond_null)
    measured.update(of_modality)
    pipeline = "neither" if chosen is None else "FastICA" if chosen == rank else "PCA+FastICA"
    return Recommendation(pipeline, chosen, tuple(reasons), measured, candidates)


def _remove_modality(
    x: np.ndarray,
    labels: np.ndarray,
    rng: np.random.RandomState,
    max_iter: int,
    reasons: list[str],
) -> tuple[np.ndarray, dict[str, float]]:
    names, codes = np.unique(labels, return_inverse=True)
    if len(names) != 2:
        raise ValueError(
            f"all of the {len(x)} rows that max_rows has left are of the modality "
            f"{names.tolist()[0]!r}; raise max_rows"
        )
    centred = center_by(x, labels)
    unit = np.ldexp(1.0, np.frexp(np.abs(x).max())[1])
    share = 1 - (centred / unit).var(axis=0).sum() / (x / unit).var(axis=0).sum()
    from_raw = _fit_all(x, rng, max_iter)
    table = np.corrcoef(from_raw.T, codes)[-1, :-1]
    correlation = float(np.abs(table).max())
    if correlation > IS_MODALITY or share > IS_GAP:
        reasons.append(
            f"{share:.0%} of the variance lies between the modalities, and a source of the "
            f"embeddings as they are has correlation {correlation:.2f} with the modality: centre "
            "each modality first, with center_by. The rest is measured after that."
        )
    return centred, {"gap_share": float(share), "modality_correlation": correlation}


def _fit_all(x: np.ndarray, rng: np.random.RandomState, max_iter: int) -> np.ndarray:
    ica = FastICA(max_iter=max_iter, random_state=rng, progress=False)
    ica._fit(x)  # without a warning: only the correlation with the modality is read off
    return ica.transform(x)


def _beyond_noise(x: np.ndarray, rng: np.random.RandomState) -> int:
    varying = rescale(x[:, ~is_constant(x)])
    if varying.shape[1] < 2:
        return varying.shape[1]
    shuffled = np.stack([rng.permutation(column) for column in varying.T], axis=1)
    real, noise = (np.linalg.eigvalsh(np.corrcoef(a.T))[::-1] for a in (varying, shuffled))
    above = real > noise
    return len(above) if above.all() else int(np.argmin(above))


def _is_good(result: StabilityResult) -> bool:
    enough = result.n_beyond_null >= BEYOND_NULL * len(result.per_component)
    return result.score >= STABLE and enough


def _judge(what: str, result: StabilityResult) -> str:
    verdict = "good" if _is_good(result) else "not good"
    return (
        f"{what}: {verdict}; stability {result.score:.2f} (needs {STABLE}), "
        f"{result.n_beyond_null} of {len(result.per_component)} sources beyond the null level of "
        f"negentropy (needs {BEYOND_NULL:.0%})."
    )


def _labels(labels: Any, n: int) -> np.ndarray:
    array = labels.cpu().numpy() if isinstance(labels, torch.Tensor) else np.asarray(labels)
    if array.shape != (n,):
        raise ValueError(f"there must be one label a row, so {n}, got shape {array.shape}")
    if array.dtype.kind not in "biufUS" and len({type(label) for label in array}) > 1:
        raise TypeError(
            "labels must be of one type, got "
            f"{', '.join(sorted({type(label).__name__ for label in array}))}"
        )
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise ValueError(f"labels must not be NaN, got {int(np.isnan(array).sum())} that are")
    return array
