"""Special functions, draws and integrals behind the laws on the sphere.

`von_mises_fisher_log_normalizer` and `von_mises_fisher_mean_resultant_length` are public
through `tutorials_lib.latents`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tutorials_lib._validation import check_integer, check_positive

__all__ = [
    "LOG_2PI",
    "check_concentration",
    "draw_von_mises_fisher",
    "log_mean_exponential",
    "log_sphere_area",
    "one_minus_cosine",
    "projected_laplace_log_integral",
    "projected_normal_log_integral",
    "von_mises_fisher_log_normalizer",
    "von_mises_fisher_mean_resultant_length",
]

LOG_2PI = math.log(2 * math.pi)


# --- von Mises-Fisher: normaliser, resultant length and sampler ------------------------------


def check_concentration(kappa: Any) -> float:
    """Return kappa as a float, from 0 to 1e100."""
    try:
        kappa = check_positive("kappa", kappa, allow_zero=True)
    except ValueError as error:
        raise ValueError(f"{error}; for no coupling use kappa=0") from None
    if kappa > 1e100:
        raise ValueError(f"kappa must be at most 1e100, got {kappa:g}; beyond it z_t equals z_x")
    return kappa


def _debye_terms(order: int) -> list[tuple[int, int, float]]:
    """Return (k, j, u_kj) with U_k(p) = sum_j u_kj p^(k + 2j), for k <= order [DLMF 10.41.9]."""
    terms = [(0, 0, 1.0)]
    previous = {0: 1.0}
    for k in range(1, order + 1):
        current: dict[int, float] = {}
        for power, u in previous.items():
            for shift, factor in (
                (1, power / 2 + 1 / (8 * (power + 1))),
                (3, -power / 2 - 5 / (8 * (power + 3))),
            ):
                current[power + shift] = current.get(power + shift, 0.0) + factor * u
        terms += [(k, (power - k) // 2, u) for power, u in sorted(current.items())]
        previous = current
    return terms


_DEBYE = _debye_terms(9)


def _debye_sum(nu: float, radius: float) -> tuple[float, float]:
    """Return S and dS/dradius for S = sum_k U_k(nu / radius) / nu^k, also at nu = 0."""
    value = slope = 0.0
    for k, j, u in _DEBYE:
        term = u * (nu / radius) ** (2 * j) * radius**-k
        value += term
        slope -= (k + 2 * j) * term / radius
    return value, slope


def _use_series(dim: int, kappa: float) -> bool:
    return kappa <= 100 or kappa * kappa <= 40 * dim


def _series(dim: int, kappa: float) -> float:
    """Return M - 1 for M = 0F1(; dim/2; kappa^2/4), a sum of positive terms."""
    k = np.arange(1, 400)
    return float(np.cumprod((kappa / 2) ** 2 / (k * (k - 1 + dim / 2))).sum())


def log_mean_exponential(dim: int, kappa: float) -> tuple[float, float]:
    """Return log M and log M - kappa, M = E exp(kappa w), w one coordinate of the sphere.

    M = Gamma(nu + 1) (2/kappa)^nu I_nu(kappa) with nu = dim/2 - 1. Below kappa = 100 its power
    series has positive terms only; above, Debye's expansion holds uniformly in nu, and kappa is
    taken out analytically so that the second value keeps its absolute accuracy.
    """
    if _use_series(dim, kappa):
        log_m = math.log1p(_series(dim, kappa))
        return log_m, log_m - kappa
    nu = dim / 2 - 1
    radius = math.hypot(nu, kappa)
    scaled = (
        math.lgamma(nu + 1)
        - nu * math.log((nu + radius) / 2)
        + nu * nu / (radius + kappa)
        - 0.5 * (LOG_2PI + math.log(radius))
        + math.log(_debye_sum(nu, radius)[0])
    )
    return scaled + kappa, scaled


def log_sphere_area(dim: int) -> float:
    """Return the log area of the unit sphere in R^dim."""
    return math.log(2) + dim / 2 * math.log(math.pi) - math.lgamma(dim / 2)


def von_mises_fisher_log_normalizer(dim: int, kappa: float) -> float:
    """Return log C with C exp(kappa mu.z) a probability density on the sphere in R^dim.

    Parameters
    ----------
    dim
        Dimension of the space around the sphere, at least 2.
    kappa
        Concentration, from 0 to 1e100.

    Returns
    -------
    float
        log C(dim, kappa) = nu log kappa - (dim/2) log 2 pi - log I_nu(kappa), nu = dim/2 - 1,
        with respect to the surface measure; at kappa = 0 minus the log area.

    Raises
    ------
    ValueError
        If ``dim`` is below 2, or ``kappa`` is negative, NaN, infinite or above 1e100.

    References
    ----------
    Mardia and Jupp, Directional Statistics, 2000, section 9.3.2. Series and Debye expansion of
    I_nu: NIST DLMF 10.25.2 and 10.41.3.
    """
    dim, kappa = check_integer("dim", dim, 2), check_concentration(kappa)
    return -log_sphere_area(dim) - log_mean_exponential(dim, kappa)[0]


def von_mises_fisher_mean_resultant_length(dim: int, kappa: float) -> float:
    """Return E[mu.z] = I_{dim/2}(kappa) / I_{dim/2 - 1}(kappa) under von Mises-Fisher.

    Parameters
    ----------
    dim
        Dimension of the space around the sphere, at least 2.
    kappa
        Concentration, from 0 to 1e100.

    Returns
    -------
    float
        A number in [0, 1]. Above kappa = 100 it is the derivative of Debye's expansion, written
        as one minus a small number without cancellation.

    Raises
    ------
    ValueError
        If ``dim`` is below 2, or ``kappa`` is negative, NaN, infinite or above 1e100.

    References
    ----------
    Mardia and Jupp, Directional Statistics, 2000, section 9.3.2.
    """
    dim, kappa = check_integer("dim", dim, 2), check_concentration(kappa)
    if _use_series(dim, kappa):
        return kappa / dim * (1 + _series(dim + 2, kappa)) / (1 + _series(dim, kappa))
    nu = dim / 2 - 1
    radius = math.hypot(nu, kappa)
    value, slope = _debye_sum(nu, radius)
    complement = (nu + nu * nu / (radius + kappa)) / (nu + radius) + kappa / radius * (
        0.5 / radius - slope / value
    )
    return 1 - complement


def draw_von_mises_fisher(center: np.ndarray, kappa: float, rng: np.random.Generator) -> np.ndarray:
    """Draw one point around each row of ``center`` (n, dim) by Wood's rejection scheme.

    Works with v = 1 - cos, which stays accurate when kappa is large, and redraws only what was
    rejected (at most about a third of what is left in each round).

    References
    ----------
    Wood, Simulation of the von Mises Fisher distribution, Commun. Stat. Simul. 23, 1994.
    """
    n, dim = center.shape
    m = dim - 1
    b = (m / 2) / (kappa + math.hypot(kappa, m / 2))
    v0 = 2 * b / (1 + b)
    v = np.empty(n)
    left = np.arange(n)
    for _ in range(500):
        if left.size == 0:
            break
        first, second = rng.standard_gamma(m / 2, (2, left.size))
        proposal = 2 * b * first / (second + b * first)
        log_ratio = kappa * (v0 - proposal) + m * np.log(
            (v0 + proposal - v0 * proposal) / (v0 * (2 - v0))
        )
        accepted = log_ratio >= -rng.standard_exponential(left.size)
        v[left[accepted]] = proposal[accepted]
        left = left[~accepted]
    else:
        raise RuntimeError(f"{left.size} von Mises-Fisher draws were rejected 500 times")

    # A Householder reflection carries the equator of e1 to that of the centre. Its vector is
    # centre + sign * e1, of norm at least sqrt(2), so no centre is a special case.
    equator = rng.standard_normal((n, m))
    equator /= np.linalg.norm(equator, axis=1, keepdims=True)
    tangent = np.concatenate([np.zeros((n, 1)), equator], axis=1)
    mirror = center.copy()
    mirror[:, 0] += np.where(center[:, 0] < 0, -1.0, 1.0)
    along = (mirror * tangent).sum(axis=1) / (1 + np.abs(center[:, 0]))
    tangent -= along[:, None] * mirror
    return center * (1 - v)[:, None] + tangent * np.sqrt(v * (2 - v))[:, None]


def one_minus_cosine(z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
    """Return 1 - z.center of unit vectors, accurate when they nearly agree."""
    return 0.5 * (z - center).square().sum(dim=-1)


# --- Radial integrals of the projected laws ---------------------------------------------------


def projected_normal_log_integral(order: int, a: torch.Tensor) -> torch.Tensor:
    """Return log J_order(a), J_k(a) the integral of r^k exp(-(r - a)^2 / 2) over r > 0.

    J_{k+1} = a J_k + k J_{k-1} is stable for a >= 0. For a < 0 it is not, and the integral is
    summed in log r by the trapezoidal rule, which converges geometrically there.
    """
    return torch.where(
        a >= 0, _recursion(order, a.clamp(min=0.0)), _trapezoid(order, a.clamp(max=0.0))
    )


def _recursion(order: int, a: torch.Tensor) -> torch.Tensor:
    log_j = 0.5 * LOG_2PI + torch.special.log_ndtr(a)
    ratio = a + (-a.square() / 2 - log_j).exp()
    for k in range(1, order + 1):
        log_j = log_j + ratio.log()
        ratio = a + k / ratio
    return log_j


def _trapezoid(order: int, a: torch.Tensor) -> torch.Tensor:
    k = order + 1
    peak = 2 * k / ((a.square() + 4 * k).sqrt() - a)
    step = 0.2 / math.sqrt(k)
    total = torch.zeros_like(a)
    for s in step * np.arange(-160, 51):
        # (r - a)^2 - (peak - a)^2 with r = peak exp(s), without cancellation.
        rise = peak * math.expm1(s)
        total = total + (k * s - rise * (peak - a + rise / 2)).exp()
    return total.log() + math.log(step) + k * peak.log() - (peak - a).square() / 2


def projected_laplace_log_integral(
    z: torch.Tensor, center: torch.Tensor, scale: float
) -> torch.Tensor:
    """Return the log integral of r^(dim-1) exp(-|r z - center|_1 / scale) over r > 0.

    The points (..., dim) are broadcast. The integrand is log-concave and smooth between the
    kinks center_i / z_i, so 48 Gauss-Legendre nodes on each piece, over the range where it
    exceeds exp(-45) of its peak, give about 1e-10.
    """
    z, center = torch.broadcast_tensors(z, center)
    shape, dim = z.shape[:-1], z.shape[-1]
    # Rows are taken in blocks, because a node costs dim * (dim + 1) numbers a row.
    rows = max(1, 2_000_000 // (dim * (dim + 1)))
    blocks = zip(z.reshape(-1, dim).split(rows), center.reshape(-1, dim).split(rows), strict=True)
    return torch.cat([_laplace_block(a, b, scale) for a, b in blocks]).reshape(shape)


def _laplace_block(z: torch.Tensor, center: torch.Tensor, scale: float) -> torch.Tensor:
    power = z.shape[-1] - 1

    def log_integrand(r: torch.Tensor) -> torch.Tensor:
        distance = (r[..., None] * z[:, None] - center[:, None]).abs().sum(dim=-1)
        return power * r.log() - distance / scale

    def rises(r: torch.Tensor) -> torch.Tensor:
        pull = (z * torch.sign(r * z - center)).sum(dim=-1, keepdim=True)
        return power * scale > r * pull

    with torch.no_grad():
        start, end = z.new_zeros(len(z), 1), z.new_ones(len(z), 1)
        while bool((short := log_integrand(end) > log_integrand(end / 2) - 60).any()):
            end = torch.where(short, 2 * end, end)
        peak = _bisect(start, end, rises)
        top = log_integrand(peak)
        low = _bisect(start, peak, lambda r: log_integrand(r) < top - 45)
        high = _bisect(peak, end, lambda r: log_integrand(r) > top - 45)
    kinks = torch.nan_to_num(center / z, nan=0.0).clamp(low, high)
    edges = torch.cat([low, kinks.sort(dim=-1).values, high], dim=-1)
    left, width = edges[:, :-1], edges.diff(dim=-1)
    total = torch.zeros_like(width)
    for node, weight in zip(*np.polynomial.legendre.leggauss(48), strict=True):
        value = log_integrand(left + width * (node + 1) / 2) - top
        total = total + weight / 2 * width * value.exp()
    return total.sum(dim=-1).log() + top[:, 0]


def _bisect(
    low: torch.Tensor, high: torch.Tensor, is_left: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Return where ``is_left`` turns from true to false between ``low`` and ``high``."""
    for _ in range(55):
        middle = (low + high) / 2
        left = is_left(middle)
        low, high = torch.where(left, middle, low), torch.where(left, high, middle)
    return (low + high) / 2
