"""Wrong but plausible solutions of this homework: the tests must fail each.

The first line of a docstring says what is wrong, for a marker's comment.
"""

from itertools import permutations

import numpy as np
from scipy.optimize import linear_sum_assignment


def _unit(points):
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def _around(centres, drop, across):
    across = across - np.sum(across * centres, axis=1, keepdims=True) * centres
    across = _unit(across)
    return (1 - drop) * centres + np.sqrt(drop * (2 - drop)) * across


def _drop(size, kappa, rng):
    share = rng.uniform(size=(size, 1))
    return -np.log1p(share * np.expm1(-2 * kappa)) / kappa


def exponential_tail(centres, kappa, rng):
    """Take 1 - w as exponential: right for large κ, cut off at no -1."""
    drop = np.minimum(rng.exponential(1 / kappa, size=(len(centres), 1)), 2)
    return _around(centres, drop, rng.normal(size=centres.shape))


def normal_noise_projected(centres, kappa, rng):
    """Add normal noise of variance 1/κ and normalise: another law."""
    return _unit(centres + rng.normal(size=centres.shape) / np.sqrt(kappa))


def overflowing_inverse(centres, kappa, rng):
    """Invert the distribution function with e^κ, which overflows at 710."""
    share = rng.uniform(size=(len(centres), 1))
    w = np.log(np.exp(-kappa) + 2 * share * np.sinh(kappa)) / kappa
    return _around(centres, 1 - w, rng.normal(size=centres.shape))


def uniform_cube_across(centres, kappa, rng):
    """Take the direction around the centre from a cube: not uniform."""
    across = rng.uniform(-1, 1, size=centres.shape)
    return _around(centres, _drop(len(centres), kappa, rng), across)


def fixed_axis_across(centres, kappa, rng):
    """Build the frame from the third axis: no frame where it is the centre."""
    first = np.cross(centres, [0.0, 0.0, 1.0])
    first = first / np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(centres, first)
    angle = rng.uniform(0, 2 * np.pi, size=(len(centres), 1))
    across = np.cos(angle) * first + np.sin(angle) * second
    return _around(centres, _drop(len(centres), kappa, rng), across)


def angle_on_a_circle(centres, kappa, rng):
    """Draw the angle by the law on a circle: the factor sin θ is missing."""
    angle = rng.vonmises(0, kappa, size=(len(centres), 1))
    return _around(centres, 1 - np.cos(angle), rng.normal(size=centres.shape))


def _fit(z, codes, seen, offset=True):
    parts = [codes, np.ones(len(codes))] if offset else [codes]
    design = np.column_stack(parts)
    return design @ np.linalg.lstsq(design[seen], z[seen], rcond=None)[0]


def _halves(size, rng):
    order = rng.permutation(size)
    return order[: size // 2], order[size // 2 :]


def _r2(z, guess):
    errors = np.sum((z - guess) ** 2, axis=0)
    return 1 - errors / np.sum((z - z.mean(axis=0)) ** 2, axis=0)


def measured_where_it_was_fitted(z, codes, rng):
    """Measure on rows that the fit has seen: 1 with enough columns."""
    seen, _ = _halves(len(z), rng)
    return float(_r2(z[seen], _fit(z, codes, seen)[seen]).mean())


def no_offset(z, codes, rng):
    """Fit a linear map without an offset."""
    seen, aside = _halves(len(z), rng)
    return float(
        _r2(z[aside], _fit(z, codes, seen, offset=False)[aside]).mean()
    )


def squared_correlation(z, codes, rng):
    """Square the correlation with the prediction: never negative."""
    seen, aside = _halves(len(z), rng)
    guess = _fit(z, codes, seen)
    pairs = zip(z[aside].T, guess[aside].T, strict=True)
    return float(np.mean([np.corrcoef(*pair)[0, 1] ** 2 for pair in pairs]))


def pooled_variance(z, codes, rng):
    """Divide all errors by all variance: the widest latent decides."""
    seen, aside = _halves(len(z), rng)
    guess = _fit(z, codes, seen)[aside]
    errors = np.sum((z[aside] - guess) ** 2)
    return float(1 - errors / np.sum((z[aside] - z[aside].mean(axis=0)) ** 2))


def first_half_against_second(z, codes, rng):
    """Split the rows in the order they come in."""
    seen, aside = np.split(np.arange(len(z)), [len(z) // 2])
    return float(_r2(z[aside], _fit(z, codes, seen)[aside]).mean())


def clipped_at_zero(z, codes, rng):
    """Hide that a fit to noise is worse than the mean."""
    seen, aside = _halves(len(z), rng)
    return float(
        np.clip(_r2(z[aside], _fit(z, codes, seen)[aside]), 0, 1).mean()
    )


def rotation_only(z, codes):
    """Force the determinant to be one: no mirror is found."""
    left, _, right = np.linalg.svd(codes.T @ z)
    left[:, -1] *= np.linalg.det(left @ right)
    return left @ right


def other_way_round(z, codes):
    """Return the transpose, which takes codes to latents."""
    left, _, right = np.linalg.svd(z.T @ codes)
    return left @ right


def least_squares(z, codes):
    """Fit any matrix: it is orthogonal only if there is no noise."""
    return np.linalg.lstsq(z, codes, rcond=None)[0].T


def least_squares_made_orthogonal(z, codes):
    """Take the nearest orthogonal matrix to the least-squares one.

    It is the best only if the latents are white.
    """
    left, _, right = np.linalg.svd(least_squares(z, codes))
    return left @ right


def _sizes(z, codes):
    with np.errstate(divide="ignore", invalid="ignore"):
        table = np.corrcoef(z.T, codes.T)[: z.shape[1], z.shape[1] :]
    return np.nan_to_num(table)


def _score(size, codes_of):
    return float(size[np.arange(len(size)), codes_of].mean()), codes_of


def greedy(z, codes):
    """Match the largest correlation first: the sum need not be the greatest."""
    size = np.abs(_sizes(z, codes))
    left, codes_of = size.copy(), np.zeros(len(size), dtype=int)
    for _ in range(len(size)):
        row, column = np.unravel_index(np.argmax(left), left.shape)
        codes_of[row] = column
        left[row], left[:, column] = -1, -1
    return _score(size, codes_of)


def best_code_of_each_latent(z, codes):
    """Take the largest correlation of each row: a code may be used twice."""
    size = np.abs(_sizes(z, codes))
    return _score(size, size.argmax(axis=1))


def signs_count(z, codes):
    """Forget the absolute value: a code with the wrong sign is lost."""
    size = _sizes(z, codes)
    return _score(size, linear_sum_assignment(size, maximize=True)[1])


def squares(z, codes):
    """Average squared correlations."""
    size = _sizes(z, codes) ** 2
    return _score(size, linear_sum_assignment(size, maximize=True)[1])


def cosines(z, codes):
    """Forget the means: a shift of a code changes the score."""
    size = np.abs(z.T @ codes)
    size /= np.outer(np.linalg.norm(z, axis=0), np.linalg.norm(codes, axis=0))
    return _score(size, linear_sum_assignment(size, maximize=True)[1])


def constant_code_is_nan(z, codes):
    """Divide by the deviation of a code that does not vary."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.abs(np.corrcoef(z.T, codes.T)[: z.shape[1], z.shape[1] :])
    orders = permutations(range(codes.shape[1]), z.shape[1])
    return _score(size, np.array(max(orders, key=lambda p: _score(size, p)[0])))


def _mean_cosine(z_x, z_t):
    return np.mean(np.sum(z_x * z_t, axis=1))


def _beta(target):
    """Solve coth β - 1/β = target by bisection."""
    low, high = -12.0, 25.0
    for _ in range(200):
        middle = (low + high) / 2
        beta = np.exp(middle)
        below = 1 / np.tanh(beta) - 1 / beta < target
        low, high = (middle, high) if below else (low, middle)
    return float(np.exp(low))


def approximation_in_three_dimensions(z_x, z_t):
    """Use the textbook's r (3 - r²) / (1 - r²): off by up to a few per cent."""
    r = _mean_cosine(z_x, z_t)
    return np.inf if r <= 0 else float((1 - r**2) / (r * (3 - r**2)))


def inverse_temperature(z_x, z_t):
    """Return β, the inverse of what was asked for."""
    r = _mean_cosine(z_x, z_t)
    return np.inf if r <= 0 else _beta(r)


def sharp_limit(z_x, z_t):
    """Use coth β = 1: τ is one minus the mean cosine, for sharp laws only."""
    r = _mean_cosine(z_x, z_t)
    return np.inf if r <= 0 else float(1 - r)


def coarse_grid(z_x, z_t):
    """Take the best of a grid of temperatures."""
    r = _mean_cosine(z_x, z_t)
    beta = np.geomspace(0.01, 300, 400)
    log_m = beta + np.log1p(-np.exp(-2 * beta)) - np.log(2 * beta)
    return np.inf if r <= 0 else float(1 / beta[np.argmin(log_m - beta * r)])


def all_pairs(z_x, z_t):
    """Average over all pictures and captions, not over the pairs."""
    r = np.mean(z_x @ z_t.T)
    return np.inf if r <= 0 else 1 / _beta(r)


def no_negative_cosine(z_x, z_t):
    """Return a number where no temperature is best."""
    return 1 / _beta(abs(_mean_cosine(z_x, z_t)))


def _apart(z_x, z_t, weight, first, second):
    return tuple(
        np.column_stack([weight * z, np.tile(rest, (len(z), 1))])
        for z, rest in ((z_x, first), (z_t, second))
    )


def _check(q, gap):
    length = np.sqrt(1 - q)
    if not 0 <= gap <= 2 * length:
        raise ValueError("the gap is too large")
    return length


def half_the_gap(z_x, z_t, q, gap):
    """Put each side a gap away from the middle: the gap doubles or is cut."""
    length = _check(q, gap)
    up = min(gap, length)
    side = np.sqrt(length**2 - up**2)
    return _apart(z_x, z_t, np.sqrt(q), [side, up], [side, -up])


def share_without_root(z_x, z_t, q, gap):
    """Scale the latents by q: their product then has q², not q."""
    _check(q, gap)
    length = np.sqrt(1 - q**2)
    half = np.arcsin(gap / (2 * length))
    first = length * np.array([np.cos(half), np.sin(half)])
    return _apart(z_x, z_t, q, first, first * [1, -1])


def always_as_far_as_possible(z_x, z_t, q, gap):
    """Take opposite directions whatever the gap."""
    length = _check(q, gap)
    return _apart(z_x, z_t, np.sqrt(q), [0.0, length], [0.0, -length])


def not_of_unit_length(z_x, z_t, q, gap):
    """Move images by the gap and leave the captions: no longer unit vectors."""
    _check(q, gap)
    return _apart(z_x, z_t, np.sqrt(q), [gap, 0.0], [0.0, 0.0])


def any_gap_is_allowed(z_x, z_t, q, gap):
    """Cut a gap that cannot be at the largest one, and say nothing."""
    length = np.sqrt(1 - q)
    half = np.arcsin(np.clip(gap / (2 * length), 0, 1))
    first = length * np.array([np.cos(half), np.sin(half)])
    return _apart(z_x, z_t, np.sqrt(q), first, first * [1, -1])


# Cell of the solution: the name it defines, and wrong functions for it.
WRONG_SOLUTIONS = {
    "sampler": (
        "sample_vmf",
        [
            exponential_tail,
            normal_noise_projected,
            overflowing_inverse,
            uniform_cube_across,
            fixed_axis_across,
            angle_on_a_circle,
        ],
    ),
    "r2": (
        "held_out_r2",
        [
            measured_where_it_was_fitted,
            no_offset,
            squared_correlation,
            pooled_variance,
            first_half_against_second,
            clipped_at_zero,
        ],
    ),
    "rotation": (
        "best_rotation",
        [
            rotation_only,
            other_way_round,
            least_squares,
            least_squares_made_orthogonal,
        ],
    ),
    "mcc": (
        "mcc",
        [
            greedy,
            best_code_of_each_latent,
            signs_count,
            squares,
            cosines,
            constant_code_is_nan,
        ],
    ),
    "temperature": (
        "best_temperature",
        [
            no_negative_cosine,
            approximation_in_three_dimensions,
            inverse_temperature,
            sharp_limit,
            coarse_grid,
            all_pairs,
        ],
    ),
    "apart": (
        "encode_apart",
        [
            any_gap_is_allowed,
            half_the_gap,
            share_without_root,
            always_as_far_as_possible,
            not_of_unit_length,
        ],
    ),
}
