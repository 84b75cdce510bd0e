"""FastICA on torch as a scikit-learn estimator, and what to check before believing its sources.

`FastICA` finds sources; `stability` and `negentropy` tell whether there is anything to find;
`recommend_pipeline` chooses between FastICA on all dimensions, PCA first, and neither;
`center_by` removes the means of groups, such as modalities, that would become a source.
"""

from __future__ import annotations

import numbers
from typing import Literal

import numpy as np
import torch

from tutorials_lib._ica_estimator import FastICA
from tutorials_lib._ica_evidence import (
    StabilityResult,
    negentropy,
    negentropy_null_level,
    stability,
)
from tutorials_lib._ica_recommend import Recommendation, center_by, group_means, recommend_pipeline
from tutorials_lib._ica_solver import Solution
from tutorials_lib._ica_whitening import Whitening
from tutorials_lib._validation import check_positive

__all__ = [
    "FastICA",
    "PCAFastICA",
    "Recommendation",
    "StabilityResult",
    "center_by",
    "group_means",
    "negentropy",
    "negentropy_null_level",
    "recommend_pipeline",
    "stability",
]


class PCAFastICA(FastICA):
    """PCA to k dimensions, then FastICA on them.

    FastICA whitens by PCA already, so the two steps are one: the scores of X on its first k
    principal components have a diagonal covariance, whitening them is a division by their
    standard deviations, and the result is the whitened data of ``FastICA(n_components=k)``.
    *PCAFastICA(k) and FastICA(k) therefore have the same sources*, and whether the PCA itself
    whitens makes no difference. What does differ is FastICA on all dimensions: there the
    directions of smallest variance, whitened, weigh as much as the largest.

    The only thing this class adds is that k may be given as a share of the variance, and that
    the variances are reported. (A PCA of other data, or about another centre, or of columns that
    were scaled first, would be another method; do that beforehand.)

    Parameters
    ----------
    n_components
        Number k of principal components, or the share of the variance, in (0, 1), that they must
        hold together: then k is the smallest that does.
    fun, algorithm, whiten, tol, max_iter, device, dtype, batch_size, random_state, progress
        As in `FastICA`; ``whiten=False`` is refused.

    Attributes
    ----------
    n_components_
        The k used.
    explained_variance_ratio_
        Shares of the variance along the k principal components, descending.
    components_, mixing_, mean_, whitening_, nongaussianity_, n_iter_, converged_
        As in `FastICA`.
    """

    def __init__(
        self,
        n_components: int | float = 0.95,
        *,
        fun: Literal["logcosh", "exp", "cube"] = "logcosh",
        algorithm: Literal["parallel", "deflation"] = "parallel",
        whiten: Literal["unit-variance"] = "unit-variance",
        tol: float = 1e-4,
        max_iter: int = 200,
        device: str | torch.device | None = None,
        dtype: Literal["float32", "float64"] | None = None,
        batch_size: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = True,
    ) -> None:
        super().__init__(
            n_components,
            fun=fun,
            algorithm=algorithm,
            whiten=whiten,
            tol=tol,
            max_iter=max_iter,
            device=device,
            dtype=dtype,
            batch_size=batch_size,
            random_state=random_state,
            progress=progress,
        )

    def _n_components(self, full: Whitening) -> int:
        if self.whiten is False:
            raise ValueError("whiten=False leaves nothing for PCA to do; use FastICA")
        if self.n_components is None:
            raise ValueError("n_components must be an integer or a share of the variance, got None")
        share = self.n_components
        if isinstance(share, numbers.Integral) or full.rank == 0:
            return super()._n_components(full)
        if not 0 < check_positive("n_components", share) < 1:
            raise ValueError(
                f"n_components must be an integer or a share of the variance in (0, 1), got {share}"
            )
        held = np.cumsum(full.shares)
        return min(int(np.searchsorted(held, share)) + 1, full.rank)

    def _store(self, whitening: Whitening, solution: Solution) -> None:
        super()._store(whitening, solution)
        self.n_components_ = len(self.components_)
        self.explained_variance_ratio_ = whitening.shares
