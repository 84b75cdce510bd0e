"""Laws of the coupled latents: marginals, conditionals, their densities and exact PMI.

A `Coupling` joins the law of ``z_x`` (a `Law`) with the law of ``z_t`` given ``z_x`` (a
`ConditionalLaw`). Points are torch tensors whose last axis is the latent dimension. Densities
are computed and returned in float64, broadcast over the leading axes, and are differentiable.
Draws are made by NumPy, whose gamma and beta samplers take an explicit generator; the seed of
that generator comes from the seed or the torch generator that the caller gives.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy import special

from tutorials_lib._validation import as_generator, check_finite, check_integer, check_positive

__all__ = [
    "AdditiveGeneralizedNormal",
    "AdditiveLaplace",
    "AdditiveNormal",
    "BinaryAttributes",
    "ClippedLaplace",
    "ClippedLaplaceStationary",
    "ConditionalLaw",
    "Coupling",
    "GeneralizedNormal",
    "Laplace",
    "Law",
    "Normal",
    "ProductOfCircles",
    "ProductOfVonMises",
    "ProjectedLaplace",
    "ProjectedNormal",
    "SignFlip",
    "TruncatedGeneralizedNormal",
    "TruncatedLaplace",
    "TruncatedNormal",
    "UniformBox",
    "UniformSphere",
    "VonMisesFisher",
    "von_mises_fisher_log_normalizer",
    "von_mises_fisher_mean_resultant_length",
]

_LOG_2PI = math.log(2 * math.pi)
# A point counts as being on the sphere, or in the box, within this: float32 rounding passes.
_TOLERANCE = 1e-5


# --- Small shared parts ---------------------------------------------------------------------


def _numpy_generator(seed: int | torch.Generator) -> np.random.Generator:
    """Return a NumPy generator seeded by the next 63 bits of the torch one."""
    generator = as_generator(seed)
    bits = torch.randint(2**63 - 1, (1,), generator=generator, device=generator.device)
    return np.random.default_rng(int(bits))


def _check_dtype(dtype: Any) -> None:
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"dtype must be torch.float32 or torch.float64, got {dtype}")


def _points(name: str, z: Any, dim: int | None = None) -> torch.Tensor:
    """Return points in float64 after checking type, shape and finiteness."""
    if not isinstance(z, torch.Tensor) or z.dtype not in (torch.float32, torch.float64):
        kind = z.dtype if isinstance(z, torch.Tensor) else type(z).__name__
        raise TypeError(f"{name} must be a torch tensor of float32 or float64, got {kind}")
    if z.ndim == 0 or z.shape[-1] < 1 or (dim is not None and z.shape[-1] != dim):
        wanted = "the latent dimension" if dim is None else str(dim)
        raise ValueError(
            f"{name} must have a last axis of {wanted} coordinates, got shape {tuple(z.shape)}"
        )
    check_finite(name, z)
    return z.double()


def _on_sphere(name: str, z: Any, dim: int | None = None) -> torch.Tensor:
    z = _points(name, z, dim)
    if z.shape[-1] < 2:
        raise ValueError(f"{name} must have at least 2 coordinates to lie on a sphere, got 1")
    norm = z.norm(dim=-1, keepdim=True)
    off = int(((norm - 1).abs() > _TOLERANCE).sum())
    if off:
        worst = float(norm.flatten()[(norm.detach() - 1).abs().argmax()])
        raise ValueError(
            f"{name} must have unit norm, got {off} of {norm.numel()} points off the sphere "
            f"(the furthest has norm {worst:.6g}); divide by the norm first"
        )
    return z / norm


def _in_box(name: str, z: Any, low: float, high: float) -> torch.Tensor:
    z = _points(name, z)
    slack = _TOLERANCE * (high - low)
    off = int(((z < low - slack) | (z > high + slack)).sum())
    if off:
        raise ValueError(
            f"{name} must lie between {low:g} and {high:g} in every coordinate, got {off} of "
            f"{z.numel()} coordinates outside"
        )
    return z.clamp(low, high)


def _on_circles(name: str, z: Any, dim: int | None = None) -> torch.Tensor:
    """Return the circles of a product of circles as unit vectors of shape (..., circles, 2)."""
    z = _points(name, z, dim)
    if z.shape[-1] % 2:
        raise ValueError(f"{name} must have two coordinates per circle, got {z.shape[-1]}")
    circles = z.shape[-1] // 2
    pairs = z.unflatten(-1, (circles, 2)) * math.sqrt(circles)
    return _on_sphere(f"each circle of {name}, times sqrt({circles}),", pairs)


def _signs(name: str, z: Any, dim: int | None = None) -> torch.Tensor:
    z = _points(name, z, dim)
    scaled = z * math.sqrt(z.shape[-1])
    off = int(((scaled.abs() - 1).abs() > _TOLERANCE).sum())
    if off:
        raise ValueError(
            f"{name} must have coordinates +-1/sqrt({z.shape[-1]}), got {off} of {z.numel()} "
            "that are not"
        )
    return scaled


def _interval(low: Any, high: Any) -> tuple[float, float]:
    for name, value in (("low", low), ("high", high)):
        check_finite(name, value)
    if not float(low) < float(high):
        raise ValueError(f"low must be below high, got low={low!r} and high={high!r}")
    return float(low), float(high)


def _concentration(kappa: Any) -> float:
    try:
        kappa = check_positive("kappa", kappa, allow_zero=True)
    except ValueError as error:
        raise ValueError(f"{error}; for no coupling use kappa=0") from None
    if kappa > 1e100:
        raise ValueError(f"kappa must be at most 1e100, got {kappa:g}; beyond it z_t equals z_x")
    return kappa


# --- Sphere: normaliser, resultant length and sampler of von Mises-Fisher -------------------


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


def _log_mean_exponential(dim: int, kappa: float) -> tuple[float, float]:
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
        - 0.5 * (_LOG_2PI + math.log(radius))
        + math.log(_debye_sum(nu, radius)[0])
    )
    return scaled + kappa, scaled


def _log_sphere_area(dim: int) -> float:
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
    dim, kappa = check_integer("dim", dim, 2), _concentration(kappa)
    return -_log_sphere_area(dim) - _log_mean_exponential(dim, kappa)[0]


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
    dim, kappa = check_integer("dim", dim, 2), _concentration(kappa)
    if _use_series(dim, kappa):
        return kappa / dim * (1 + _series(dim + 2, kappa)) / (1 + _series(dim, kappa))
    nu = dim / 2 - 1
    radius = math.hypot(nu, kappa)
    value, slope = _debye_sum(nu, radius)
    complement = (nu + nu * nu / (radius + kappa)) / (nu + radius) + kappa / radius * (
        0.5 / radius - slope / value
    )
    return 1 - complement


def _draw_von_mises_fisher(
    center: np.ndarray, kappa: float, rng: np.random.Generator
) -> np.ndarray:
    """Draw one point around each row of ``center`` (n, dim) by Wood's rejection scheme.

    Works with v = 1 - cos, which stays accurate when kappa is large, and redraws only what was
    rejected (at most about a third of what is left in each round).
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


def _one_minus_cosine(z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
    """Return 1 - z.center of unit vectors, accurate when they nearly agree."""
    return 0.5 * (z - center).square().sum(dim=-1)


# --- Generalised normal noise: density exp(-|u / width|^shape) / (2 width Gamma(1 + 1/shape)) ---


class _PowerNoise:
    """Independent noise per coordinate; shape 1 is Laplace, shape 2 normal (width sd sqrt 2)."""

    def __init__(self, width: float, shape: float) -> None:
        self.width, self.shape = width, shape
        self.log_total = math.log(2 * width) + math.lgamma(1 + 1 / shape)

    def draw(self, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        if self.shape == 1:
            return rng.laplace(0.0, self.width, size)
        if self.shape == 2:
            return rng.normal(0.0, self.width / math.sqrt(2), size)
        sign = rng.choice([-1.0, 1.0], size)
        return sign * self.width * rng.standard_gamma(1 / self.shape, size) ** (1 / self.shape)

    def log_kernel(self, u: torch.Tensor) -> torch.Tensor:
        return -((u / self.width).abs() ** self.shape)

    def log_density(self, u: torch.Tensor) -> torch.Tensor:
        return (self.log_kernel(u) - self.log_total).sum(dim=-1)

    def half_mass(self, a: torch.Tensor) -> torch.Tensor:
        """Return the integral of the kernel over [0, a]."""
        if self.shape == 1:
            return -self.width * torch.expm1(-a / self.width)
        if self.shape == 2:
            return self.width * math.sqrt(math.pi) / 2 * torch.erf(a / self.width)
        scaled = (a / self.width) ** self.shape
        order = torch.tensor(1 / self.shape, dtype=torch.float64)
        return 0.5 * math.exp(self.log_total) * torch.special.gammainc(order, scaled)

    def draw_truncated(
        self, center: np.ndarray, low: float, high: float, rng: np.random.Generator
    ) -> np.ndarray:
        """Invert the distribution function on the side of the centre that is chosen first."""
        power = 1 / self.shape
        mass_below = special.gammainc(power, ((center - low) / self.width) ** self.shape)
        mass_above = special.gammainc(power, ((high - center) / self.width) ** self.shape)
        down = rng.random(center.shape) * (mass_below + mass_above) < mass_below
        level = rng.random(center.shape) * np.where(down, mass_below, mass_above)
        if self.shape == 1:
            step = -np.log1p(-level)
        elif self.shape == 2:
            step = special.erfinv(level)
        else:
            step = special.gammaincinv(power, level) ** power
        moved = center + self.width * np.where(down, -step, step)
        return np.clip(moved, low, high)


# --- Marginal laws --------------------------------------------------------------------------


class Law:
    """A law of one point in R^dim; subclasses say where it lives and how to draw from it.

    Attributes
    ----------
    dim : int
        Number of coordinates of a point.
    domains : frozenset of str
        Which spaces all its points lie in, out of "sphere", "box", "signs" and "circles".
    """

    domains: frozenset[str] = frozenset()
    _min_dim = 1

    def __init__(self, dim: int) -> None:
        self.dim = check_integer("dim", dim, self._min_dim)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_arguments(self)})"

    def sample(
        self, size: int, *, seed: int | torch.Generator, dtype: torch.dtype = torch.float64
    ) -> torch.Tensor:
        """Draw independent points.

        Parameters
        ----------
        size
            Number of points, at least 0.
        seed
            An integer or a torch generator.
        dtype
            Type of the result; the draw itself is made in float64.

        Returns
        -------
        torch.Tensor
            Points of shape (size, dim), on the CPU.

        Raises
        ------
        ValueError
            If ``size`` is negative.
        """
        size = check_integer("size", size, 0)
        _check_dtype(dtype)
        return torch.from_numpy(self._draw(size, _numpy_generator(seed))).to(dtype)

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """Return the log density at points of shape (..., dim), as float64 of shape (...).

        The base measure is named by each law. Outside a box the value is minus infinity; a
        point off the sphere, the circles or the signs raises ValueError.
        """
        raise NotImplementedError

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        raise NotImplementedError


def _arguments(law: Any) -> str:
    return ", ".join(
        f"{name}={value}" for name, value in vars(law).items() if not name.startswith("_")
    )


class UniformSphere(Law):
    """Uniform law on the unit sphere in R^dim, dim >= 2; density by surface measure."""

    domains = frozenset({"sphere"})
    _min_dim = 2

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        z = rng.standard_normal((size, self.dim))
        return z / np.linalg.norm(z, axis=1, keepdims=True)

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """Return minus the log area of the sphere; see `Law.log_density`."""
        z = _on_sphere("z", z, self.dim)
        return z.new_full(z.shape[:-1], -_log_sphere_area(self.dim))


class UniformBox(Law):
    """Uniform law on the box [low, high]^dim; density by Lebesgue measure."""

    domains = frozenset({"box"})

    def __init__(self, dim: int, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__(dim)
        self.low, self.high = _interval(low, high)

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(self.low, self.high, (size, self.dim))

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """Return -dim log(high - low) inside the box; see `Law.log_density`."""
        z = _points("z", z, self.dim)
        inside = ((z >= self.low) & (z <= self.high)).all(dim=-1)
        value = z.new_full(inside.shape, -self.dim * math.log(self.high - self.low))
        return torch.where(inside, value, -torch.inf)


class ClippedLaplaceStationary(Law):
    """Law on [0, 1]^dim that `ClippedLaplace` of the same rate leaves unchanged.

    Independently per coordinate: uniform on [0, 1] with weight rate / (rate + 2), and an atom
    of mass 1 / (rate + 2) at each end. Densities are by Lebesgue measure plus counting measure
    on {0, 1}, per coordinate.
    """

    domains = frozenset({"box"})
    low, high = 0.0, 1.0

    def __init__(self, dim: int, rate: float) -> None:
        super().__init__(dim)
        self.rate = check_positive("rate", rate)

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        atom = 1 / (self.rate + 2)
        # Stretching a uniform draw and clipping it gives both atoms their mass.
        u = rng.random((size, self.dim))
        return np.clip((u - atom) / (1 - 2 * atom), 0.0, 1.0)

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """Return the log density by Lebesgue measure plus atoms; see `Law.log_density`."""
        z = _points("z", z, self.dim)
        value = ((z > 0) & (z < 1)).double() * math.log(self.rate) - math.log(self.rate + 2)
        return torch.where((z < 0) | (z > 1), -torch.inf, value).sum(dim=-1)


class GeneralizedNormal(Law):
    """Independent coordinates of density exp(-|z/scale|^shape) / (2 scale Gamma(1 + 1/shape))."""

    def __init__(self, dim: int, scale: float = 1.0, shape: float = 2.0) -> None:
        super().__init__(dim)
        self.scale, self.shape = check_positive("scale", scale), check_positive("shape", shape)
        self._noise = _PowerNoise(self.scale, self.shape)

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return self._noise.draw((size, self.dim), rng)

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """Return the log density by Lebesgue measure; see `Law.log_density`."""
        return self._noise.log_density(_points("z", z, self.dim))


class Normal(GeneralizedNormal):
    """Independent normal coordinates of mean 0 and standard deviation ``scale``."""

    def __init__(self, dim: int, scale: float = 1.0) -> None:
        Law.__init__(self, dim)
        self.scale = check_positive("scale", scale)
        self._noise = _PowerNoise(self.scale * math.sqrt(2), 2.0)


class Laplace(GeneralizedNormal):
    """Independent coordinates of density exp(-|z|/scale) / (2 scale)."""

    def __init__(self, dim: int, scale: float = 1.0) -> None:
        Law.__init__(self, dim)
        self.scale = check_positive("scale", scale)
        self._noise = _PowerNoise(self.scale, 1.0)


class BinaryAttributes(Law):
    """Independent fair signs +-1/sqrt(dim), so a point has unit norm; counting measure."""

    domains = frozenset({"sphere", "signs"})

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return rng.choice([-1.0, 1.0], (size, self.dim)) / math.sqrt(self.dim)

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """Return -dim log 2; see `Law.log_density`."""
        z = _signs("z", z, self.dim)
        return z.new_full(z.shape[:-1], -self.dim * math.log(2))


class ProductOfCircles(Law):
    """Uniform law on a product of circles that lies in the unit sphere of R^(2 circles).

    Coordinates 2i and 2i + 1 are (cos a_i, sin a_i) / sqrt(circles). Densities are by Lebesgue
    measure of the angles a_i in radians.
    """

    domains = frozenset({"sphere", "circles"})

    def __init__(self, circles: int) -> None:
        self.circles = check_integer("circles", circles, 1)
        super().__init__(2 * self.circles)

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        angle = rng.uniform(-np.pi, np.pi, (size, self.circles))
        pairs = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        return pairs.reshape(size, self.dim) / math.sqrt(self.circles)

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """Return -circles log(2 pi); see `Law.log_density`."""
        pairs = _on_circles("z", z, self.dim)
        return pairs.new_full(pairs.shape[:-2], -self.circles * _LOG_2PI)


class _TruncatedMarginal(Law):
    """Law of z_t when z_x is uniform on a box and z_t given z_x is a truncated kernel.

    Per coordinate p(t) = 1/(high - low) times the integral of k(t - x) / C(x) over x. Each side
    of t is integrated by the tanh-sinh rule as far as the kernel exceeds exp(-45): relative
    error below 1e-10 for shapes up to 10, 1e-6 at shape 30, whose kernel is nearly a step.

    References
    ----------
    Takahasi and Mori, Double exponential formulas, Publ. RIMS 9, 1974.
    """

    domains = frozenset({"box"})

    def __init__(self, source: UniformBox, conditional: _Truncated) -> None:
        super().__init__(source.dim)
        self.low, self.high = source.low, source.high
        self._source, self._conditional = source, conditional

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return self._conditional._draw(self._source._draw(size, rng), rng)

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """Return the log density by Lebesgue measure; see `Law.log_density`."""
        z = _points("z", z, self.dim)
        inside = ((z >= self.low) & (z <= self.high)).all(dim=-1)
        z = z.clamp(self.low, self.high)
        noise = self._conditional._noise
        reach = noise.width * 45 ** (1 / noise.shape)
        step = 1 / 16
        total = torch.zeros_like(z)
        for sign, room in ((-1, z - self.low), (1, self.high - z)):
            length = room.clamp(max=reach)
            for node in np.arange(-54, 55) * step:
                near = float(special.expit(np.pi * np.sinh(node)))
                weight = near * (1 - near) * np.pi * np.cosh(node) * step
                shift = length * near
                mass = noise.half_mass(z - self.low + sign * shift)
                mass = mass + noise.half_mass(self.high - z - sign * shift)
                total = total + length * weight * noise.log_kernel(shift).exp() / mass
        value = (total / (self.high - self.low)).log().sum(dim=-1)
        return torch.where(inside, value, -torch.inf)


# --- Conditional laws -----------------------------------------------------------------------


class ConditionalLaw:
    """A law of one point given a centre.

    Attributes
    ----------
    domain : str
        Where centres must lie: "space" (anywhere), "sphere", "box", "signs" or "circles".
    """

    domain = "space"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_arguments(self)})"

    def sample(self, center: torch.Tensor, *, seed: int | torch.Generator) -> torch.Tensor:
        """Draw one point around each centre.

        Parameters
        ----------
        center
            Centres of shape (..., dim), float32 or float64.
        seed
            An integer or a torch generator.

        Returns
        -------
        torch.Tensor
            Points of the shape, type and device of ``center``; drawn in float64.

        Raises
        ------
        ValueError
            If a centre is not finite or lies outside the domain.
        """
        points = self._checked("center", center).detach().cpu().numpy()
        rows = np.ascontiguousarray(points).reshape(-1, points.shape[-1])
        drawn = self._draw(rows, _numpy_generator(seed)).reshape(points.shape)
        return torch.from_numpy(drawn).to(device=center.device, dtype=center.dtype)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return log p(z | center), float64, broadcast over the leading axes.

        The base measure is that of the marginal laws on the same domain. Outside a box the
        value is minus infinity; a point off the sphere, the circles or the signs raises
        ValueError, as does a centre outside the domain.
        """
        raise NotImplementedError

    def _checked(self, name: str, z: torch.Tensor) -> torch.Tensor:
        return _points(name, z)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        raise NotImplementedError


class _OnSphere(ConditionalLaw):
    domain = "sphere"

    def _checked(self, name: str, z: torch.Tensor) -> torch.Tensor:
        return _on_sphere(name, z)


class VonMisesFisher(_OnSphere):
    """Density C(dim, kappa) exp(kappa z.center) by surface measure, for kappa in [0, 1e100].

    With a uniform centre the PMI is kappa z_x.z_t minus a constant.

    References
    ----------
    Wood, Simulation of the von Mises Fisher distribution, Commun. Stat. Simul. 23, 1994.
    """

    def __init__(self, kappa: float) -> None:
        self.kappa = _concentration(kappa)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return _draw_von_mises_fisher(center, self.kappa, rng)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the log density by surface measure; see `ConditionalLaw.log_density`."""
        center = self._checked("center", center)
        z = _on_sphere("z", z, center.shape[-1])
        dim = z.shape[-1]
        constant = -_log_sphere_area(dim) - _log_mean_exponential(dim, self.kappa)[1]
        return constant - self.kappa * _one_minus_cosine(z, center)


class ProjectedNormal(_OnSphere):
    """Law of (center + scale * noise) / norm on the sphere, with standard normal noise.

    By surface measure and with w = z.center, a = w / scale, the log density is
    -(dim/2) log 2 pi - (1 - w^2) / (2 scale^2) + log J_{dim-1}(a), where J_k(a) is the integral
    of r^k exp(-(r - a)^2 / 2) over r > 0 and J_{k+1} = a J_k + k J_{k-1}. The recursion is
    stable for a >= 0. For a < 0 it is not, and the integral is summed in log r by the
    trapezoidal rule, which converges geometrically there.
    """

    def __init__(self, scale: float) -> None:
        self.scale = check_positive("scale", scale)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        z = center + self.scale * rng.standard_normal(center.shape)
        return z / np.linalg.norm(z, axis=1, keepdims=True)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the log density by surface measure; see `ConditionalLaw.log_density`."""
        center = self._checked("center", center)
        z = _on_sphere("z", z, center.shape[-1])
        dim = z.shape[-1]
        v = _one_minus_cosine(z, center)
        a = (1 - v) / self.scale
        log_j = torch.where(
            a >= 0,
            self._log_j_recursion(dim - 1, a.clamp(min=0.0)),
            self._log_j_trapezoid(dim - 1, a.clamp(max=0.0)),
        )
        return log_j - dim / 2 * _LOG_2PI - v * (2 - v) / (2 * self.scale**2)

    @staticmethod
    def _log_j_recursion(order: int, a: torch.Tensor) -> torch.Tensor:
        log_j = 0.5 * _LOG_2PI + torch.special.log_ndtr(a)
        ratio = a + (-a.square() / 2 - log_j).exp()
        for k in range(1, order + 1):
            log_j = log_j + ratio.log()
            ratio = a + k / ratio
        return log_j

    @staticmethod
    def _log_j_trapezoid(order: int, a: torch.Tensor) -> torch.Tensor:
        k = order + 1
        peak = 2 * k / ((a.square() + 4 * k).sqrt() - a)
        step = 0.2 / math.sqrt(k)
        total = torch.zeros_like(a)
        for s in step * np.arange(-160, 51):
            # (r - a)^2 - (peak - a)^2 with r = peak exp(s), without cancellation.
            rise = peak * math.expm1(s)
            total = total + (k * s - rise * (peak - a + rise / 2)).exp()
        return total.log() + math.log(step) + k * peak.log() - (peak - a).square() / 2


class ProjectedLaplace(_OnSphere):
    """Law of (center + scale * noise) / norm on the sphere, with Laplace noise of rate 1.

    The density by surface measure is the integral over r > 0 of
    r^(dim-1) prod_i exp(-|r z_i - center_i| / scale) / (2 scale). The integrand is log-concave
    and smooth between the kinks center_i / z_i, so 48 Gauss-Legendre nodes on each piece, over
    the range where it exceeds exp(-45) of its peak, give about 1e-10.
    """

    def __init__(self, scale: float) -> None:
        self.scale = check_positive("scale", scale)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        z = center + self.scale * rng.laplace(size=center.shape)
        return z / np.linalg.norm(z, axis=1, keepdims=True)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the log density by surface measure; see `ConditionalLaw.log_density`."""
        center = self._checked("center", center)
        z = _on_sphere("z", z, center.shape[-1])
        z, center = torch.broadcast_tensors(z, center)
        shape, dim = z.shape[:-1], z.shape[-1]
        z, center = z.reshape(-1, dim), center.reshape(-1, dim)
        rows = max(1, 2_000_000 // (dim * (dim + 1)))
        pieces = [
            self._log_integral(a, b) for a, b in zip(z.split(rows), center.split(rows), strict=True)
        ]
        return torch.cat(pieces).reshape(shape) - dim * math.log(2 * self.scale)

    def _log_integral(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        power = z.shape[-1] - 1

        def log_integrand(r: torch.Tensor) -> torch.Tensor:
            distance = (r[..., None] * z[:, None] - center[:, None]).abs().sum(dim=-1)
            return power * r.log() - distance / self.scale

        with torch.no_grad():
            low, peak, high = self._range(z, center, log_integrand, self.scale)
            top = log_integrand(peak)
        kinks = torch.nan_to_num(center / z, nan=0.0).clamp(low, high)
        edges = torch.cat([low, kinks.sort(dim=-1).values, high], dim=-1)
        left, width = edges[:, :-1], edges.diff(dim=-1)
        total = torch.zeros_like(width)
        for node, weight in zip(*np.polynomial.legendre.leggauss(48), strict=True):
            value = log_integrand(left + width * (node + 1) / 2) - top
            total = total + weight / 2 * width * value.exp()
        return total.sum(dim=-1).log() + top[:, 0]

    @staticmethod
    def _range(
        z: torch.Tensor, center: torch.Tensor, log_integrand: Any, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Bisect for the peak of a concave function and where it has fallen by 45."""
        end = z.new_ones(len(z), 1)
        while bool((low := log_integrand(end) > log_integrand(end / 2) - 60).any()):
            end = torch.where(low, 2 * end, end)

        def bisect(low: torch.Tensor, high: torch.Tensor, is_left: Any) -> torch.Tensor:
            for _ in range(55):
                middle = (low + high) / 2
                left = is_left(middle)
                low, high = torch.where(left, middle, low), torch.where(left, high, middle)
            return (low + high) / 2

        def rises(r: torch.Tensor) -> torch.Tensor:
            pull = (z * torch.sign(r * z - center)).sum(dim=-1, keepdim=True)
            return (z.shape[-1] - 1) * scale > r * pull

        start = torch.zeros_like(end)
        peak = bisect(start, end, rises)
        floor = log_integrand(peak) - 45
        return (
            bisect(start, peak, lambda r: log_integrand(r) < floor),
            peak,
            bisect(peak, end, lambda r: log_integrand(r) > floor),
        )


class _Truncated(ConditionalLaw):
    """Kernel exp(-|z - center|^shape / width^shape), per coordinate, cut to a box.

    The density is the kernel over C(center), its integral over [low, high].
    """

    domain = "box"
    _noise: _PowerNoise

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = _interval(low, high)

    def _checked(self, name: str, z: torch.Tensor) -> torch.Tensor:
        return _in_box(name, z, self.low, self.high)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self._noise.draw_truncated(center, self.low, self.high, rng)

    def _mass(self, center: torch.Tensor) -> torch.Tensor:
        noise = self._noise
        return noise.half_mass(center - self.low) + noise.half_mass(self.high - center)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the log density by Lebesgue measure; see `ConditionalLaw.log_density`."""
        center = self._checked("center", center)
        z = _points("z", z, center.shape[-1])
        inside = ((z >= self.low) & (z <= self.high)).all(dim=-1)
        value = (self._noise.log_kernel(z - center) - self._mass(center).log()).sum(dim=-1)
        return torch.where(inside, value, -torch.inf)

    def _draw_center(self, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw a uniform centre given the point: reject in proportion to 1 / C(center).

        C is concave and smallest at the ends of the box, and at most twice that, so at least
        half of what is proposed in each round is kept.
        """
        smallest = float(self._noise.half_mass(torch.tensor(self.high - self.low).double()))
        center = np.empty(z.size)
        points, left = z.ravel(), np.arange(z.size)
        for _ in range(500):
            if left.size == 0:
                return center.reshape(z.shape)
            proposal = self._draw(points[left], rng)
            mass = self._mass(torch.from_numpy(proposal)).numpy()
            accepted = rng.random(left.size) * mass < smallest
            center[left[accepted]] = proposal[accepted]
            left = left[~accepted]
        raise RuntimeError(f"{left.size} draws of the centre were rejected 500 times")


class TruncatedLaplace(_Truncated):
    """Density proportional to exp(-rate |z - center|_1) on the box [low, high]^dim."""

    def __init__(self, rate: float, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__(low, high)
        self.rate = check_positive("rate", rate)
        self._noise = _PowerNoise(1 / self.rate, 1.0)


class TruncatedNormal(_Truncated):
    """Density proportional to exp(-|z - center|^2 / (2 scale^2)) on the box [low, high]^dim."""

    def __init__(self, scale: float, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__(low, high)
        self.scale = check_positive("scale", scale)
        self._noise = _PowerNoise(self.scale * math.sqrt(2), 2.0)


class TruncatedGeneralizedNormal(_Truncated):
    """Density proportional to exp(-sum_i |(z_i - center_i)/scale|^shape) on [low, high]^dim."""

    def __init__(self, scale: float, shape: float, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__(low, high)
        self.scale, self.shape = check_positive("scale", scale), check_positive("shape", shape)
        self._noise = _PowerNoise(self.scale, self.shape)


class ClippedLaplace(ConditionalLaw):
    """Law of clip(center + noise, 0, 1) with Laplace noise of the given rate per coordinate.

    By Lebesgue measure plus atoms at 0 and 1: rate/2 exp(-rate |z - center|) inside, and
    exp(-rate |z - center|) / 2 at each end. With `ClippedLaplaceStationary` of the same rate
    the pair is reversible and its PMI is -rate |z_x - z_t|_1 + dim log((rate + 2) / 2).
    """

    domain = "box"
    low, high = 0.0, 1.0

    def __init__(self, rate: float) -> None:
        self.rate = check_positive("rate", rate)

    def _checked(self, name: str, z: torch.Tensor) -> torch.Tensor:
        return _in_box(name, z, 0.0, 1.0)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.clip(center + rng.laplace(0.0, 1 / self.rate, center.shape), 0.0, 1.0)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the density by Lebesgue measure plus atoms; `ConditionalLaw.log_density`."""
        center = self._checked("center", center)
        z = _points("z", z, center.shape[-1])
        value = ((z > 0) & (z < 1)).double() * math.log(self.rate) - math.log(2)
        value = value - self.rate * (z - center).abs()
        return torch.where((z < 0) | (z > 1), -torch.inf, value).sum(dim=-1)


class AdditiveGeneralizedNormal(ConditionalLaw):
    """Centre plus independent noise of density proportional to exp(-|u/scale|^shape)."""

    def __init__(self, scale: float, shape: float) -> None:
        self.scale, self.shape = check_positive("scale", scale), check_positive("shape", shape)
        self._noise = _PowerNoise(self.scale, self.shape)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return center + self._noise.draw(center.shape, rng)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the log density by Lebesgue measure; see `ConditionalLaw.log_density`."""
        center = self._checked("center", center)
        return self._noise.log_density(_points("z", z, center.shape[-1]) - center)


class AdditiveNormal(AdditiveGeneralizedNormal):
    """Centre plus independent normal noise of standard deviation ``scale``."""

    def __init__(self, scale: float) -> None:
        self.scale = check_positive("scale", scale)
        self._noise = _PowerNoise(self.scale * math.sqrt(2), 2.0)


class AdditiveLaplace(AdditiveGeneralizedNormal):
    """Centre plus independent noise of density (rate/2) exp(-rate |u|)."""

    def __init__(self, rate: float) -> None:
        self.rate = check_positive("rate", rate)
        self._noise = _PowerNoise(1 / self.rate, 1.0)


class SignFlip(ConditionalLaw):
    """Flip each sign independently with probability 1 / (1 + exp(2 kappa / dim)).

    On points with coordinates +-1/sqrt(dim) the mass function is
    exp(kappa z.center) / (2 cosh(kappa/dim))^dim, so with `BinaryAttributes` the PMI is
    kappa z_x.z_t - dim log cosh(kappa/dim).
    """

    domain = "signs"

    def __init__(self, kappa: float) -> None:
        self.kappa = _concentration(kappa)

    def _checked(self, name: str, z: torch.Tensor) -> torch.Tensor:
        _signs(name, z)
        return _points(name, z)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        flip = special.expit(-2 * self.kappa / center.shape[-1])
        return np.where(rng.random(center.shape) < flip, -center, center)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the log mass function (counting measure); see `ConditionalLaw.log_density`."""
        center = _signs("center", center)
        agree = _signs("z", z, center.shape[-1]) * center
        return torch.nn.functional.logsigmoid(2 * self.kappa / z.shape[-1] * agree).sum(dim=-1)


class ProductOfVonMises(ConditionalLaw):
    """Independent von Mises law of concentration kappa / circles on each circle.

    Circles are pairs of coordinates of radius 1/sqrt(circles), as in `ProductOfCircles`. Then
    kappa z.center is the sum of the exponents, and with that marginal the PMI is
    kappa z_x.z_t minus a constant. Densities are by Lebesgue measure of the angles.
    """

    domain = "circles"

    def __init__(self, kappa: float) -> None:
        self.kappa = _concentration(kappa)

    def _checked(self, name: str, z: torch.Tensor) -> torch.Tensor:
        pairs = _on_circles(name, z)
        return pairs.flatten(-2) / math.sqrt(pairs.shape[-2])

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        circles = center.shape[-1] // 2
        pairs = center.reshape(-1, 2) * math.sqrt(circles)
        drawn = _draw_von_mises_fisher(pairs, self.kappa / circles, rng)
        return drawn.reshape(center.shape) / math.sqrt(circles)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the log density of the angles; see `ConditionalLaw.log_density`."""
        center = _on_circles("center", center)
        pairs = _on_circles("z", z, 2 * center.shape[-2])
        kappa = self.kappa / center.shape[-2]
        constant = -_LOG_2PI - _log_mean_exponential(2, kappa)[1]
        return (constant - kappa * _one_minus_cosine(pairs, center)).sum(dim=-1)


# --- Couplings ------------------------------------------------------------------------------

# Pairs under which (z_x, z_t) and (z_t, z_x) have one law, so that both have the same marginal.
_EXCHANGEABLE = (
    (UniformSphere, VonMisesFisher),
    (UniformSphere, ProjectedNormal),
    (ClippedLaplaceStationary, ClippedLaplace),
    (BinaryAttributes, SignFlip),
    (ProductOfCircles, ProductOfVonMises),
)


class Coupling:
    """A joint law of (z_x, z_t): the law of z_x, and the law of z_t given z_x.

    Parameters
    ----------
    marginal
        Law of ``z_x``.
    conditional
        Law of ``z_t`` given ``z_x``; its centres must cover where ``marginal`` lives.

    Attributes
    ----------
    dim : int
        Number of coordinates of each latent.
    symmetric : bool
        Whether (z_x, z_t) and (z_t, z_x) have the same law.
    marginal_t : Law or None
        The law of ``z_t`` where it is known, else None.
    exact_pmi : bool
        Whether `pmi` is available. It is for `UniformSphere` with `VonMisesFisher` or
        `ProjectedNormal`, `ClippedLaplaceStationary` with `ClippedLaplace` of the same rate,
        `BinaryAttributes` with `SignFlip`, `ProductOfCircles` with `ProductOfVonMises`,
        `Normal` with `AdditiveNormal`, and `UniformBox` with a truncated law on the same box
        (by quadrature, relative error of p(z_t) below 1e-10 per coordinate for shapes up to 10).

    Raises
    ------
    TypeError
        If an argument is not a law of the right kind.
    ValueError
        If points of ``marginal`` can lie outside the domain of ``conditional``.
    """

    def __init__(self, marginal: Law, conditional: ConditionalLaw) -> None:
        if not isinstance(marginal, Law):
            raise TypeError(f"marginal must be a Law, got {type(marginal).__name__}")
        if not isinstance(conditional, ConditionalLaw):
            raise TypeError(f"conditional must be a ConditionalLaw, got {conditional!r}")
        domain = conditional.domain
        if domain != "space" and domain not in marginal.domains:
            where = ", ".join(sorted(marginal.domains)) or "unbounded space"
            raise ValueError(
                f"{conditional} needs centres on the domain '{domain}', but {marginal} lives on: "
                f"{where}; choose a marginal on that domain or an additive conditional"
            )
        if domain == "sphere" and marginal.dim < 2:
            raise ValueError(f"{conditional} needs at least 2 dimensions, got {marginal}")
        if domain == "box" and not (
            conditional.low <= marginal.low and marginal.high <= conditional.high
        ):
            raise ValueError(
                f"{conditional} is confined to [{conditional.low:g}, {conditional.high:g}], which "
                f"does not contain {marginal}; give both the same low and high"
            )
        self.marginal, self.conditional, self.dim = marginal, conditional, marginal.dim
        self.symmetric = self._is_exchangeable()
        self.marginal_t = self._law_of_z_t()
        self.exact_pmi = self.marginal_t is not None

    def __repr__(self) -> str:
        return f"Coupling({self.marginal}, {self.conditional})"

    def _is_exchangeable(self) -> bool:
        if (type(self.marginal), type(self.conditional)) not in _EXCHANGEABLE:
            return False
        return (
            not isinstance(self.conditional, ClippedLaplace)
            or self.conditional.rate == self.marginal.rate
        )

    def _law_of_z_t(self) -> Law | None:
        marginal, conditional = self.marginal, self.conditional
        if self.symmetric:
            return marginal
        if isinstance(marginal, Normal) and isinstance(conditional, AdditiveNormal):
            return Normal(self.dim, math.hypot(marginal.scale, conditional.scale))
        if (
            isinstance(marginal, UniformBox)
            and isinstance(conditional, _Truncated)
            and (marginal.low, marginal.high) == (conditional.low, conditional.high)
        ):
            return _TruncatedMarginal(marginal, conditional)
        return None

    def _refuse(self, what: str) -> ValueError:
        return ValueError(
            f"{what} is not known exactly for {self}: the law of z_t has no formula here. Pairs "
            "that have it include UniformSphere with VonMisesFisher, ClippedLaplaceStationary "
            "with ClippedLaplace of equal rate, and BinaryAttributes with SignFlip"
        )

    def sample(
        self, size: int, *, seed: int | torch.Generator, dtype: torch.dtype = torch.float64
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw ``size`` independent pairs (z_x, z_t), each of shape (size, dim)."""
        _check_dtype(dtype)
        generator = as_generator(seed)
        z_x = self.marginal.sample(size, seed=generator)
        z_t = self.conditional.sample(z_x, seed=generator)
        return z_x.to(dtype), z_t.to(dtype)

    def log_conditional(self, z_t: torch.Tensor, z_x: torch.Tensor) -> torch.Tensor:
        """Return log p(z_t | z_x), float64, broadcast over the leading axes."""
        return self.conditional.log_density(
            _points("z_t", z_t, self.dim), _points("z_x", z_x, self.dim)
        )

    def pmi(self, z_x: torch.Tensor, z_t: torch.Tensor) -> torch.Tensor:
        """Return the pointwise mutual information log p(z_t | z_x) - log p(z_t) in nats.

        Parameters
        ----------
        z_x, z_t
            Points of shape (..., dim), broadcast against each other: (n, 1, dim) with
            (m, dim) gives the table of all pairs.

        Returns
        -------
        torch.Tensor
            float64 of shape (...).

        Raises
        ------
        ValueError
            If the law of z_t is not known for this pair (`exact_pmi` is False).
        """
        if self.marginal_t is None:
            raise self._refuse("the PMI")
        return self.log_conditional(z_t, z_x) - self.marginal_t.log_density(z_t)

    def sample_z_x(self, z_t: torch.Tensor, *, seed: int | torch.Generator) -> torch.Tensor:
        """Draw z_x given z_t, of the shape, type and device of ``z_t`` (..., dim).

        Raises
        ------
        ValueError
            If `exact_pmi` is False: the reverse conditional is not known then.
        """
        if self.marginal_t is None:
            raise self._refuse("the law of z_x given z_t")
        _points("z_t", z_t, self.dim)
        if self.symmetric:
            return self.conditional.sample(z_t, seed=seed)
        if isinstance(self.marginal, Normal):
            weight = (self.marginal.scale / self.marginal_t.scale) ** 2
            noise = AdditiveNormal(self.conditional.scale * math.sqrt(weight))
            return noise.sample(weight * z_t, seed=seed)
        points = self.conditional._checked("z_t", z_t).detach().cpu().numpy()
        drawn = self.conditional._draw_center(points, _numpy_generator(seed))
        return torch.from_numpy(drawn).to(device=z_t.device, dtype=z_t.dtype)
