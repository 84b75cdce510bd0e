"""FastICA and PCA+FastICA as scikit-learn estimators."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from tutorials_lib._ica_solver import Solution, decorrelate, solve
from tutorials_lib._ica_whitening import (
    Rows,
    Whitening,
    apply_whitening,
    high_precision,
    whiten,
)
from tutorials_lib._progress import progress_bar
from tutorials_lib._validation import (
    check_finite,
    check_integer,
    check_positive,
    resolve_device,
)

# A progress bar appears only if a fit takes longer than this many seconds.
# How far means and covariances may be from 0 and the identity for data to pass as white.
WHITE_TOLERANCE = 0.1


class FastICA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Independent component analysis by the fixed-point iteration, for a million embeddings.

    Data X are taken to be linear mixtures of independent sources, at most one of them normal.
    Whitening makes the mixing a rotation; the rotation is found where the sources
    ``S = (X − mean_) @ components_.T`` are least like normal variables, which the average of a
    contrast G(s) measures. One step of the iteration turns every row w of the rotation to

        w⁺ = E[z g(wᵀz)] − E[g′(wᵀz)] w,   z white, g = G′,

    and then makes the rows orthonormal again, W⁺ ← (W⁺W⁺ᵀ)^{-1/2} W⁺. It is repeated until no
    row turns any more.

    The whitening is computed in float64 whatever the dtype of X. X is never copied: moments and
    expectations are summed over chunks that fit a processor's cache. Whitened data are kept only
    if they take at most 256 MiB; beyond, the whitening is folded into the rotation. The iteration
    starts from the solution for a random part of the rows (at most 512 MiB, held twice for a
    moment), and ends at a fixed point for all of them. So the memory beyond X stays below about
    1.5 GB however many rows there are.

    Parameters
    ----------
    n_components
        Number of sources. ``None`` takes as many as there are dimensions in which the data vary
        (their rank). Fewer keep the leading principal components, as in scikit-learn.
    fun
        The contrast: ``"logcosh"`` G = log cosh s (a good choice for all), ``"exp"``
        G = −exp(−s²/2) (robust, for heavy tails) or ``"cube"`` G = s⁴/4 (kurtosis; for sources
        with light tails).
    algorithm
        ``"parallel"`` turns all rows at once, ``"deflation"`` finds one after another.
    whiten
        ``"unit-variance"``, or ``False`` for data that are white already: mean 0 and covariance
        the identity, which is checked to within 0.1. (scikit-learn's ``"arbitrary-variance"``
        has no place here: its scale depends on the number of rows.)
    tol
        The iteration ends when ``1 − |cos θ|`` is below this for the angles θ by which a pass
        turned the rows, as in scikit-learn.
    max_iter
        Most passes over all rows; under deflation, for one source.
    device
        Where passes run, for example ``"cuda"``. ``None`` is where X is; arrays are on the CPU.
    dtype
        ``"float32"`` or ``"float64"``: precision of the passes. ``None`` is that of X, and
        float32 on MPS, which has no other. Moments and everything stored are float64.
    batch_size
        Rows in a chunk. ``None`` fits them to the cache.
    random_state
        Integer, ``numpy.random.RandomState`` or ``None``, as in scikit-learn: the start and the
        choice of rows for it.
    progress
        Whether a bar is shown when a fit takes longer than five seconds.

    Attributes
    ----------
    components_
        Rows turn centred data into sources, shape (n_components, n_features). This and the other
        arrays are NumPy's, in float64.
    mixing_
        Pseudo-inverse of ``components_``, shape (n_features, n_components). Sign: the entries
        m_j of a column have Σ c_j m_j³ > 0, with c_j falling from 1 to ½ over the features, so
        large entries decide and earlier ones break ties.
    mean_
        Shape (n_features,).
    whitening_
        Shape (n_components, n_features): ``(X − mean_) @ whitening_.T`` is white.
    nongaussianity_
        E[s g(s)] − E[g′(s)] of every source at the last pass, shape (n_components,): 0 for a
        normal source, by Stein's identity. With ``"logcosh"`` it is negative for heavy tails and
        positive for light ones. Sources are sorted by its absolute value, descending.
    n_iter_
        Passes over all rows; those over fewer rows, for the start, do not count.
    converged_
        Whether the last pass turned all rows by less than ``tol``.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Raises
    ------
    ValueError
        In ``fit``, if ``n_components`` exceeds the rank of the data (the message names it), or an
        option is unknown.

    Warns
    -----
    ConvergenceWarning
        If rows still turned in the last pass. Few directions that are not normal, or fewer rows
        than some multiple of n_components² are usual reasons. That the iteration converged is in
        turn no evidence that there are sources: see `stability`.

    Notes
    -----
    A fit that fails or is interrupted leaves the estimator unfitted. Arrays give arrays, tensors
    give tensors on their device; float32 and float64 are kept, other floats become float32
    (halves) and integers float64.

    References
    ----------
    Hyvärinen (1999), "Fast and robust fixed-point algorithms for independent component analysis",
    IEEE Transactions on Neural Networks 10(3); Hyvärinen and Oja (2000), "Independent component
    analysis: algorithms and applications", Neural Networks 13(4–5).
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        fun: Literal["logcosh", "exp", "cube"] = "logcosh",
        algorithm: Literal["parallel", "deflation"] = "parallel",
        whiten: Literal["unit-variance", False] = "unit-variance",
        tol: float = 1e-4,
        max_iter: int = 200,
        device: str | torch.device | None = None,
        dtype: Literal["float32", "float64"] | None = None,
        batch_size: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ) -> None:
        self.n_components = n_components
        self.fun = fun
        self.algorithm = algorithm
        self.whiten = whiten
        self.tol = tol
        self.max_iter = max_iter
        self.device = device
        self.dtype = dtype
        self.batch_size = batch_size
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any = None) -> FastICA:
        """Find the sources of X.

        Parameters
        ----------
        X
            Shape (n_samples, n_features), at least two rows: an array, a data frame or a tensor.
        y
            Ignored.

        Returns
        -------
        FastICA
            The estimator itself.
        """
        solution = self._fit(X)
        if not self.converged_:
            k = len(solution.w)
            moving = int((solution.changes >= self.tol).sum())
            warnings.warn(
                f"FastICA did not settle in max_iter={self.max_iter} passes: the last one still "
                f"turned {moving} of {k} components by 1 − |cos| >= tol={self.tol:g} (largest "
                f"{solution.changes.max():.1g}). Either the data hold fewer than {k} directions "
                "that are not normal, which stability() tells, or more rows or a larger max_iter "
                "are needed",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def transform(self, X: Any) -> Any:
        """Return the sources ``(X − mean_) @ components_.T``.

        Parameters
        ----------
        X
            Shape (n_samples, n_features).

        Returns
        -------
        numpy.ndarray or torch.Tensor
            Shape (n_samples, n_components); computed in float64, returned in the dtype of X.
        """
        check_is_fitted(self)
        values = self._check_data(X, reset=False)
        result = self._map(values, self.mean_, self.components_.T, 0.0)
        return _like(X, result)

    def inverse_transform(self, X: Any) -> Any:
        """Return the data that have given sources, ``S @ mixing_.T + mean_``.

        Parameters
        ----------
        X
            Sources S, shape (n_samples, n_components).

        Returns
        -------
        numpy.ndarray or torch.Tensor
            Shape (n_samples, n_features); computed in float64, returned in the dtype of S.
        """
        check_is_fitted(self)
        k = len(self.components_)
        values = X if isinstance(X, torch.Tensor) else np.asarray(X)
        if values.ndim != 2 or values.shape[1] != k:
            raise ValueError(f"sources must have shape (n, {k}), got {tuple(values.shape)}")
        check_finite("sources", values)
        if not isinstance(values, torch.Tensor) and np.iscomplexobj(values):
            raise ValueError("Complex data not supported: sources must hold real numbers")
        return _like(X, self._map(_as_floats(values), np.zeros(k), self.mixing_.T, self.mean_))

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _fit(self, X: Any) -> Solution:
        # Results of an earlier fit must not survive one that fails.
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        self._check_options()
        values = self._check_data(X, reset=True)
        rows = self._rows(values)
        given = torch.float32 if str(values.dtype).endswith("float32") else torch.float64
        dtype = given if self.dtype is None else getattr(torch, self.dtype)
        if rows.device.type == "mps":
            dtype = torch.float32
        rng = check_random_state(self.random_state)
        with _Progress(self.progress) as bar:
            bar.describe("moments")
            full = whiten(rows, given, bar.advance)
            k = self._n_components(full)
            whitening = full.keep(k)
            if self.whiten is False:
                whitening = self._already_white(full, rows.width)
            bar.describe("whitening")
            data = apply_whitening(rows, whitening, dtype, bar.advance)
            # The random start is drawn in the space of X: it does not depend on the signs and,
            # among equal variances, the order of the principal directions.
            # Scaled first: squares of very small or large numbers leave the range of floats.
            inverse = whitening.inverse / np.abs(whitening.inverse).max(axis=0)
            inverse /= np.sqrt(np.square(inverse).sum(axis=0))
            start = rng.normal(size=(k, rows.width)) @ inverse
            solution = solve(
                data,
                decorrelate(start),
                algorithm=self.algorithm,
                fun=self.fun,
                tol=self.tol,
                max_iter=self.max_iter,
                rng=rng,
                report=bar.advance,
            )
        self._store(whitening, solution)
        return solution

    def _check_options(self) -> None:
        for name, allowed in (
            ("fun", ("logcosh", "exp", "cube")),
            ("algorithm", ("parallel", "deflation")),
            ("whiten", ("unit-variance", False)),
            ("dtype", (None, "float32", "float64")),
        ):
            value = getattr(self, name)
            if not any(value is option or value == option != 0 for option in allowed):
                raise ValueError(
                    f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}"
                )
        check_positive("tol", self.tol)
        check_integer("max_iter", self.max_iter, 1)
        if self.batch_size is not None:
            check_integer("batch_size", self.batch_size, 1)

    def _check_data(self, X: Any, *, reset: bool) -> np.ndarray | torch.Tensor:
        fewest = 2 if reset else 1
        if isinstance(X, torch.Tensor) and X.device.type == "cpu":
            X = _as_floats(X)
            X = X.numpy()
        elif isinstance(X, np.ndarray) and X.dtype == np.float16:
            X = X.astype(np.float32)
        if not isinstance(X, torch.Tensor):
            return validate_data(
                self, X, reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=fewest
            )
        X = _as_floats(X)
        if X.ndim != 2 or len(X) < fewest:
            raise ValueError(
                f"X must have two axes and at least {fewest} rows, got shape {tuple(X.shape)}"
            )
        check_finite("X", X)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return X

    def _rows(self, values: np.ndarray | torch.Tensor, *, of_fit: bool = True) -> Rows:
        home = values.device if isinstance(values, torch.Tensor) else torch.device("cpu")
        device = resolve_device(self.device) if of_fit and self.device is not None else home
        if isinstance(values, torch.Tensor) and device.type == "cpu":
            values = values.cpu().numpy()
        return Rows(values, device, self.batch_size)

    def _n_components(self, full: Whitening) -> int:
        rank, (n_features,) = full.rank, full.mean.shape
        if rank == 0:
            raise ValueError("X has rank 0: its rows are equal, so there are no sources to find")
        if self.n_components is None:
            return rank
        wanted = check_integer("n_components", self.n_components, 1)
        if wanted > rank:
            raise ValueError(
                f"n_components={wanted} exceeds the rank of the data: after centring, the rows of "
                f"X vary in {rank} of {n_features} dimensions; ask for at most {rank}, or None "
                "for all of them"
            )
        return wanted

    def _already_white(self, full: Whitening, width: int) -> Whitening:
        if self.n_components not in (None, width):
            raise ValueError(
                f"whiten=False leaves all {width} dimensions, got n_components={self.n_components}"
            )
        covariance = full.inverse @ full.inverse.T
        off = max(np.abs(full.mean).max(), np.abs(covariance - np.eye(width)).max())
        if off > WHITE_TOLERANCE:
            raise ValueError(
                "whiten=False is for data of mean 0 whose covariance is the identity; an entry of "
                f"these is off by {off:.2g} (allowed {WHITE_TOLERANCE}). Use "
                "whiten='unit-variance'"
            )
        identity = np.eye(width)
        return Whitening(np.zeros(width), identity, identity, np.full(width, 1 / width))

    def _store(self, whitening: Whitening, solution: Solution) -> None:
        order = np.argsort(-np.abs(solution.gap), kind="stable")
        w = solution.w[order]
        mixing = whitening.inverse @ w.T
        weights = np.linspace(1, 0.5, len(mixing))[:, None]
        peaks = np.abs(mixing).max(axis=0)
        signs = np.where((weights * (mixing / peaks) ** 3).sum(axis=0) < 0, -1.0, 1.0)
        self.mixing_ = mixing * signs
        self.mean_ = whitening.mean
        self.whitening_ = whitening.matrix
        self.nongaussianity_ = solution.gap[order]
        self.n_iter_ = solution.n_iter
        self.converged_ = bool((solution.changes < self.tol).all())
        self.components_ = signs[:, None] * (w @ whitening.matrix)

    def _map(
        self,
        values: np.ndarray | torch.Tensor,
        shift: np.ndarray,
        matrix: np.ndarray,
        offset: np.ndarray | float,
    ) -> torch.Tensor:
        rows = self._rows(values, of_fit=False)
        precise = high_precision(rows.device)
        matrix_ = torch.from_numpy(np.ascontiguousarray(matrix)).to(precise)
        offset_ = torch.as_tensor(offset, dtype=torch.float64).to(precise)
        kind = str(values.dtype).removeprefix("torch.")
        if isinstance(rows.values, np.ndarray):
            result = torch.from_numpy(np.empty((len(rows), matrix.shape[1]), dtype=kind))
        else:
            result = torch.empty(
                len(rows), matrix.shape[1], dtype=rows.values.dtype, device=rows.device
            )
        for index in rows.slices(max(matrix.shape), torch.float64):
            chunk = rows.take(index, shift, torch.float64) @ matrix_ + offset_
            result[index] = chunk.to(result.dtype).to(result.device)
        return result


class _Progress:
    """A bar over rows read, with the change of the last pass beside it."""

    def __init__(self, shown: bool) -> None:
        self._bar = progress_bar(show=shown, desc="FastICA", unit=" rows", unit_scale=True)
        self._passes = 0

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()

    def describe(self, what: str) -> None:
        self._bar.set_description(f"FastICA, {what}", refresh=False)

    def advance(self, n_rows: int, change: float | None = None) -> None:
        self._bar.update(n_rows)
        if change is not None:
            self._passes += 1
            self.describe(f"pass {self._passes}, change {change:.0e}")


def _like(given: Any, result: torch.Tensor) -> Any:
    return result if isinstance(given, torch.Tensor) else result.numpy()


def _as_floats(values: Any) -> Any:
    # Halves become float32; anything else that is not a float becomes float64.
    if isinstance(values, torch.Tensor):
        if values.is_complex():
            raise ValueError("Complex data not supported: X must hold real numbers")
        values = values.detach()
        if values.dtype in (torch.float32, torch.float64):
            return values
        is_half = values.is_floating_point()
        return values.to(torch.float32 if is_half or values.device.type == "mps" else torch.float64)
    if values.dtype in (np.float32, np.float64):
        return values
    return values.astype(np.float32 if values.dtype == np.float16 else np.float64)
