"""Where draws come from: a NumPy generator, and noise of density proportional to a power.

The density is exp(-|u / width|^shape) / (2 width Gamma(1 + 1/shape)), also cut to a box.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy import special

from tutorials_lib._validation import as_generator

__all__ = ["PowerNoise", "numpy_generator"]


def numpy_generator(seed: int | torch.Generator) -> np.random.Generator:
    """Return a NumPy generator seeded by the next 63 bits of the torch one."""
    generator = as_generator(seed)
    bits = torch.randint(2**63 - 1, (1,), generator=generator, device=generator.device)
    return np.random.default_rng(int(bits))


class PowerNoise:
    """Independent noise per coordinate, of kernel exp(-|u / width|^shape).

    Shape 1 is Laplace of rate 1/width, shape 2 is normal: both have simpler formulas than the
    incomplete gamma function of other shapes.
    """

    def __init__(self, width: float, shape: float) -> None:
        self.width, self.shape = width, shape
        self.log_total = math.log(2 * width) + math.lgamma(1 + 1 / shape)

    @classmethod
    def normal(cls, scale: float) -> PowerNoise:
        """Return normal noise of standard deviation ``scale``."""
        return cls(scale * math.sqrt(2), 2.0)

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
        scaled = (a.detach() / self.width) ** self.shape
        order = torch.tensor(1 / self.shape, dtype=torch.float64)
        value = 0.5 * math.exp(self.log_total) * torch.special.gammainc(order, scaled)
        # The derivative is the kernel; autograd's own way through gammainc is inf * 0 at a = 0.
        return value + self.log_kernel(a).exp().detach() * (a - a.detach())

    def mass(self, center: torch.Tensor, low: float, high: float) -> torch.Tensor:
        """Return C(center), the integral of the kernel around ``center`` over [low, high]."""
        return self.half_mass(center - low) + self.half_mass(high - center)

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

    def draw_uniform_center(
        self, z: np.ndarray, low: float, high: float, rng: np.random.Generator
    ) -> np.ndarray:
        """Draw where a truncated draw ``z`` came from, if the centre was uniform on the box.

        Rejects in proportion to 1 / C(center), where C is `mass`. C is concave and smallest at
        the ends of the box, and at most twice that, so at least half of what is proposed in
        each round is kept.
        """
        smallest = float(self.half_mass(torch.tensor(high - low).double()))
        center = np.empty(z.size)
        points, left = z.ravel(), np.arange(z.size)
        for _ in range(500):
            if left.size == 0:
                return center.reshape(z.shape)
            proposal = self.draw_truncated(points[left], low, high, rng)
            mass = self.mass(torch.from_numpy(proposal), low, high).numpy()
            accepted = rng.random(left.size) * mass < smallest
            center[left[accepted]] = proposal[accepted]
            left = left[~accepted]
        raise RuntimeError(f"{left.size} draws of the centre were rejected 500 times")

    def log_truncated_marginal(self, z: torch.Tensor, low: float, high: float) -> torch.Tensor:
        """Return the log density, per coordinate, of truncated noise around a uniform centre.

        It is the integral of kernel(z - x) / C(x) over x in the box, over its length, where C
        is `mass`. Each side of z is integrated by the tanh-sinh rule as far as the kernel
        exceeds exp(-45): relative error below 1e-10 for shapes up to 10, 1e-6 at shape 30,
        whose kernel is nearly a step.

        References
        ----------
        Takahasi and Mori, Double exponential formulas, Publ. RIMS 9, 1974.
        """
        reach = self.width * 45 ** (1 / self.shape)
        step = 1 / 16
        total = torch.zeros_like(z)
        for sign, room in ((-1, z - low), (1, high - z)):
            length = room.clamp(max=reach)
            for node in np.arange(-54, 55) * step:
                near = float(special.expit(np.pi * np.sinh(node)))
                weight = near * (1 - near) * np.pi * np.cosh(node) * step
                shift = length * near
                # Not by way of x = z + sign * shift, whose rounding could leave the box.
                mass = self.half_mass(z - low + sign * shift)
                mass = mass + self.half_mass(high - z - sign * shift)
                total = total + length * weight * self.log_kernel(shift).exp() / mass
        return (total / (high - low)).log()
