"""Data that are read in chunks, and their whitening.

Nothing here copies the data. They are read in chunks that stay in a processor's cache, and what is
kept has the size of a few matrices of (n_components, n_features) in float64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

# Rows in a chunk are chosen so that one chunk of sources takes this many bytes.
CHUNK_BYTES = {"cpu": 2**21, "cuda": 2**26, "mps": 2**26}
# Whitened data that take no more than this are kept; beyond, whitening is folded into the matrix.
WHITENED_BYTES = 2**28

Report = Callable[[int], Any]


def high_precision(device: torch.device) -> torch.device:
    """Return where float64 work is done: MPS has no float64, so its work goes to the CPU."""
    return torch.device("cpu") if device.type == "mps" else device


@dataclass(frozen=True, eq=False)
class Rows:
    """A data set that is read in chunks.

    Attributes
    ----------
    values
        Shape (n, d): an array, or a tensor on another device than the CPU.
    device
        Where the chunks go.
    batch_size
        Rows in a chunk; ``None`` chooses them from the number of columns of the result.
    """

    values: np.ndarray | torch.Tensor
    device: torch.device
    batch_size: int | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.values.shape[1])

    def slices(self, width: int, dtype: torch.dtype) -> Iterator[slice]:
        """Cut the rows into chunks for a computation with ``width`` columns."""
        step = self.batch_size
        if step is None:
            step = max(256, CHUNK_BYTES[self.device.type] // (width * dtype.itemsize))
        for start in range(0, len(self), step):
            yield slice(start, min(start + step, len(self)))

    def take(
        self, index: slice | np.ndarray, shift: np.ndarray, dtype: torch.dtype
    ) -> torch.Tensor:
        """Return some rows minus ``shift`` on the device; a new tensor, never a view."""
        device = high_precision(self.device) if dtype == torch.float64 else self.device
        if isinstance(self.values, np.ndarray):
            name = str(dtype).removeprefix("torch.")
            rows = np.subtract(self.values[index], shift.astype(name), dtype=name)
            return torch.from_numpy(np.ascontiguousarray(rows)).to(device)
        if not isinstance(index, slice):
            index = torch.from_numpy(index).to(self.values.device)
        rows = self.values[index].to(device).to(dtype)
        return rows - torch.from_numpy(shift).to(dtype).to(device)


@dataclass(frozen=True, eq=False)
class Whitening:
    """A map to decorrelated coordinates of unit variance, z = matrix @ (x − mean).

    Attributes
    ----------
    mean
        Shape (d,).
    matrix, inverse
        Shapes (rank, d) and (d, rank): the principal directions in descending order of variance,
        divided and multiplied by the standard deviations along them.
    shares
        Shares of the whole variance along the principal directions, shape (rank,).
    """

    mean: np.ndarray
    matrix: np.ndarray
    inverse: np.ndarray
    shares: np.ndarray

    @property
    def rank(self) -> int:
        """Number of directions in which the data vary."""
        return len(self.shares)

    def keep(self, n_components: int) -> Whitening:
        """Keep the leading principal directions only."""
        return Whitening(
            self.mean,
            self.matrix[:n_components],
            self.inverse[:, :n_components],
            self.shares[:n_components],
        )


def whiten(rows: Rows, precision: torch.dtype, report: Report = lambda n: None) -> Whitening:
    """Compute the whitening of the data from their moments, in float64 whatever their dtype.

    The rank is that of the correlation matrix, so it does not depend on the units of the columns:
    eigenvalues below ``max(10 d ε₆₄, (d ε)²)`` times the largest count as zero, with ε the
    precision of the data; columns whose standard deviation is below ε times their mean count as
    constant.

    Parameters
    ----------
    rows
        The data, shape (n, d).
    precision
        The dtype that the data were given in.
    report
        Called with the number of rows read.
    """
    n, d = len(rows), rows.width
    first = next(rows.slices(d, torch.float64))
    # Moments about a rough centre and in rough units (powers of two, which are exact): sums of
    # squares neither cancel nor leave the range of floats.
    shift = rows.take(first, np.zeros(d), torch.float64).mean(dim=0).cpu().numpy()
    peak = rows.take(first, shift, torch.float64).abs().amax(dim=0).cpu().numpy()
    unit = np.ldexp(1.0, np.where(peak > 0, np.frexp(peak)[1], 0))
    device = high_precision(rows.device)
    inverse_unit = torch.from_numpy(1 / unit).to(device)
    total = torch.zeros(d, dtype=torch.float64, device=device)
    products = torch.zeros(d, d, dtype=torch.float64, device=device)
    for index in rows.slices(d, torch.float64):
        chunk = rows.take(index, shift, torch.float64).mul_(inverse_unit)
        total += chunk.sum(dim=0)
        products.addmm_(chunk.T, chunk)
        report(len(chunk))
    offset = (total / n).cpu().numpy()
    covariance = (products / n).cpu().numpy() - np.outer(offset, offset)
    mean = shift + offset * unit
    deviation = np.sqrt(np.clip(np.diag(covariance), 0, None))
    if not np.isfinite(covariance).all():
        raise ValueError(
            "X spans too many orders of magnitude for its second moments to be computed; "
            "rescale its columns or remove outliers"
        )

    epsilon = torch.finfo(precision).eps
    varies = deviation > epsilon * np.abs(mean) / unit
    if not varies.any():
        return Whitening(mean, np.zeros((0, d)), np.zeros((d, 0)), np.zeros(0))
    scale = np.where(varies, deviation, 1.0)
    correlation = np.where(np.outer(varies, varies), covariance / np.outer(scale, scale), 0.0)
    values, vectors = np.linalg.eigh(correlation)
    floor = max(10 * d * np.finfo(np.float64).eps, (d * epsilon) ** 2)
    kept = values > floor * values[-1]
    # factor @ factor.T is the covariance. Its singular vectors are the principal directions, to
    # an accuracy that squaring has not halved.
    largest = unit[varies].max()
    sizes = scale * (unit / largest)
    roots = np.sqrt(values[kept])
    factor = sizes[:, None] * vectors[:, kept] * roots
    directions, deviations, turn = np.linalg.svd(factor, full_matrices=False)
    squares = np.square(deviations / deviations[0])
    shares = squares / squares.sum()
    if kept.sum() < varies.sum():
        deviations = deviations * largest
        return Whitening(mean, (directions / deviations).T.copy(), directions * deviations, shares)
    # Small singular vectors are inexact where the units of the columns differ much, but any
    # rotation of white data is white: turn @ (inverse of the factor) is the same matrix, without
    # a division by what is inexact.
    inverse = vectors[:, kept] / roots / (scale * unit)[:, None]
    return Whitening(mean, turn @ inverse.T, factor @ turn.T * largest, shares)


@dataclass(frozen=True, eq=False)
class Whitened:
    """Data in whitened coordinates z, which need not exist: rows − mean, and a basis.

    With ``basis=None`` the rows are the z themselves; else z = basis @ (row − mean).
    """

    rows: Rows
    mean: np.ndarray
    basis: np.ndarray | None
    n_components: int
    dtype: torch.dtype

    def sample(self, index: np.ndarray, dtype: torch.dtype) -> np.ndarray:
        """Return some of the z as an array of shape (len(index), n_components)."""
        name = str(dtype).removeprefix("torch.")
        if self.basis is None and isinstance(self.rows.values, np.ndarray):
            return self.rows.values[index].astype(name)
        chosen = np.empty((len(index), self.n_components), dtype=name)
        for start in range(0, len(index), 4096):
            part = index[start : start + 4096]
            z = self.rows.take(part, self.mean, torch.float64).cpu().numpy()
            chosen[start : start + 4096] = z if self.basis is None else z @ self.basis.T
        return chosen


def apply_whitening(
    rows: Rows, whitening: Whitening, dtype: torch.dtype, report: Report = lambda n: None
) -> Whitened:
    """Whiten data: for real if the result takes at most `WHITENED_BYTES`, else in the algebra."""
    k = len(whitening.matrix)
    if len(rows) * k * dtype.itemsize > WHITENED_BYTES:
        return Whitened(rows, whitening.mean, whitening.matrix, k, dtype)
    matrix = torch.from_numpy(whitening.matrix.T.copy()).to(high_precision(rows.device))
    if rows.device.type == "cpu":
        values = np.empty((len(rows), k), dtype=str(dtype).removeprefix("torch."))
        z = torch.from_numpy(values)
    else:
        values = z = torch.empty(len(rows), k, dtype=dtype, device=rows.device)
    for index in rows.slices(rows.width, torch.float64):
        chunk = rows.take(index, whitening.mean, torch.float64) @ matrix
        z[index] = chunk.to(dtype).to(z.device)
        report(len(z[index]))
    kept = dataclasses.replace(rows, values=values)
    return Whitened(kept, np.zeros(k), None, k, dtype)
