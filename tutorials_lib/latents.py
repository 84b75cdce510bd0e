"""Laws of the coupled latents: marginals, conditionals, their densities and exact PMI.

A `Coupling` joins the law of ``z_x`` (a `Law`) with the law of ``z_t`` given ``z_x`` (a
`ConditionalLaw`). Pairs with an exact pointwise mutual information (PMI):

========================== ============================== ==================================
law of z_x                 law of z_t given z_x           PMI, up to a constant
========================== ============================== ==================================
`UniformSphere`            `VonMisesFisher`               ``kappa z_x.z_t``
`UniformSphere`            `ProjectedNormal`              a function of ``z_x.z_t``
`BinaryAttributes`         `SignFlip`                     ``kappa z_x.z_t``
`ProductOfCircles`         `ProductOfVonMises`            ``kappa z_x.z_t``
`ClippedLaplaceStationary` `ClippedLaplace`, equal rate   ``-rate |z_x - z_t|_1``
`UniformBox`               `TruncatedLaplace`, same box   ``-rate |z_x - z_t|_1``, and a term
                                                          of each point near the boundary
`UniformBox`               other truncated, same box      likewise, with its own exponent
`Normal`                   `AdditiveNormal`               a quadratic form
========================== ============================== ==================================

The first five are exchangeable. Other pairs work too, without an exact PMI: a conditional takes
any law that lives on its domain, and the additive ones take every law.

Points are torch tensors whose last axis is the latent dimension. Densities are computed and
returned in float64, broadcast over the leading axes, and are differentiable. Draws are made by
NumPy, whose gamma and beta samplers take an explicit generator; its seed comes from the seed or
the torch generator that the caller gives.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy import special

from tutorials_lib._directional import (
    LOG_2PI,
    check_concentration,
    draw_von_mises_fisher,
    log_mean_exponential,
    log_sphere_area,
    one_minus_cosine,
    projected_laplace_log_integral,
    projected_normal_log_integral,
    von_mises_fisher_log_normalizer,
    von_mises_fisher_mean_resultant_length,
)
from tutorials_lib._noise import PowerNoise, numpy_generator
from tutorials_lib._points import (
    check_dtype,
    check_in_box,
    check_interval,
    check_on_circles,
    check_on_sphere,
    check_points,
    check_signs,
)
from tutorials_lib._validation import as_generator, check_integer, check_positive

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


def _arguments(law: Law | ConditionalLaw) -> str:
    """Return the public attributes of a law as they read in its repr."""
    return ", ".join(
        f"{name}={value}" for name, value in vars(law).items() if not name.startswith("_")
    )


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
        check_dtype(dtype)
        return torch.from_numpy(self._draw(size, numpy_generator(seed))).to(dtype)

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """Return the log density at points of shape (..., dim), as float64 of shape (...).

        The base measure is named by each law. Outside a box the value is minus infinity; a
        point off the sphere, the circles or the signs raises ValueError.
        """
        raise NotImplementedError

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        raise NotImplementedError


class UniformSphere(Law):
    """Uniform law on the unit sphere in R^dim, dim >= 2; density by surface measure."""

    domains = frozenset({"sphere"})
    _min_dim = 2

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        z = rng.standard_normal((size, self.dim))
        return z / np.linalg.norm(z, axis=1, keepdims=True)

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """Return minus the log area of the sphere; see `Law.log_density`."""
        z = check_on_sphere("z", z, self.dim)
        return z.new_full(z.shape[:-1], -log_sphere_area(self.dim))


class UniformBox(Law):
    """Uniform law on the box [low, high]^dim; density by Lebesgue measure."""

    domains = frozenset({"box"})

    def __init__(self, dim: int, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__(dim)
        self.low, self.high = check_interval(low, high)

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(self.low, self.high, (size, self.dim))

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """Return -dim log(high - low) inside the box; see `Law.log_density`."""
        z = check_points("z", z, self.dim)
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
        z = check_points("z", z, self.dim)
        value = ((z > 0) & (z < 1)).double() * math.log(self.rate) - math.log(self.rate + 2)
        return torch.where((z < 0) | (z > 1), -torch.inf, value).sum(dim=-1)


class GeneralizedNormal(Law):
    """Independent coordinates of density exp(-|z/scale|^shape) / (2 scale Gamma(1 + 1/shape))."""

    def __init__(self, dim: int, scale: float = 1.0, shape: float = 2.0) -> None:
        super().__init__(dim)
        self.scale, self.shape = check_positive("scale", scale), check_positive("shape", shape)
        self._noise = PowerNoise(self.scale, self.shape)

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return self._noise.draw((size, self.dim), rng)

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """Return the log density by Lebesgue measure; see `Law.log_density`."""
        return self._noise.log_density(check_points("z", z, self.dim))


class Normal(GeneralizedNormal):
    """Independent normal coordinates of mean 0 and standard deviation ``scale``."""

    def __init__(self, dim: int, scale: float = 1.0) -> None:
        Law.__init__(self, dim)
        self.scale = check_positive("scale", scale)
        self._noise = PowerNoise.normal(self.scale)


class Laplace(GeneralizedNormal):
    """Independent coordinates of density exp(-|z|/scale) / (2 scale)."""

    def __init__(self, dim: int, scale: float = 1.0) -> None:
        Law.__init__(self, dim)
        self.scale = check_positive("scale", scale)
        self._noise = PowerNoise(self.scale, 1.0)


class BinaryAttributes(Law):
    """Independent fair signs +-1/sqrt(dim), so a point has unit norm; counting measure."""

    domains = frozenset({"sphere", "signs"})

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return rng.choice([-1.0, 1.0], (size, self.dim)) / math.sqrt(self.dim)

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """Return -dim log 2; see `Law.log_density`."""
        z = check_signs("z", z, self.dim)
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
        pairs = check_on_circles("z", z, self.dim)
        return pairs.new_full(pairs.shape[:-2], -self.circles * LOG_2PI)


class _TruncatedMarginal(Law):
    """Law of z_t when z_x is uniform on a box and z_t given z_x is a truncated kernel.

    The density is a quadrature, accurate to 1e-10 per coordinate for shapes up to 10.
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
        z = check_points("z", z, self.dim)
        inside = ((z >= self.low) & (z <= self.high)).all(dim=-1)
        noise, z = self._conditional._noise, z.clamp(self.low, self.high)
        value = noise.log_truncated_marginal(z, self.low, self.high).sum(dim=-1)
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
        drawn = self._draw(rows, numpy_generator(seed)).reshape(points.shape)
        return torch.from_numpy(drawn).to(device=center.device, dtype=center.dtype)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return log p(z | center), float64, broadcast over the leading axes.

        The base measure is that of the marginal laws on the same domain. Outside a box the
        value is minus infinity; a point off the sphere, the circles or the signs raises
        ValueError, as does a centre outside the domain.
        """
        raise NotImplementedError

    def _checked(self, name: str, z: torch.Tensor) -> torch.Tensor:
        return check_points(name, z)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        raise NotImplementedError


class _OnSphere(ConditionalLaw):
    domain = "sphere"

    def _checked(self, name: str, z: torch.Tensor) -> torch.Tensor:
        return check_on_sphere(name, z)


class VonMisesFisher(_OnSphere):
    """Density C(dim, kappa) exp(kappa z.center) by surface measure, for kappa in [0, 1e100].

    With a uniform centre the PMI is kappa z_x.z_t minus a constant.

    References
    ----------
    Wood, Simulation of the von Mises Fisher distribution, Commun. Stat. Simul. 23, 1994.
    """

    def __init__(self, kappa: float) -> None:
        self.kappa = check_concentration(kappa)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return draw_von_mises_fisher(center, self.kappa, rng)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the log density by surface measure; see `ConditionalLaw.log_density`."""
        center = self._checked("center", center)
        z = check_on_sphere("z", z, center.shape[-1])
        dim = z.shape[-1]
        constant = -log_sphere_area(dim) - log_mean_exponential(dim, self.kappa)[1]
        return constant - self.kappa * one_minus_cosine(z, center)


class ProjectedNormal(_OnSphere):
    """Law of (center + scale * noise) / norm on the sphere, with standard normal noise.

    By surface measure and with w = z.center, a = w / scale, the log density is
    -(dim/2) log 2 pi - (1 - w^2) / (2 scale^2) + log J(a), where J(a) is the integral of
    r^(dim-1) exp(-(r - a)^2 / 2) over r > 0.
    """

    def __init__(self, scale: float) -> None:
        self.scale = check_positive("scale", scale)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        z = center + self.scale * rng.standard_normal(center.shape)
        return z / np.linalg.norm(z, axis=1, keepdims=True)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the log density by surface measure; see `ConditionalLaw.log_density`."""
        center = self._checked("center", center)
        z = check_on_sphere("z", z, center.shape[-1])
        dim = z.shape[-1]
        v = one_minus_cosine(z, center)
        a = (1 - v) / self.scale
        log_j = projected_normal_log_integral(dim - 1, a)
        return log_j - dim / 2 * LOG_2PI - v * (2 - v) / (2 * self.scale**2)


class ProjectedLaplace(_OnSphere):
    """Law of (center + scale * noise) / norm on the sphere, with Laplace noise of rate 1.

    The density by surface measure is the integral over r > 0 of
    r^(dim-1) prod_i exp(-|r z_i - center_i| / scale) / (2 scale), accurate to about 1e-10.
    """

    def __init__(self, scale: float) -> None:
        self.scale = check_positive("scale", scale)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        z = center + self.scale * rng.laplace(size=center.shape)
        return z / np.linalg.norm(z, axis=1, keepdims=True)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the log density by surface measure; see `ConditionalLaw.log_density`."""
        center = self._checked("center", center)
        z = check_on_sphere("z", z, center.shape[-1])
        dim = z.shape[-1]
        log_integral = projected_laplace_log_integral(z, center, self.scale)
        return log_integral - dim * math.log(2 * self.scale)


class _Truncated(ConditionalLaw):
    """Kernel exp(-|z - center|^shape / width^shape), per coordinate, cut to a box.

    The density is the kernel over C(center), its integral over [low, high].
    """

    domain = "box"
    _noise: PowerNoise

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = check_interval(low, high)

    def _checked(self, name: str, z: torch.Tensor) -> torch.Tensor:
        return check_in_box(name, z, self.low, self.high)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self._noise.draw_truncated(center, self.low, self.high, rng)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the log density by Lebesgue measure; see `ConditionalLaw.log_density`."""
        center = self._checked("center", center)
        z = check_points("z", z, center.shape[-1])
        inside = ((z >= self.low) & (z <= self.high)).all(dim=-1)
        log_mass = self._noise.mass(center, self.low, self.high).log()
        value = (self._noise.log_kernel(z - center) - log_mass).sum(dim=-1)
        return torch.where(inside, value, -torch.inf)


class TruncatedLaplace(_Truncated):
    """Density proportional to exp(-rate |z - center|_1) on the box [low, high]^dim."""

    def __init__(self, rate: float, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__(low, high)
        self.rate = check_positive("rate", rate)
        self._noise = PowerNoise(1 / self.rate, 1.0)


class TruncatedNormal(_Truncated):
    """Density proportional to exp(-|z - center|^2 / (2 scale^2)) on the box [low, high]^dim."""

    def __init__(self, scale: float, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__(low, high)
        self.scale = check_positive("scale", scale)
        self._noise = PowerNoise.normal(self.scale)


class TruncatedGeneralizedNormal(_Truncated):
    """Density proportional to exp(-sum_i |(z_i - center_i)/scale|^shape) on [low, high]^dim."""

    def __init__(self, scale: float, shape: float, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__(low, high)
        self.scale, self.shape = check_positive("scale", scale), check_positive("shape", shape)
        self._noise = PowerNoise(self.scale, self.shape)


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
        return check_in_box(name, z, 0.0, 1.0)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.clip(center + rng.laplace(0.0, 1 / self.rate, center.shape), 0.0, 1.0)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the density by Lebesgue measure plus atoms; `ConditionalLaw.log_density`."""
        center = self._checked("center", center)
        z = check_points("z", z, center.shape[-1])
        value = ((z > 0) & (z < 1)).double() * math.log(self.rate) - math.log(2)
        value = value - self.rate * (z - center).abs()
        return torch.where((z < 0) | (z > 1), -torch.inf, value).sum(dim=-1)


class AdditiveGeneralizedNormal(ConditionalLaw):
    """Centre plus independent noise of density proportional to exp(-|u/scale|^shape)."""

    def __init__(self, scale: float, shape: float) -> None:
        self.scale, self.shape = check_positive("scale", scale), check_positive("shape", shape)
        self._noise = PowerNoise(self.scale, self.shape)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return center + self._noise.draw(center.shape, rng)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the log density by Lebesgue measure; see `ConditionalLaw.log_density`."""
        center = self._checked("center", center)
        return self._noise.log_density(check_points("z", z, center.shape[-1]) - center)


class AdditiveNormal(AdditiveGeneralizedNormal):
    """Centre plus independent normal noise of standard deviation ``scale``."""

    def __init__(self, scale: float) -> None:
        self.scale = check_positive("scale", scale)
        self._noise = PowerNoise.normal(self.scale)


class AdditiveLaplace(AdditiveGeneralizedNormal):
    """Centre plus independent noise of density (rate/2) exp(-rate |u|)."""

    def __init__(self, rate: float) -> None:
        self.rate = check_positive("rate", rate)
        self._noise = PowerNoise(1 / self.rate, 1.0)


class SignFlip(ConditionalLaw):
    """Flip each sign independently with probability 1 / (1 + exp(2 kappa / dim)).

    On points with coordinates +-1/sqrt(dim) the mass function is
    exp(kappa z.center) / (2 cosh(kappa/dim))^dim, so with `BinaryAttributes` the PMI is
    kappa z_x.z_t - dim log cosh(kappa/dim).
    """

    domain = "signs"

    def __init__(self, kappa: float) -> None:
        self.kappa = check_concentration(kappa)

    def _checked(self, name: str, z: torch.Tensor) -> torch.Tensor:
        check_signs(name, z)
        return check_points(name, z)

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        flip = special.expit(-2 * self.kappa / center.shape[-1])
        return np.where(rng.random(center.shape) < flip, -center, center)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the log mass function (counting measure); see `ConditionalLaw.log_density`."""
        center = check_signs("center", center)
        agree = check_signs("z", z, center.shape[-1]) * center
        return torch.nn.functional.logsigmoid(2 * self.kappa / z.shape[-1] * agree).sum(dim=-1)


class ProductOfVonMises(ConditionalLaw):
    """Independent von Mises law of concentration kappa / circles on each circle.

    Circles are pairs of coordinates of radius 1/sqrt(circles), as in `ProductOfCircles`. Then
    kappa z.center is the sum of the exponents, and with that marginal the PMI is
    kappa z_x.z_t minus a constant. Densities are by Lebesgue measure of the angles.
    """

    domain = "circles"

    def __init__(self, kappa: float) -> None:
        self.kappa = check_concentration(kappa)

    def _checked(self, name: str, z: torch.Tensor) -> torch.Tensor:
        pairs = check_on_circles(name, z)
        return pairs.flatten(-2) / math.sqrt(pairs.shape[-2])

    def _draw(self, center: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        circles = center.shape[-1] // 2
        pairs = center.reshape(-1, 2) * math.sqrt(circles)
        drawn = draw_von_mises_fisher(pairs, self.kappa / circles, rng)
        return drawn.reshape(center.shape) / math.sqrt(circles)

    def log_density(self, z: torch.Tensor, center: torch.Tensor) -> torch.Tensor:
        """Return the log density of the angles; see `ConditionalLaw.log_density`."""
        center = check_on_circles("center", center)
        pairs = check_on_circles("z", z, 2 * center.shape[-2])
        kappa = self.kappa / center.shape[-2]
        constant = -LOG_2PI - log_mean_exponential(2, kappa)[1]
        return (constant - kappa * one_minus_cosine(pairs, center)).sum(dim=-1)


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
        Whether `pmi` is available. It is for the pairs in the table at the top of this module;
        for `UniformBox` with a truncated law by quadrature, with a relative error of p(z_t)
        below 1e-10 per coordinate for shapes up to 10.

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
        check_dtype(dtype)
        generator = as_generator(seed)
        z_x = self.marginal.sample(size, seed=generator)
        z_t = self.conditional.sample(z_x, seed=generator)
        return z_x.to(dtype), z_t.to(dtype)

    def log_conditional(self, z_t: torch.Tensor, z_x: torch.Tensor) -> torch.Tensor:
        """Return log p(z_t | z_x), float64, broadcast over the leading axes."""
        return self.conditional.log_density(
            check_points("z_t", z_t, self.dim), check_points("z_x", z_x, self.dim)
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
        check_points("z_t", z_t, self.dim)
        if self.symmetric:
            return self.conditional.sample(z_t, seed=seed)
        if isinstance(self.marginal, Normal):
            weight = (self.marginal.scale / self.marginal_t.scale) ** 2
            noise = AdditiveNormal(self.conditional.scale * math.sqrt(weight))
            return noise.sample(weight * z_t, seed=seed)
        points = self.conditional._checked("z_t", z_t).detach().cpu().numpy()
        drawn = self.conditional._noise.draw_uniform_center(
            points, self.marginal.low, self.marginal.high, numpy_generator(seed)
        )
        return torch.from_numpy(drawn).to(device=z_t.device, dtype=z_t.dtype)
