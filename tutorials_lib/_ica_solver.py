"""The fixed-point iteration of FastICA, as passes over data that are read in chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tutorials_lib._ica_whitening import (
    Report,
    Rows,
    Whitened,
    apply_whitening,
    whiten,
)

# A warm start is computed on a fraction of the rows, but on no fewer than k²/2 for k components:
# from a random start with fewer, the fixed point wanders so long that nothing is gained.
# The part chosen takes at most this many bytes (twice that while it is whitened).
COARSER, FEWEST_ROWS, PART_BYTES = 4, 2000, 2**29


def nonlinearity(fun: str, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return g(y) and the sum of g′(y) over the rows; ``y`` is overwritten.

    ``"logcosh"``: G = log cosh y, g = tanh y; ``"exp"``: G = −exp(−y²/2), g = y exp(−y²/2);
    ``"cube"``: G = y⁴/4, g = y³.
    """
    if fun == "logcosh":
        if y.device.type != "cpu":
            return y.tanh_(), len(y) - (y * y).sum(dim=0)
        # NumPy's vectorised tanh is several times as fast as the one of torch on a CPU.
        g = y.numpy()
        np.tanh(g, out=g)
        return y, len(g) - torch.from_numpy(np.einsum("ij,ij->j", g, g))
    if fun == "exp":
        square = y * y
        bell = torch.exp(-square / 2)
        return y.mul_(bell), ((1 - square) * bell).sum(dim=0)
    square = y * y
    return y.mul_(square), 3 * square.sum(dim=0)


def expectations(
    data: Whitened, w: np.ndarray, fun: str, report: Report = lambda n: None
) -> tuple[np.ndarray, np.ndarray]:
    """Compute E[g(wᵀz) zᵀ] and E[g′(wᵀz)] for every row w of a matrix, in one pass.

    Parameters
    ----------
    data
        Whitened data.
    w
        Shape (n_rows, n_components).
    fun
        Name of the contrast function.
    report
        Called with the number of rows read.

    Returns
    -------
    tuple of numpy.ndarray
        Shapes (n_rows, n_components) and (n_rows,), summed in float64.
    """
    rows = data.rows
    maps = w if data.basis is None else w @ data.basis
    maps_t = torch.from_numpy(np.ascontiguousarray(maps.T)).to(data.dtype).to(rows.device)
    sums = torch.float64 if rows.device.type != "mps" else torch.float32
    outer = torch.zeros(len(w), rows.width, dtype=sums, device=rows.device)
    slopes = torch.zeros(len(w), dtype=sums, device=rows.device)
    width = max(len(w), rows.width)
    for index in rows.slices(width, data.dtype):
        if data.basis is not None:
            chunk = rows.take(index, data.mean, data.dtype)
        elif isinstance(rows.values, np.ndarray):
            chunk = torch.from_numpy(rows.values[index]).to(rows.device)
        else:
            chunk = rows.values[index]
        g, slope = nonlinearity(fun, chunk @ maps_t)
        outer += g.T @ chunk
        slopes += slope
        report(len(chunk))
    moment = outer.cpu().numpy().astype(np.float64) / len(rows)
    if data.basis is not None:
        moment = moment @ data.basis.T
    return moment, slopes.cpu().numpy().astype(np.float64) / len(rows)


def decorrelate(w: np.ndarray) -> np.ndarray:
    """Return the orthogonal matrix nearest to ``w``: (w wᵀ)^{-1/2} w."""
    # By torch, as the passes are: the threads of NumPy's library would compete with torch's.
    rows = torch.from_numpy(np.ascontiguousarray(w))
    values, vectors = torch.linalg.eigh(rows @ rows.T)
    # Eigenvalues are squared singular values: where they differ by 1e5 the fast way is orthonormal
    # to about 1e-11, and beyond that the slow way is worth its time.
    if values[0] > 1e-5 * values[-1]:
        return ((vectors / values.sqrt()) @ (vectors.T @ rows)).numpy()
    left, _, right = torch.linalg.svd(rows, full_matrices=False)
    return (left @ right).numpy()


@dataclass(frozen=True, eq=False)
class Solution:
    """What the fixed-point iteration returns.

    Attributes
    ----------
    w
        Orthonormal rows, shape (k, k): sources are w @ z.
    gap
        E[y g(y)] − E[g′(y)] of every source, shape (k,): zero if the source is normal.
    n_iter
        Passes over all rows (the largest number for one component under deflation).
    changes
        1 − |cos| of the angle by which the last pass turned each component, shape (k,).
    """

    w: np.ndarray
    gap: np.ndarray
    n_iter: int
    changes: np.ndarray


def fixed_point(
    data: Whitened,
    w: np.ndarray,
    *,
    fun: str,
    tol: float,
    max_iter: int,
    report: Callable[..., Any] = lambda n, change=None: None,
) -> Solution:
    """Turn all components at once until none turns by more than ``tol``.

    One pass maps every row w of W to

        w⁺ = E[z g(wᵀz)] − E[g′(wᵀz)] w,

    and then W⁺ to (W⁺W⁺ᵀ)^{-1/2} W⁺, so that the sources stay uncorrelated. This is Newton's step
    for a stationary point of E[G(wᵀz)] on the sphere ‖w‖ = 1: the Lagrange condition is
    E[z g(wᵀz)] = β w with β = E[wᵀz g(wᵀz)], the Jacobian E[zzᵀ g′(wᵀz)] − β I is taken as
    (E[g′] − β) I because z is white, and the factor is left to the normalisation.

    References
    ----------
    Hyvärinen (1999), "Fast and robust fixed-point algorithms for independent component analysis",
    IEEE Transactions on Neural Networks 10(3); Hyvärinen and Oja (2000), "Independent component
    analysis: algorithms and applications", Neural Networks 13(4–5), sections 6.1 and 6.2.
    """
    n_iter, changes = 0, np.ones(len(w))
    while n_iter < max_iter and changes.max() >= tol:
        n_iter += 1
        moment, slope = expectations(data, w, fun, report)
        gap = np.einsum("ij,ij->i", moment, w) - slope
        turned = decorrelate(moment - slope[:, None] * w)
        changes = np.abs(np.abs(np.einsum("ij,ij->i", turned, w)) - 1)
        w = turned
        report(0, changes.max())
    return Solution(w, gap, n_iter, changes)


def deflation(
    data: Whitened,
    w: np.ndarray,
    *,
    fun: str,
    tol: float,
    max_iter: int,
    report: Callable[..., Any] = lambda n, change=None: None,
) -> Solution:
    """Find one component after another, each orthogonal to those before it.

    The step is that of `fixed_point`; the other rows are kept away by a projection. Errors of the
    first components are inherited by the later ones.
    """
    w = np.linalg.qr(w.T)[0].T.copy()
    gap, changes = np.zeros(len(w)), np.ones(len(w))
    n_iter = 0
    for j in range(len(w)):
        found = w[:j]
        # The start is made orthogonal to what has been found, which has moved since.
        row = _unit(w[j] - (w[j] @ found.T) @ found, w[j])
        passes, changes[j] = 0, 1.0
        while passes < max_iter and changes[j] >= tol:
            passes += 1
            moment, slope = expectations(data, row[None], fun, report)
            gap[j] = moment[0] @ row - slope[0]
            step = moment[0] - slope[0] * row
            turned = _unit(step - (step @ found.T) @ found, row)
            turned = _unit(turned - (turned @ found.T) @ found, turned)
            changes[j] = abs(abs(turned @ row) - 1)
            row = turned
            report(0, changes[j])
        w[j], n_iter = row, max(n_iter, passes)
        w[j + 1 :] -= (w[j + 1 :] @ row)[:, None] * row
    return Solution(w, gap, n_iter, changes)


def _unit(vector: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(vector)
    return vector / norm if norm > 1e-14 else otherwise


def solve(
    data: Whitened,
    w: np.ndarray,
    *,
    algorithm: str,
    rng: np.random.RandomState,
    **options: Any,
) -> Solution:
    """Run FastICA from a warm start that was computed on fewer rows, in float32.

    The start is the solution on a quarter of the rows, or on half, which is itself started so. If
    there are too few rows for that and they are in float64, the start is the solution for all rows
    in float32. What is returned is a fixed point for all rows in their own dtype, and is judged by
    a pass over all of them: only the number of such passes changes.
    """
    start = _warm_start(data, w, algorithm=algorithm, rng=rng, **options)
    iterate = fixed_point if algorithm == "parallel" else deflation
    return iterate(data, start, **options)


def _warm_start(
    data: Whitened, w: np.ndarray, *, rng: np.random.RandomState, **options: Any
) -> np.ndarray:
    n, k = len(data.rows), data.n_components
    fewest = max(FEWEST_ROWS, k**2 // 2)
    stride = next((s for s in (COARSER, 2) if n // s >= fewest), 1)
    while (n // stride) * k * 4 > PART_BYTES:
        stride *= 2
    too_few = n < FEWEST_ROWS or n // stride < min(fewest, n)
    if too_few or (stride == 1 and data.dtype == torch.float32):
        return w
    # One row at random from every run of `stride` rows.
    runs = np.arange(n // stride) * stride
    index = runs + rng.randint(stride, size=len(runs))
    rows = Rows(data.sample(index, torch.float32), data.rows.device, data.rows.batch_size)
    whitening = whiten(rows, torch.float32)
    if whitening.rank < k:
        return w
    small = apply_whitening(rows, whitening, torch.float32)
    solution = solve(small, decorrelate(w @ whitening.inverse), rng=rng, **options)
    return decorrelate(solution.w @ whitening.matrix)
