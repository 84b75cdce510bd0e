"""Few-shot splits, and the features that probes are compared on; `probes` exports them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tutorials_lib._arrays import as_numpy_generator
from tutorials_lib._probing import as_labels, as_rows
from tutorials_lib._validation import check_integer
from tutorials_lib.ica import FastICA, PCAFastICA

__all__ = ["FEATURES", "PCAFeatures", "features", "few_shot_split"]

FEATURES = ("raw", "PCA", "whitening", "PCA-whitening", "FastICA", "PCA+FastICA")


def few_shot_split(
    labels: Any,
    *,
    shots: int,
    validation_shots: int | None = None,
    seed: int | np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose training and validation rows, equally many of each class.

    Parameters
    ----------
    labels
        N integers or strings.
    shots
        Training rows of each class.
    validation_shots
        Validation rows of each class; ``None`` for as many as shots, but at most 4, which is
        usual (Zhou et al. 2022).
    seed
        Integer or NumPy generator. For one integer the training rows of fewer shots are among
        those of more shots.

    Returns
    -------
    train_idx, validation_idx
        Indices of rows, disjoint, sorted by class. All other rows are left alone.

    Raises
    ------
    TypeError, ValueError
        If an argument is out of range, or a class has too few rows; the message names it.

    References
    ----------
    Zhou et al. (2022), "Learning to prompt for vision-language models", arXiv:2109.01134.

    Examples
    --------
    >>> train, validation = few_shot_split([0, 1, 0, 1, 0, 1], shots=2, seed=0)
    Traceback (most recent call last):
        ...
    ValueError: 2 shots and 2 for validation need 4 rows of each class, but 2 of 2 classes have \
fewer: class 0 has 3, class 1 has 3
    """
    y = as_labels("labels", labels)
    shots = check_integer("shots", shots, 1)
    if validation_shots is None:
        validation_shots = min(shots, 4)
    validation_shots = check_integer("validation_shots", validation_shots, 0)
    rng = as_numpy_generator(seed)
    classes, counts = np.unique(y, return_counts=True)
    few = np.flatnonzero(counts < shots + validation_shots)
    if len(few):
        named = ", ".join(f"class {classes[i]} has {counts[i]}" for i in few[:5])
        raise ValueError(
            f"{shots} shots and {validation_shots} for validation need "
            f"{shots + validation_shots} rows of each class, but {len(few)} of {len(classes)} "
            f"classes have fewer: {named}"
        )
    by_class = np.split(np.argsort(y, kind="stable"), np.cumsum(counts)[:-1])
    shuffled = [rng.permutation(rows) for rows in by_class]
    train = np.concatenate([rows[:shots] for rows in shuffled])
    validation = np.concatenate([rows[shots : shots + validation_shots] for rows in shuffled])
    return train, validation


class PCAFeatures(TransformerMixin, BaseEstimator):
    """Projection on the leading principal directions, whitened or not.

    Whitened features have unit variance with 1/N, as the components of FastICA have, so that
    PCA+FastICA features are exactly a rotation of these.

    Parameters
    ----------
    n_components
        Number of directions; ``None`` for all in which the data vary. A direction whose variance
        is below about 1e-13 of the largest counts as none, so columns should be in like units.
    whiten
        Whether to scale them to unit variance.

    Attributes
    ----------
    mean_, components_
        Features are (X − mean_) @ components_.T; shapes (d,) and (n_components, d).
    variances_
        Of the data along the directions, in descending order, shape (n_components,).
    """

    def __init__(self, n_components: int | None = None, *, whiten: bool = False) -> None:
        self.n_components = n_components
        self.whiten = whiten

    def fit(self, X: Any, y: Any = None) -> PCAFeatures:
        """Find the directions; labels are ignored.

        Raises
        ------
        TypeError, ValueError
            If ``X`` is no finite (N, d) array, or has lower rank than ``n_components``.
        """
        rows = as_rows("X", X)
        n, d = rows.shape
        for name in ("mean_", "components_", "variances_", "n_features_in_"):
            vars(self).pop(name, None)
        # In a unit near the largest entry, a power of two: squares stay within floats.
        exponent = int(np.frexp(np.abs(rows).max())[1])
        mean = np.ldexp(rows, -exponent).mean(axis=0, dtype=np.float64)
        covariance = np.zeros((d, d))
        for start in range(0, n, 65536):
            centred = np.ldexp(rows[start : start + 65536], -exponent) - mean
            covariance += centred.T @ centred
        values, vectors = np.linalg.eigh(covariance / n)
        values, vectors = values[::-1], vectors[:, ::-1]
        # What rounding leaves of a variance that is zero: in squares, and in the data.
        epsilon, precise = np.finfo(rows.dtype).eps, np.finfo(np.float64).eps
        precision = max((d * epsilon) ** 2, 10 * d * precise)
        floor = max(precision * values[0], 10 * d * epsilon**2, np.finfo(np.float64).tiny)
        rank = min(int((values > floor).sum()), n - 1)
        k = (
            rank
            if self.n_components is None
            else check_integer("n_components", self.n_components, 1)
        )
        if k > rank or k == 0:
            raise ValueError(
                f"n_components={self.n_components} was asked for, but {n} rows of {d} columns "
                f"vary in {rank} directions only; take fewer components or more rows"
            )
        components = vectors[:, :k].T.copy()
        if self.whiten:
            components = np.ldexp(components / np.sqrt(values[:k])[:, None], -exponent)
        self.mean_ = np.ldexp(mean, exponent)
        self.variances_ = np.ldexp(values[:k], 2 * exponent)
        self.n_features_in_ = d
        self.components_ = components
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the features, float64, shape (N, n_components)."""
        check_is_fitted(self)
        return (_same_columns(self, X) - self.mean_) @ self.components_.T


class _Raw(TransformerMixin, BaseEstimator):
    """The embeddings as they are."""

    def fit(self, X: Any, y: Any = None) -> _Raw:
        self.n_features_in_ = as_rows("X", X).shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        return _same_columns(self, X)


def _same_columns(transformer: BaseEstimator, X: Any) -> np.ndarray:
    rows, fitted = as_rows("X", X), transformer.n_features_in_
    if rows.shape[1] != fitted:
        raise ValueError(f"the features were fitted on {fitted} columns, X has {rows.shape[1]}")
    return rows


def features(
    name: str, n_components: int | None = None, *, seed: int = 0, progress: bool = False
) -> BaseEstimator:
    """Make an unfitted transformer of embeddings, by the name that comparisons give it.

    ===================  =====================================================================
    ``"raw"``            the embeddings
    ``"PCA"``            projection on ``n_components`` principal directions
    ``"whitening"``      all principal directions, scaled to unit variance
    ``"PCA-whitening"``  ``n_components`` principal directions, scaled to unit variance
    ``"FastICA"``        FastICA on all directions: ``"whitening"``, rotated
    ``"PCA+FastICA"``    PCA, then FastICA: ``"PCA-whitening"``, rotated
    ===================  =====================================================================

    The two whitenings are the controls of the two lines below them. FastICA with fewer components
    than dimensions begins with a PCA, so it *is* PCA+FastICA; hence ``n_components`` acts on names
    that begin with PCA only.

    Parameters
    ----------
    name
        One of `FEATURES`.
    n_components
        Number of principal directions; needed by the names that begin with PCA.
    seed
        Where FastICA starts.
    progress
        Whether FastICA shows a progress bar.

    Returns
    -------
    sklearn.base.BaseEstimator
        With ``fit(X)`` and ``transform(X)``.

    Raises
    ------
    ValueError
        If the name is unknown or ``n_components`` is missing.
    """
    if name not in FEATURES:
        raise ValueError(f"name must be one of {', '.join(FEATURES)}, got {name!r}")
    if name.startswith("PCA"):
        if n_components is None:
            raise ValueError(f"{name} needs n_components, the number of principal directions")
        check_integer("n_components", n_components, 1)
    if name == "raw":
        return _Raw()
    if name in ("PCA", "PCA-whitening"):
        return PCAFeatures(n_components, whiten=name != "PCA")
    if name == "whitening":
        return PCAFeatures(None, whiten=True)
    if name == "FastICA":
        return FastICA(random_state=seed, progress=progress)
    return PCAFastICA(n_components, random_state=seed, progress=progress)
