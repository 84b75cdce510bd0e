"""From latents to observations: invertible mixings, the latent model, and causal mechanisms.

`LatentPartialCausalModel` draws pairs (x, t) together with the latents that made them, and inverts
its own generators. `Mechanism` and `MechanismMixture` draw the same pair of latents in a causal
order, so that interventions on one latent differ where the joint law does not.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from tutorials_lib._validation import as_generator, check_finite, check_integer, check_positive
from tutorials_lib.latents import Coupling, Law, Normal

__all__ = [
    "InvertibleMixing",
    "LatentPartialCausalModel",
    "Mechanism",
    "MechanismMixture",
    "Pairs",
]

_FLOATS = (torch.float32, torch.float64)


class InvertibleMixing(nn.Module):
    """A fixed random map of R^dim onto itself, non-linear, with a known inverse.

    It applies ``depth`` square matrices with a leaky ReLU between each two of them. A matrix is
    U diag(s) Vᵀ with U and V uniform over rotations and reflections, and log s uniform on
    ±½ log ``condition_number``, so its largest stretch is at most ``condition_number`` times its
    smallest.

    Parameters
    ----------
    dim
        Dimension of input and output, at least 1.
    depth
        Number of matrices, at least 1; with 1 the map is linear.
    condition_number
        Bound on the condition number of each matrix, at least 1; 1 gives rotations.
    negative_slope
        Slope of the leaky ReLU below 0, above 0 and at most 1; 1 gives a linear map.
    seed
        Integer or torch generator.
    dtype
        Type that the matrices are kept and applied in, float32 or float64.

    Attributes
    ----------
    lipschitz_bound, inverse_lipschitz_bound : float
        No distance grows by more than these under the map and under its inverse: the products
        of the extreme singular values and slopes of the layers.
    condition_bound : float
        Their product: the bound on how unevenly the map stretches.

    Raises
    ------
    TypeError, ValueError
        If an argument is outside its range.

    Notes
    -----
    With the defaults the bound is at most 2³ · 5² = 200. A linear map then reads off the
    observation some 40 to 85 % of the variance of coupled latents (less beside more private
    latents), not all of it.

    References
    ----------
    Hyvärinen and Morioka (2016), arXiv:1605.06336, mix by matrices and leaky ReLUs. Drawing the
    singular values, rather than rejecting badly conditioned matrices, makes the bound exact.
    """

    def __init__(
        self,
        dim: int,
        *,
        depth: int = 3,
        condition_number: float = 2.0,
        negative_slope: float = 0.2,
        seed: int | torch.Generator,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        self.dim = check_integer("dim", dim, 1)
        self.depth = check_integer("depth", depth, 1)
        self.condition_number = check_positive("condition_number", condition_number)
        if self.condition_number < 1:
            raise ValueError(
                f"condition_number must be at least 1, got {condition_number}; "
                "1 gives rotations, more is less even"
            )
        self.negative_slope = check_positive("negative_slope", negative_slope)
        if self.negative_slope > 1:
            raise ValueError(
                f"negative_slope must be above 0 and at most 1, got {negative_slope}; "
                "1 gives a linear map"
            )
        _check_dtype(dtype)
        generator = as_generator(seed)
        weights, inverse_weights = [], []
        largest = smallest = 1.0
        for _ in range(self.depth):
            left, right = _orthogonal(self.dim, generator), _orthogonal(self.dim, generator)
            level = torch.rand(self.dim, generator=generator, dtype=torch.float64) - 0.5
            singular = self.condition_number**level
            weights.append(left @ torch.diag(singular) @ right.T)
            inverse_weights.append(right @ torch.diag(1 / singular) @ left.T)
            largest *= float(singular.max())
            smallest *= float(singular.min())
        self.register_buffer("weights", torch.stack(weights).to(dtype))
        self.register_buffer("inverse_weights", torch.stack(inverse_weights).to(dtype))
        self.lipschitz_bound = largest
        self.inverse_lipschitz_bound = 1 / (smallest * self.negative_slope ** (self.depth - 1))
        self.condition_bound = self.lipschitz_bound * self.inverse_lipschitz_bound

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        """Mix.

        Parameters
        ----------
        z
            Shape (..., dim), float32 or float64.

        Returns
        -------
        torch.Tensor
            Same shape and type; computed in the type of the matrices.

        Raises
        ------
        TypeError, ValueError
            If ``z`` is not such a tensor, or holds NaN or infinite entries.
        """
        value = self._checked("z", z)
        for layer, weight in enumerate(self.weights):
            if layer > 0:
                value = functional.leaky_relu(value, self.negative_slope)
            value = value @ weight.T
        return value.to(z.dtype)

    def inverse(self, x: torch.Tensor) -> torch.Tensor:
        """Unmix: ``inverse(forward(z))`` is z up to rounding.

        Parameters
        ----------
        x
            Shape (..., dim), float32 or float64.

        Returns
        -------
        torch.Tensor
            Same shape and type; computed in the type of the matrices.

        Raises
        ------
        TypeError, ValueError
            If ``x`` is not such a tensor, or holds NaN or infinite entries.
        """
        value = self._checked("x", x)
        for layer, weight in enumerate(self.inverse_weights.flip(0)):
            if layer > 0:
                value = functional.leaky_relu(value, 1 / self.negative_slope)
            value = value @ weight.T
        return value.to(x.dtype)

    def extra_repr(self) -> str:
        """Say what the map is, for ``repr``."""
        return f"dim={self.dim}, depth={self.depth}, condition_bound={self.condition_bound:.3g}"

    def _checked(self, name: str, value: torch.Tensor) -> torch.Tensor:
        return _check_points(name, value, self.dim).to(self.weights.dtype)


class Pairs(NamedTuple):
    """Observed pairs and the latents behind them, one pair a row.

    Attributes
    ----------
    x, t
        Observations, shapes (size, x_dim) and (size, t_dim).
    z_x, z_t
        Coupled latents, shape (size, coupling.dim) each.
    m_x, m_t
        Modality-specific latents, shapes (size, dimension of m_x) and (size, dimension of m_t).
    """

    x: torch.Tensor
    t: torch.Tensor
    z_x: torch.Tensor
    z_t: torch.Tensor
    m_x: torch.Tensor
    m_t: torch.Tensor


class LatentPartialCausalModel:
    """Coupled latents, modality-specific latents, and two invertible generators.

    The joint law is p(z_x, z_t) p(m_x) p(m_t), with x = g_x(z_x, m_x) and t = g_t(z_t, m_t). Each
    generator is an `InvertibleMixing` of the two latents side by side.

    Parameters
    ----------
    coupling
        Joint law of z_x and z_t.
    m_x, m_t
        Law of the modality-specific latents, or a number of independent standard normals (0 for
        none).
    mixing_depth, condition_number, negative_slope
        Passed on to `InvertibleMixing`; ``mixing_depth=1`` gives linear generators.
    seed
        Integer or torch generator; decides the generators, not the samples.

    Attributes
    ----------
    x_dim, t_dim : int
        Dimensions of the observations: those of the latents together.
    mixing_x, mixing_t : InvertibleMixing
        The two generators.

    Raises
    ------
    TypeError, ValueError
        If an argument is not of its kind or outside its range.
    """

    def __init__(
        self,
        coupling: Coupling,
        *,
        m_x: Law | int,
        m_t: Law | int,
        mixing_depth: int = 3,
        condition_number: float = 2.0,
        negative_slope: float = 0.2,
        seed: int | torch.Generator,
    ) -> None:
        self.coupling = _check_coupling(coupling)
        self._law_x, self._law_t = _private_law("m_x", m_x), _private_law("m_t", m_t)
        self.x_dim = coupling.dim + (self._law_x.dim if self._law_x else 0)
        self.t_dim = coupling.dim + (self._law_t.dim if self._law_t else 0)
        generator = as_generator(seed)
        self.mixing_x, self.mixing_t = (
            InvertibleMixing(
                dim,
                depth=mixing_depth,
                condition_number=condition_number,
                negative_slope=negative_slope,
                seed=generator,
            )
            for dim in (self.x_dim, self.t_dim)
        )

    def __repr__(self) -> str:
        return (
            f"LatentPartialCausalModel({self.coupling}, m_x={self._law_x}, m_t={self._law_t}, "
            f"x_dim={self.x_dim}, t_dim={self.t_dim})"
        )

    def sample(
        self, size: int, *, seed: int | torch.Generator, dtype: torch.dtype = torch.float32
    ) -> Pairs:
        """Draw pairs with their latents.

        Parameters
        ----------
        size
            Number of pairs, at least 0.
        seed
            Integer or torch generator.
        dtype
            Type of the results, float32 or float64; they are computed in float64.

        Returns
        -------
        Pairs
            Observations and latents, on the CPU.

        Raises
        ------
        TypeError, ValueError
            If an argument is not of its kind or outside its range.
        """
        size = check_integer("size", size, 0)
        _check_dtype(dtype)
        generator = as_generator(seed)
        z_x, z_t = self.coupling.sample(size, seed=generator)
        m_x, m_t = (
            law.sample(size, seed=generator) if law else z_x.new_empty((size, 0))
            for law in (self._law_x, self._law_t)
        )
        values = (self.g_x(z_x, m_x), self.g_t(z_t, m_t), z_x, z_t, m_x, m_t)
        return Pairs(*(value.to(dtype) for value in values))

    def g_x(self, z: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        """Generate images from latents of shape (..., coupling.dim) and (..., dim of m_x)."""
        return self._generate(self.mixing_x, z, m)

    def g_t(self, z: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        """Generate texts from latents of shape (..., coupling.dim) and (..., dim of m_t)."""
        return self._generate(self.mixing_t, z, m)

    def invert_x(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the latents (z_x, m_x) of images of shape (..., x_dim)."""
        return self._invert(self.mixing_x, x)

    def invert_t(self, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the latents (z_t, m_t) of texts of shape (..., t_dim)."""
        return self._invert(self.mixing_t, t)

    def _generate(self, mixing: InvertibleMixing, z: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        private = mixing.dim - self.coupling.dim
        z = _check_points("z", z, self.coupling.dim)
        m = _check_points("m", m, private)
        return mixing(torch.cat([z, m], dim=-1))

    def _invert(
        self, mixing: InvertibleMixing, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        latents = mixing.inverse(value)
        return latents[..., : self.coupling.dim], latents[..., self.coupling.dim :]


class Mechanism:
    """One causal order behind a coupling.

    ``"image->text"`` draws z_x, then z_t from p(z_t | z_x); ``"text->image"`` draws z_t, then z_x
    from p(z_x | z_t). Both have the joint law of the coupling. They differ under interventions: a
    latent follows the other if it comes after it, and keeps its marginal law otherwise.

    Parameters
    ----------
    coupling
        Joint law of z_x and z_t.
    direction
        ``"image->text"`` or ``"text->image"``; the latter needs a coupling whose reverse
        conditional is known (``coupling.exact_pmi``).

    Raises
    ------
    TypeError, ValueError
        If an argument is not of its kind, or if the reverse conditional is not known.

    References
    ----------
    Pearl (2009), *Causality*, 2nd edition, section 3.2, for the truncated factorisation.
    """

    def __init__(
        self, coupling: Coupling, direction: Literal["text->image", "image->text"]
    ) -> None:
        self.coupling = _check_coupling(coupling)
        if direction not in ("text->image", "image->text"):
            raise ValueError(f"direction must be 'text->image' or 'image->text', got {direction!r}")
        if direction == "text->image" and not coupling.exact_pmi:
            raise ValueError(
                f"direction 'text->image' needs the law of z_x given z_t, which is not known for "
                f"{coupling}; use 'image->text', or a coupling with exact_pmi"
            )
        self.direction = direction

    def __repr__(self) -> str:
        return f"Mechanism({self.coupling}, {self.direction!r})"

    def sample(
        self, size: int, *, seed: int | torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw pairs, the cause first.

        Parameters
        ----------
        size
            Number of pairs, at least 0.
        seed
            Integer or torch generator.

        Returns
        -------
        z_x, z_t : torch.Tensor
            float64, shape (size, dim) each.

        Raises
        ------
        TypeError, ValueError
            If an argument is not of its kind or outside its range.
        """
        generator = as_generator(seed)
        z_x, z_t = self.coupling.sample(size, seed=generator)
        if self.direction == "text->image":
            z_x = self.coupling.sample_z_x(z_t, seed=generator)
        return z_x, z_t

    def intervene(
        self,
        size: int,
        *,
        z_x: Any = None,
        z_t: Any = None,
        seed: int | torch.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw pairs under do(z_x = point) or do(z_t = point).

        Parameters
        ----------
        size
            Number of pairs, at least 0.
        z_x, z_t
            A point of shape (dim,) for exactly one of them, where its law lives: the value that it
            is set to.
        seed
            Integer or torch generator.

        Returns
        -------
        z_x, z_t : torch.Tensor
            float64, shape (size, dim) each; all rows of the latent that is set are the point.

        Raises
        ------
        TypeError, ValueError
            If not exactly one point is given, or if it is not a point of the right shape and
            space.
        """
        size = check_integer("size", size, 0)
        name, point = self._check_intervention(z_x, z_t)
        generator = as_generator(seed)
        fixed = point.repeat(size, 1)
        if name == "z_x":
            if self.direction == "image->text":
                return fixed, self.coupling.conditional.sample(fixed, seed=generator)
            return fixed, self.coupling.sample(size, seed=generator)[1]
        if self.direction == "text->image":
            return self.coupling.sample_z_x(fixed, seed=generator), fixed
        return self.coupling.sample(size, seed=generator)[0], fixed

    def _check_intervention(self, z_x: Any, z_t: Any) -> tuple[str, torch.Tensor]:
        given = [(name, value) for name, value in (("z_x", z_x), ("z_t", z_t)) if value is not None]
        if len(given) != 1:
            raise ValueError(
                f"an intervention sets exactly one of z_x and z_t, got {len(given)}; "
                "use sample() to set none"
            )
        name, value = given[0]
        point = torch.as_tensor(value, dtype=torch.float64)
        if tuple(point.shape) != (self.coupling.dim,):
            raise ValueError(
                f"{name} must be one point of shape ({self.coupling.dim},), "
                f"got shape {tuple(point.shape)}"
            )
        check_finite(name, point)
        # Where the law of z_t has no formula, any finite point is taken.
        law = self.coupling.marginal if name == "z_x" else self.coupling.marginal_t
        if law is not None and not torch.isfinite(law.log_density(point)):
            raise ValueError(f"{name} must be a point that {law} allows, got {point.tolist()}")
        return name, point


class MechanismMixture:
    """A population in which both causal orders occur.

    Each pair comes from ``"text->image"`` with probability ``alpha`` and from ``"image->text"``
    otherwise. Its joint law is that of the coupling, whatever ``alpha``.

    Parameters
    ----------
    coupling
        Joint law of z_x and z_t, with a known reverse conditional (``coupling.exact_pmi``).
    alpha
        Probability of ``"text->image"``, from 0 to 1.

    Raises
    ------
    TypeError, ValueError
        If an argument is not of its kind or outside its range, or if the reverse conditional is
        not known.
    """

    def __init__(self, coupling: Coupling, alpha: float) -> None:
        self.alpha = check_positive("alpha", alpha, allow_zero=True)
        if self.alpha > 1:
            raise ValueError(f"alpha must be a probability, from 0 to 1, got {alpha}")
        self.coupling = _check_coupling(coupling)
        self._text_first = Mechanism(coupling, "text->image")
        self._image_first = Mechanism(coupling, "image->text")

    def __repr__(self) -> str:
        return f"MechanismMixture({self.coupling}, alpha={self.alpha:g})"

    def sample(
        self, size: int, *, seed: int | torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw pairs from the mixture; arguments and results as in `Mechanism.sample`."""
        generator = as_generator(seed)
        size = check_integer("size", size, 0)
        return self._mix(
            self._text_first.sample(size, seed=generator),
            self._image_first.sample(size, seed=generator),
            generator,
        )

    def intervene(
        self,
        size: int,
        *,
        z_x: Any = None,
        z_t: Any = None,
        seed: int | torch.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw pairs under an intervention; arguments and results as in `Mechanism.intervene`.

        Under do(z_t = v), z_x follows p(z_x | v) with probability ``alpha`` and its marginal law
        otherwise; under do(z_x = u), z_t follows p(z_t | u) with probability 1 − ``alpha``.
        """
        generator = as_generator(seed)
        return self._mix(
            self._text_first.intervene(size, z_x=z_x, z_t=z_t, seed=generator),
            self._image_first.intervene(size, z_x=z_x, z_t=z_t, seed=generator),
            generator,
        )

    def _mix(
        self,
        text_first: tuple[torch.Tensor, torch.Tensor],
        image_first: tuple[torch.Tensor, torch.Tensor],
        generator: torch.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        size = len(text_first[0])
        level = torch.rand((size, 1), generator=generator, dtype=torch.float64)
        z_x, z_t = (
            torch.where(level < self.alpha, first, second)
            for first, second in zip(text_first, image_first, strict=True)
        )
        return z_x, z_t


def _orthogonal(dim: int, generator: torch.Generator) -> torch.Tensor:
    gaussian = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(gaussian)
    # The signs make the law uniform, whatever convention the factorisation follows.
    return q * torch.sign(torch.diagonal(r))


def _check_dtype(dtype: Any) -> None:
    if dtype not in _FLOATS:
        raise TypeError(f"dtype must be torch.float32 or torch.float64, got {dtype!r}")


def _check_points(name: str, value: Any, dim: int) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or value.dtype not in _FLOATS:
        kind = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        raise TypeError(f"{name} must be a float32 or float64 tensor, got {kind}")
    if value.ndim == 0 or value.shape[-1] != dim:
        raise ValueError(
            f"{name} must have a last axis of {dim} coordinates, got shape {tuple(value.shape)}"
        )
    check_finite(name, value)
    return value


def _check_coupling(coupling: Any) -> Coupling:
    if not isinstance(coupling, Coupling):
        raise TypeError(
            f"coupling must be a Coupling, got {type(coupling).__name__}; for example "
            "Coupling(UniformSphere(3), VonMisesFisher(10.0))"
        )
    return coupling


def _private_law(name: str, law: Any) -> Law | None:
    if isinstance(law, Law):
        return law
    dim = check_integer(f"{name}, if it is not a Law,", law, 0)
    return Normal(dim) if dim else None
