"""Wrong but plausible solutions of this homework: the tests must fail each.

The first line of a docstring says what is wrong, for a marker's comment.
"""

import numpy as np
from scipy.optimize import linear_sum_assignment


def _principal(y, mean, divisor, floor):
    centred = y - mean
    variances, axes = np.linalg.eigh(centred.T @ centred / divisor)
    kept = variances > floor * variances[-1]
    return centred, variances[kept], axes[:, kept]


def unbiased_covariance(y):
    """Divide by N - 1 where masses 1/N were agreed."""
    mean = y.mean(axis=0)
    centred, variances, axes = _principal(y, mean, len(y) - 1, 1e-10)
    v = (axes / np.sqrt(variances)).T
    return centred @ v.T, v, mean


def every_direction_kept(y):
    """Divide by variances that are zero or rounding error."""
    mean = y.mean(axis=0)
    centred, variances, axes = _principal(y, mean, len(y), -1.0)
    v = (axes / np.sqrt(np.abs(variances) + 1e-18)).T
    return centred @ v.T, v, mean


def absolute_threshold(y):
    """Drop directions below a fixed variance: data in small units vanish."""
    mean = y.mean(axis=0)
    centred, variances, axes = _principal(y, mean, len(y), -1.0)
    kept = variances > 1e-10
    v = (axes[:, kept] / np.sqrt(variances[kept])).T
    return centred @ v.T, v, mean


def columns_standardised(y):
    """Give each column variance one, and leave the correlations."""
    mean = y.mean(axis=0)
    v = np.diag(1 / y.std(axis=0))
    return (y - mean) @ v.T, v, mean


def variance_for_deviation(y):
    """Divide by the variance: the root is missing."""
    mean = y.mean(axis=0)
    centred, variances, axes = _principal(y, mean, len(y), 1e-10)
    v = (axes / variances).T
    return centred @ v.T, v, mean


def not_centred(y):
    """Whiten second moments about zero: the mean stays in."""
    mean = np.zeros(y.shape[1])
    centred, variances, axes = _principal(y, mean, len(y), 1e-10)
    v = (axes / np.sqrt(variances)).T
    return centred @ v.T, v, y.mean(axis=0)


def samples_are_columns(y):
    """Take the mean of each row: samples are rows here."""
    mean = y.mean(axis=1)
    centred, variances, axes = _principal(y.T, mean, y.shape[1], 1e-10)
    v = (axes / np.sqrt(variances)).T
    return (centred @ v.T).T, v, mean


def one_slope_for_all(w, u, contrast):
    """Average the slope over all components: each row has its own."""
    g, slope = contrast(u @ w.T)
    return g.T @ u / len(u) - slope.mean() * w


def gradient_only(w, u, contrast):
    """Leave out the term with the slope: plain gradient ascent."""
    g, _ = contrast(u @ w.T)
    return g.T @ u / len(u)


def wrong_sign(w, u, contrast):
    """Add the term with the slope."""
    g, slope = contrast(u @ w.T)
    return g.T @ u / len(u) + slope.mean(axis=0)[:, None] * w


def columns_of_w(w, u, contrast):
    """Take the columns of W as directions."""
    g, slope = contrast(u @ w)
    return g.T @ u / len(u) - slope.mean(axis=0)[:, None] * w


def sum_for_mean(w, u, contrast):
    """Sum over the rows where a mean was asked for, in one term only."""
    g, slope = contrast(u @ w.T)
    return g.T @ u - slope.mean(axis=0)[:, None] * w


def slope_for_columns(w, u, contrast):
    """Multiply the columns of W by the slopes: a transposed broadcast."""
    g, slope = contrast(u @ w.T)
    return g.T @ u / len(u) - slope.mean(axis=0) * w


def gram_schmidt(m):
    """Make the rows orthonormal one after the other: the last pays for all."""
    q, r = np.linalg.qr(m.T)
    return (q * np.sign(np.diag(r))).T


def rows_normalised(m):
    """Give each row length one, and leave the angles."""
    return m / np.linalg.norm(m, axis=1, keepdims=True)


def root_forgotten(m):
    """Multiply by the inverse of M Mᵀ, not by the inverse of its root."""
    return np.linalg.solve(m @ m.T, m)


def root_on_the_other_side(m):
    """Multiply by the root of M Mᵀ from the right, where Mᵀ M belongs."""
    values, axes = np.linalg.eigh(m @ m.T)
    return m @ (axes / np.sqrt(values)) @ axes.T


def eigenvectors(m):
    """Return the eigenvectors of M Mᵀ: orthogonal, but not near M."""
    return np.linalg.eigh(m @ m.T)[1].T


def _size(w, u):
    return np.abs(np.mean((u @ w.T) ** 4, axis=0) - 3)


def _positive(w):
    largest = np.abs(w).argmax(axis=1)
    return w * np.sign(w[np.arange(len(w)), largest])[:, None]


def kurtosis_with_its_sign(w, u):
    """Sort by kurtosis, not by its size: flat sources come last."""
    return _positive(w[np.argsort(-np.mean((u @ w.T) ** 4, axis=0))])


def rising_order(w, u):
    """Begin with the smallest kurtosis."""
    return _positive(w[np.argsort(_size(w, u))])


def order_inverted(w, u):
    """Apply the inverse of the sorting permutation: ranks, not an order."""
    return _positive(w[np.argsort(np.argsort(-_size(w, u)))])


def largest_entry_not_largest_in_size(w, u):
    """Make the sign of the largest entry positive, which it mostly is."""
    w = w[np.argsort(-_size(w, u))]
    return w * np.sign(w.max(axis=1, keepdims=True))


def first_entry_positive(w, u):
    """Make the first entry of each row positive."""
    w = w[np.argsort(-_size(w, u))]
    return w * np.where(w[:, :1] < 0, -1, 1)


def _correlations(y, b, other):
    n = len(b)
    return np.corrcoef((y @ b.T).T, (y @ other.T).T)[:n, n:]


def rows_of_the_matrices(y, b, other):
    """Compare rows of the matrices by their angle: raw data are not white."""
    rows = [m / np.linalg.norm(m, axis=1, keepdims=True) for m in (b, other)]
    size = np.abs(rows[0] @ rows[1].T)
    return float(size[linear_sum_assignment(size, maximize=True)].mean())


def as_they_come(y, b, other):
    """Compare component i with component i."""
    return float(np.abs(np.diag(_correlations(y, b, other))).mean())


def best_of_each(y, b, other):
    """Let a component be the match of several."""
    return float(np.abs(_correlations(y, b, other)).max(axis=1).mean())


def greedy(y, b, other):
    """Match the most alike first: the sum need not be the greatest."""
    size, total = np.abs(_correlations(y, b, other)), 0.0
    for _ in range(len(b)):
        row, column = np.unravel_index(size.argmax(), size.shape)
        total += size[row, column]
        size[row], size[:, column] = -1, -1
    return float(total / len(b))


def signs_count(y, b, other):
    """Match correlations, not their absolute values."""
    size = _correlations(y, b, other)
    return float(size[linear_sum_assignment(size, maximize=True)].mean())


def cosines(y, b, other):
    """Forget to centre the components."""
    one, two = y @ b.T, y @ other.T
    scale = np.outer(np.linalg.norm(one, axis=0), np.linalg.norm(two, axis=0))
    size = np.abs(one.T @ two) / scale
    return float(size[linear_sum_assignment(size, maximize=True)].mean())


def _ridge(train, targets, penalty):
    gram = train.T @ train + penalty * np.eye(train.shape[1])
    return np.linalg.solve(gram, train.T @ targets)


def features_not_centred(train, targets, new, penalty):
    """Centre the targets only: the slopes have to carry the features' mean."""
    offset = targets.mean()
    return new @ _ridge(train, targets - offset, penalty) + offset


def features_standardised(train, targets, new, penalty):
    """Standardise the features first: rotations are no longer invisible."""
    mean, scale, offset = train.mean(axis=0), train.std(axis=0), targets.mean()
    w = _ridge((train - mean) / scale, targets - offset, penalty)
    return (new - mean) / scale @ w + offset


def offset_penalised(train, targets, new, penalty):
    """Penalise the offset with the rest."""
    train, new = (np.column_stack([u, np.ones(len(u))]) for u in (train, new))
    return new @ _ridge(train, targets, penalty)


def penalty_per_row(train, targets, new, penalty):
    """Use the penalty of a mean of squares: N times too large."""
    mean, offset = train.mean(axis=0), targets.mean()
    w = _ridge(train - mean, targets - offset, penalty * len(train))
    return (new - mean) @ w + offset


def centred_by_the_new_rows(train, targets, new, penalty):
    """Centre the new rows by their own mean, which a probe must not know."""
    offset = targets.mean()
    w = _ridge(train - train.mean(axis=0), targets - offset, penalty)
    return (new - new.mean(axis=0)) @ w + offset


# Cell of the solution: the name it defines, and wrong functions for it.
WRONG_SOLUTIONS = {
    "whiten": (
        "whiten",
        [
            unbiased_covariance,
            every_direction_kept,
            absolute_threshold,
            columns_standardised,
            variance_for_deviation,
            not_centred,
            samples_are_columns,
        ],
    ),
    "step": (
        "fixed_point_step",
        [
            columns_of_w,
            one_slope_for_all,
            gradient_only,
            wrong_sign,
            sum_for_mean,
            slope_for_columns,
        ],
    ),
    "decorrelate": (
        "decorrelate",
        [
            gram_schmidt,
            rows_normalised,
            root_forgotten,
            root_on_the_other_side,
            eigenvectors,
        ],
    ),
    "canonical": (
        "canonical",
        [
            kurtosis_with_its_sign,
            order_inverted,
            rising_order,
            largest_entry_not_largest_in_size,
            first_entry_positive,
        ],
    ),
    "agreement": (
        "agreement",
        [
            greedy,
            rows_of_the_matrices,
            as_they_come,
            best_of_each,
            signs_count,
            cosines,
        ],
    ),
    "ridge": (
        "ridge_predict",
        [
            features_standardised,
            features_not_centred,
            offset_penalised,
            penalty_per_row,
            centred_by_the_new_rows,
        ],
    ),
}
