"""Latent laws agree with closed forms, with SciPy and mpmath, and with their own densities."""

from __future__ import annotations

import itertools
import math
import time

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from tutorials_lib.latents import (
    AdditiveGeneralizedNormal,
    AdditiveLaplace,
    AdditiveNormal,
    BinaryAttributes,
    ClippedLaplace,
    ClippedLaplaceStationary,
    Coupling,
    GeneralizedNormal,
    Laplace,
    Normal,
    ProductOfCircles,
    ProductOfVonMises,
    ProjectedLaplace,
    ProjectedNormal,
    SignFlip,
    TruncatedGeneralizedNormal,
    TruncatedLaplace,
    TruncatedNormal,
    UniformBox,
    UniformSphere,
    VonMisesFisher,
    von_mises_fisher_log_normalizer,
    von_mises_fisher_mean_resultant_length,
)

EXACT = [
    Coupling(UniformSphere(3), VonMisesFisher(4.0)),
    Coupling(UniformSphere(4), ProjectedNormal(0.7)),
    Coupling(ClippedLaplaceStationary(2, 5.0), ClippedLaplace(5.0)),
    Coupling(BinaryAttributes(4), SignFlip(3.0)),
    Coupling(ProductOfCircles(2), ProductOfVonMises(4.0)),
    Coupling(Normal(2, 1.3), AdditiveNormal(0.8)),
    Coupling(UniformBox(2), TruncatedLaplace(4.0)),
    Coupling(UniformBox(2, -1.0, 2.0), TruncatedNormal(0.9, -1.0, 2.0)),
    Coupling(UniformBox(2), TruncatedGeneralizedNormal(0.4, 3.0)),
]
INEXACT = [
    Coupling(UniformSphere(3), ProjectedLaplace(0.5)),
    Coupling(BinaryAttributes(3), VonMisesFisher(2.0)),
    Coupling(Normal(2), AdditiveLaplace(1.0)),
    Coupling(Laplace(2), AdditiveGeneralizedNormal(1.0, 3.0)),
    Coupling(UniformBox(2), AdditiveNormal(0.1)),
    Coupling(UniformBox(2), ClippedLaplace(5.0)),
    Coupling(ClippedLaplaceStationary(2, 4.0), ClippedLaplace(5.0)),
]


def tensor(values) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def z_score(samples: torch.Tensor, mean: float) -> float:
    return float((samples.mean() - mean) / (samples.std() / len(samples) ** 0.5))


def circle(n: int) -> torch.Tensor:
    angle = (torch.arange(n, dtype=torch.float64) + 0.5) * (2 * math.pi / n)
    return torch.stack([angle.cos(), angle.sin()], dim=1)


# --- von Mises-Fisher -----------------------------------------------------------------------

KAPPAS = [0, 1e-12, 1e-3, 0.7, 10, 99, 101, 150, 1e3, 1e5, 1e8, 1e12, 1e17]


@pytest.mark.parametrize("dim", [2, 3, 4, 5, 10, 33, 128, 511, 512])
def test_normalizer_and_resultant_length_match_mpmath(dim):
    """40 digits of mpmath on both sides of the switch from series to expansion."""
    with mpmath.workdps(40):
        nu = mpmath.mpf(dim) / 2 - 1
        log_two_pi = mpmath.log(2 * mpmath.pi)
        for kappa in KAPPAS:
            got = von_mises_fisher_log_normalizer(dim, kappa)
            length = von_mises_fisher_mean_resultant_length(dim, kappa)
            if kappa == 0:
                area = 2 * mpmath.pi ** (nu + 1) / mpmath.gamma(nu + 1)
                assert got == pytest.approx(float(-mpmath.log(area)), rel=1e-13)
                assert length == 0
                continue
            bessel = mpmath.besseli(nu, kappa)
            want = nu * mpmath.log(kappa) - (nu + 1) * log_two_pi - mpmath.log(bessel)
            assert got == pytest.approx(float(want), rel=1e-13)
            ratio = mpmath.besseli(nu + 1, kappa) / bessel
            assert length == pytest.approx(float(ratio), rel=1e-13)
            assert float(1 - mpmath.mpf(length)) == pytest.approx(
                float(1 - ratio), rel=1e-13, abs=2e-15
            )


@pytest.mark.parametrize("kappa", [0.0, 1e-12, 1.0, 50.0, 1e8, 1e12, 1e17])
@pytest.mark.parametrize("dim", [2, 3, 10, 512])
def test_case_19_cosine_has_the_right_mean_for_any_kappa_and_centre(dim, kappa):
    """E[1 - cos] = 1 - A(kappa), centres -e1, +e1 and random ones.

    28 tests at |z| < 4.5: a false alarm has probability 2e-4 over all of them.
    """
    n = 20_000 if dim <= 10 else 600
    center = UniformSphere(dim).sample(n, seed=1)
    center[: n // 3] = torch.eye(dim, dtype=torch.float64)[0]
    center[n // 3 : 2 * n // 3] = -torch.eye(dim, dtype=torch.float64)[0]
    z = VonMisesFisher(kappa).sample(center, seed=2)
    assert torch.isfinite(z).all()
    assert float((z.norm(dim=1) - 1).abs().max()) < 1e-14
    complement = 1 - von_mises_fisher_mean_resultant_length(dim, kappa)
    if kappa > 1e10:
        complement = (dim - 1) / (2 * kappa)
    assert abs(z_score(0.5 * (z - center).square().sum(dim=1), complement)) < 4.5


def test_case_19_hundred_thousand_draws_take_well_below_a_second():
    """A loose bound (about 0.05 s is usual) that a loop over rows or a stuck one would miss."""
    center = UniformSphere(10).sample(100_000, seed=0)
    start = time.process_time()
    VonMisesFisher(20.0).sample(center, seed=1)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(("dim", "kappa"), [(2, 2.0), (2, 300.0), (3, 0.5), (3, 40.0)])
def test_cosine_and_angle_follow_their_distributions(dim, kappa):
    """Kolmogorov-Smirnov at p > 1e-4, against SciPy's von Mises or the exact law on S^2."""
    center = torch.eye(dim, dtype=torch.float64)[0].expand(20_000, dim)
    z = VonMisesFisher(kappa).sample(center, seed=3).numpy()
    if dim == 2:
        test = stats.kstest(np.arctan2(z[:, 1], z[:, 0]), stats.vonmises(kappa).cdf)
    else:
        test = stats.kstest(z[:, 0], lambda w: np.expm1(kappa * (w + 1)) / np.expm1(2 * kappa))
        around = np.arctan2(z[:, 1], z[:, 2])
        assert stats.kstest(around, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-4
    assert test.pvalue > 1e-4


def test_density_agrees_with_scipy():
    for dim, kappa in [(2, 0.3), (3, 5.0), (8, 60.0)]:
        center, z = UniformSphere(dim).sample(2, seed=4)
        want = stats.vonmises_fisher(center.numpy(), kappa).logpdf(z.numpy())
        got = VonMisesFisher(kappa).log_density(z, center)
        assert float(got) == pytest.approx(float(np.squeeze(want)), rel=1e-10)


def test_density_keeps_its_accuracy_at_large_kappa():
    """At kappa 1e8 a product kappa z.centre alone would lose eight digits."""
    center = tensor([1.0, 0.0])
    angle = 2e-4
    z = tensor([math.cos(angle), math.sin(angle)])
    got = float(VonMisesFisher(1e8).log_density(z, center))
    with mpmath.workdps(40):
        kappa = mpmath.mpf(10) ** 8
        want = kappa * mpmath.cos(mpmath.mpf(angle)) - mpmath.log(
            2 * mpmath.pi * mpmath.besseli(0, kappa)
        )
    assert got == pytest.approx(float(want), abs=1e-9)


# --- Projected laws -------------------------------------------------------------------------


@pytest.mark.parametrize("law", [ProjectedNormal, ProjectedLaplace])
@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_projected_density_is_the_radial_integral(law, scale):
    """An adaptive quadrature of the joint density along the ray, in dimensions 2, 3 and 6."""

    def density(u):
        if law is ProjectedNormal:
            return np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi)
        return np.exp(-np.abs(u)) / 2

    for dim, seed in itertools.product((2, 3, 6), (0, 1)):
        center, z = UniformSphere(dim).sample(2, seed=seed)
        if seed == 1:
            z = torch.nn.functional.normalize(center + 0.1 * z, dim=0)

        def joint(r, z=z, center=center, dim=dim):
            u = (r * z.numpy() - center.numpy()) / scale
            return r ** (dim - 1) * np.prod(density(u) / scale)

        kinks = sorted({float(k) for k in center / z if 0 < k < 60 * scale})
        edges = sorted({0.0, *kinks, *np.geomspace(1e-2, 80 * scale + 5, 30)})
        want = math.fsum(
            integrate.quad(joint, a, b, epsabs=0, epsrel=1e-11, limit=200)[0]
            for a, b in itertools.pairwise(edges)
        )
        assert float(law(scale).log_density(z, center)) == pytest.approx(math.log(want), abs=1e-8)


@pytest.mark.parametrize("scale", [0.02, 0.5, 5.0])
@pytest.mark.parametrize("dim", [2, 10, 512])
def test_projected_normal_matches_mpmath_in_all_directions(dim, scale):
    """From w = 1 (recursion) to w = -1 (trapezoidal rule), where the recursion would fail."""
    for w in (-1.0, -0.5, -1e-3, 0.0, 1e-3, 0.6, 1.0):
        center, z = torch.zeros(2, dim, dtype=torch.float64)
        center[0], z[0], z[1] = 1, w, math.sqrt(1 - w * w)
        with mpmath.workdps(25):
            a, k = mpmath.mpf(w) / mpmath.mpf(scale), dim - 1
            peak = (a + mpmath.sqrt(a * a + 4 * k)) / 2
            width = 1 / mpmath.sqrt(1 + k / peak**2)
            top = k * mpmath.log(peak) - (peak - a) ** 2 / 2
            edges = [peak + j * width for j in (-20, -8, -3, 0, 3, 8, 20, 60)]
            edges = [mpmath.mpf("1e-30")] + [e for e in edges if e > peak / 1000]
            area = mpmath.quad(
                lambda r, k=k, a=a, top=top: mpmath.exp(k * mpmath.log(r) - (r - a) ** 2 / 2 - top),
                edges,
            )
            want = mpmath.log(area) + top - mpmath.mpf(dim) / 2 * mpmath.log(2 * mpmath.pi)
            want -= (1 - mpmath.mpf(w) ** 2) / (2 * mpmath.mpf(scale) ** 2)
        got = float(ProjectedNormal(scale).log_density(z, center))
        assert got == pytest.approx(float(want), rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("scale", [1e-3, 1e-7])
def test_projected_laplace_is_stable_at_tiny_scales(scale):
    """At z = centre all kinks meet at r = 1: the integral is 2 scale / |z|_1 to first order."""
    z = UniformSphere(5).sample(1, seed=0)
    want = math.log(2 * scale / float(z.abs().sum())) - 5 * math.log(2 * scale)
    got = float(ProjectedLaplace(scale).log_density(z, z))
    assert got == pytest.approx(want, abs=300 * scale**2 + 1e-7)


@pytest.mark.parametrize(
    "law",
    [VonMisesFisher(3.0), ProjectedNormal(0.4), ProjectedNormal(3.0), ProjectedLaplace(0.6)],
)
def test_sphere_densities_integrate_to_one_and_give_the_sampled_mean(law):
    """Midpoint rule on the circle; mean and second moment of draws at |z| < 4.5 (1e-4 in all)."""
    grid, center = circle(2000), tensor([0.6, -0.8])
    weight = law.log_density(grid, center).exp() * (2 * math.pi / 2000)
    assert float(weight.sum()) == pytest.approx(1, abs=1e-5)
    z = law.sample(center.expand(40_000, 2), seed=5)
    for f in (lambda p: p @ center, lambda p: p[:, 0] ** 2, lambda p: p[:, 0] * p[:, 1]):
        assert abs(z_score(f(z), float((weight * f(grid)).sum()))) < 4.5


# --- Laws per coordinate --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "reference"),
    [
        (Normal(2, 1.5), stats.norm(scale=1.5)),
        (Laplace(2, 0.7), stats.laplace(scale=0.7)),
        (GeneralizedNormal(2, 0.7, 3.0), stats.gennorm(3.0, scale=0.7)),
        (GeneralizedNormal(2, 2.0, 0.5), stats.gennorm(0.5, scale=2.0)),
        (UniformBox(2, -1.0, 3.0), stats.uniform(-1.0, 4.0)),
    ],
)
def test_marginals_agree_with_scipy(law, reference):
    """Densities to rounding; draws by Kolmogorov-Smirnov at p > 1e-4."""
    z = law.sample(10_000, seed=6)
    want = reference.logpdf(z[:50].numpy()).sum(axis=1)
    np.testing.assert_allclose(law.log_density(z[:50]).numpy(), want, rtol=1e-12, atol=1e-12)
    assert stats.kstest(z[:, 0].numpy(), reference.cdf).pvalue > 1e-4


@pytest.mark.parametrize(
    ("law", "reference"),
    [
        (AdditiveNormal(0.3), stats.norm(scale=0.3)),
        (AdditiveLaplace(4.0), stats.laplace(scale=0.25)),
        (AdditiveGeneralizedNormal(0.3, 5.0), stats.gennorm(5.0, scale=0.3)),
    ],
)
def test_additive_noise_agrees_with_scipy(law, reference):
    """Kolmogorov-Smirnov at p > 1e-4."""
    center = tensor([2.0, -1.0]).expand(10_000, 2)
    noise = (law.sample(center, seed=7) - center).numpy()
    assert stats.kstest(noise.ravel(), reference.cdf).pvalue > 1e-4
    got = law.log_density(center + tensor(noise), center).numpy()
    np.testing.assert_allclose(got, reference.logpdf(noise).sum(axis=1), rtol=1e-9, atol=1e-9)


TRUNCATED = [
    (TruncatedNormal(0.4, -1.0, 1.5), stats.norm(scale=0.4)),
    (TruncatedLaplace(3.0, -1.0, 1.5), stats.laplace(scale=1 / 3)),
    (TruncatedGeneralizedNormal(0.8, 4.0, -1.0, 1.5), stats.gennorm(4.0, scale=0.8)),
    (TruncatedGeneralizedNormal(0.8, 0.6, -1.0, 1.5), stats.gennorm(0.6, scale=0.8)),
]


@pytest.mark.parametrize(("law", "reference"), TRUNCATED)
@pytest.mark.parametrize("center", [-1.0, -0.9, 0.2, 1.5])
def test_truncated_laws_agree_with_scipy(law, reference, center):
    """Density and draws (Kolmogorov-Smirnov at p > 1e-4) against a cut SciPy law."""
    z = law.sample(torch.full((5_000, 1), center, dtype=torch.float64), seed=8).numpy()
    start = reference.cdf(-1.0 - center)
    mass = reference.cdf(1.5 - center) - start
    test = stats.kstest(z[:, 0], lambda x: (reference.cdf(x - center) - start) / mass)
    assert test.pvalue > 1e-4
    got = law.log_density(tensor(z), tensor([center])).numpy()
    want = reference.logpdf(z[:, 0] - center) - math.log(mass)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_truncated_normal_agrees_with_truncnorm():
    law, center = TruncatedNormal(0.5), 0.1
    z = law.sample(torch.full((20_000, 1), center, dtype=torch.float64), seed=9)
    reference = stats.truncnorm(-center / 0.5, (1 - center) / 0.5, loc=center, scale=0.5)
    assert stats.kstest(z[:, 0].numpy(), reference.cdf).pvalue > 1e-4


@pytest.mark.parametrize(("law", "reference"), TRUNCATED)
def test_marginal_of_the_truncated_pair_matches_adaptive_quadrature(law, reference):
    """The law of z_t, of which the boundary effect in the PMI is made, to 1e-9."""
    marginal = Coupling(UniformBox(1, -1.0, 1.5), law).marginal_t
    for t in (-1.0, -0.99, -0.3, 1.2, 1.5):

        def joint(x, t=t):
            mass = reference.cdf(1.5 - x) - reference.cdf(-1.0 - x)
            return reference.pdf(t - x) / mass / 2.5

        near = (t + d for d in (-0.5, -0.1, -0.01, 0.0, 0.01, 0.1, 0.5))
        edges = sorted({-1.0, *(e for e in near if -1 < e < 1.5), 1.5})
        want = sum(
            integrate.quad(joint, a, b, epsabs=0, epsrel=1e-12, limit=500)[0]
            for a, b in itertools.pairwise(edges)
        )
        got = float(marginal.log_density(tensor([t])))
        assert got == pytest.approx(math.log(want), abs=1e-9)


def test_boundary_effect_of_truncation_shrinks_with_the_rate():
    """PMI + rate |z_x - z_t|_1 is constant only away from the boundary (theory 4.3)."""
    spread = []
    for rate in (5.0, 20.0, 80.0):
        pair = Coupling(UniformBox(1), TruncatedLaplace(rate))
        z_x, z_t = pair.sample(4_000, seed=10)
        spread.append(float((pair.pmi(z_x, z_t) + rate * (z_x - z_t).abs().sum(dim=1)).std()))
    assert spread[0] > spread[1] > spread[2] > 0


# --- Clipped Laplace: the exact model on the box --------------------------------------------


def test_clipped_laplace_mass_is_one():
    rate, law = 4.0, ClippedLaplace(4.0)
    ends = tensor([[0.0], [1.0]])
    for center in (0.0, 0.3, 1.0):
        inside = integrate.quad(
            lambda z, c=center: float(law.log_density(tensor([z]), tensor([c])).exp()),
            0,
            1,
            points=[center] if 0 < center < 1 else None,
            epsrel=1e-12,
        )[0]
        atoms = float(law.log_density(ends, tensor([center])).exp().sum())
        assert inside + atoms == pytest.approx(1, abs=1e-9)
    stationary = ClippedLaplaceStationary(1, rate)
    middle = float(stationary.log_density(tensor([0.5])).exp())
    assert middle + float(stationary.log_density(ends).exp().sum()) == pytest.approx(1)


def test_clipped_laplace_law_is_stationary_and_reversible():
    """Detailed balance of the densities, and the pair's histogram against its transpose.

    Cells of the histogram differ from their mirror by 5 standard errors at most (about 1e-5).
    """
    pair = Coupling(ClippedLaplaceStationary(1, 3.0), ClippedLaplace(3.0))
    z = tensor([0.0, 0.2, 0.7, 1.0])[:, None]
    joint = pair.log_conditional(z[None], z[:, None]) + pair.marginal.log_density(z)[:, None]
    torch.testing.assert_close(joint, joint.T)
    z_x, z_t = pair.sample(200_000, seed=11)
    edges = tensor([0.0, 0.25, 0.5, 0.75]).nextafter(tensor(1.0))
    cells = [torch.bucketize(v[:, 0].contiguous(), edges) + (v[:, 0] == 1) for v in (z_x, z_t)]
    table = torch.bincount(cells[0] * 6 + cells[1], minlength=36).reshape(6, 6).double()
    assert ((table - table.T).abs() <= 5 * (table + table.T).sqrt()).all()
    atoms = (z_t == 0).double()[:, 0], (z_t == 1).double()[:, 0]
    assert all(abs(z_score(atom, 1 / 5)) < 4.5 for atom in atoms)


def test_clipped_laplace_pmi_is_the_l1_distance():
    """Theory 4.3: PMI = -rate |z_x - z_t|_1 + dim log((rate + 2) / 2), atoms included."""
    pair = Coupling(ClippedLaplaceStationary(3, 6.0), ClippedLaplace(6.0))
    z_x, z_t = pair.sample(500, seed=12)
    assert ((z_x == 0) | (z_x == 1)).any()
    want = -6.0 * (z_x - z_t).abs().sum(dim=1) + 3 * math.log(4.0)
    torch.testing.assert_close(pair.pmi(z_x, z_t), want)


# --- Signs and circles ----------------------------------------------------------------------


def test_sign_flip_is_a_law_with_bilinear_pmi():
    """Sums over all 2^4 points: mass one, marginal kept, PMI = kappa z.z' - dim log cosh."""
    kappa, dim = 3.0, 4
    pair = Coupling(BinaryAttributes(dim), SignFlip(kappa))
    z = tensor(list(itertools.product([-1, 1], repeat=dim))) / math.sqrt(dim)
    table = pair.log_conditional(z, z[:, None]).exp()
    torch.testing.assert_close(table.sum(dim=1), torch.ones(16, dtype=torch.float64))
    torch.testing.assert_close(table, table.T)
    want = kappa * z @ z.T - dim * math.log(math.cosh(kappa / dim))
    torch.testing.assert_close(pair.pmi(z[:, None], z), want)
    z_x, z_t = pair.sample(20_000, seed=13)
    flips = (z_x * z_t < 0).double().flatten()
    assert abs(z_score(flips, 1 / (1 + math.exp(2 * kappa / dim)))) < 4.5


def test_product_of_circles_lies_on_the_sphere_with_bilinear_pmi():
    kappa, circles = 6.0, 3
    pair = Coupling(ProductOfCircles(circles), ProductOfVonMises(kappa))
    z_x, z_t = pair.sample(5_000, seed=14)
    torch.testing.assert_close(z_t.norm(dim=1), torch.ones(5_000, dtype=torch.float64))
    want = kappa * (z_x * z_t).sum(dim=1) - circles * math.log(np.i0(kappa / circles))
    torch.testing.assert_close(pair.pmi(z_x, z_t), want)
    turn = torch.atan2(z_t[:, 1], z_t[:, 0]) - torch.atan2(z_x[:, 1], z_x[:, 0])
    turn = (turn.numpy() + np.pi) % (2 * np.pi) - np.pi
    assert stats.kstest(turn, stats.vonmises(kappa / circles).cdf).pvalue > 1e-4


def test_one_circle_is_the_von_mises_fisher_pair():
    pair = Coupling(ProductOfCircles(1), ProductOfVonMises(2.5))
    z_x, z_t = pair.sample(100, seed=15)
    same = Coupling(UniformSphere(2), VonMisesFisher(2.5)).pmi(z_x, z_t)
    torch.testing.assert_close(pair.pmi(z_x, z_t), same)


# --- Couplings ------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", EXACT, ids=repr)
def test_pmi_is_a_log_density_ratio(pair):
    """E exp(-PMI) = 1 over pairs and E exp(PMI) = 1 over shuffled ones; |z| < 4.5 (1e-4 in all).

    The second identity also holds row by row, so it is checked given one z_x and given one z_t.
    """
    assert pair.exact_pmi
    # The incomplete gamma functions of this law are the slowest density, and are checked above.
    size = 2_500 if isinstance(pair.conditional, TruncatedGeneralizedNormal) else 10_000
    z_x, z_t = pair.sample(size, seed=16)
    other = pair.sample(size, seed=17)
    pmi = pair.pmi(z_x, z_t)
    assert pmi.dtype == torch.float64
    # exp(-PMI) has no variance on unbounded space once the noise is small.
    if not isinstance(pair.marginal, Normal):
        assert abs(z_score((-pmi).exp(), 1)) < 4.5
    assert abs(z_score(pair.pmi(z_x[0], other[1]).exp(), 1)) < 4.5
    assert abs(z_score(pair.pmi(other[0], z_t[0]).exp(), 1)) < 4.5


@pytest.mark.parametrize("pair", EXACT, ids=repr)
def test_reverse_conditional_gives_the_same_joint(pair):
    """Moments of (z_x', z_t), z_x' redrawn given z_t, against fresh pairs; 36 tests at |z| < 5."""
    z_x, z_t = pair.sample(40_000, seed=18)
    again = pair.sample_z_x(z_t, seed=19)
    moments = [
        lambda x, t: x[:, 0] * t[:, 0],
        lambda x, t: x[:, 0] ** 2,
        lambda x, t: (x - t).abs().sum(dim=1),
        lambda x, t: x[:, 0] ** 2 * t[:, 1],
    ]
    for moment in moments:
        first, second = moment(z_x, z_t), moment(again, z_t)
        error = ((first.var() + second.var()) / len(first)).sqrt() + 1e-12
        assert abs(first.mean() - second.mean()) < 5 * error
    if pair.symmetric:
        flipped = pair.pmi(z_t[:100], z_x[:100])
        torch.testing.assert_close(pair.pmi(z_x[:100], z_t[:100]), flipped)


@pytest.mark.parametrize("pair", EXACT, ids=repr)
def test_law_of_z_t_can_be_drawn(pair):
    """Means of two functions of z_t from the pair and from its own law; 18 tests at |z| < 5."""
    z_t, fresh = pair.sample(20_000, seed=20)[1], pair.marginal_t.sample(20_000, seed=21)
    for f in (lambda z: z[:, 0], lambda z: z[:, 0].abs().sqrt() * z[:, 1]):
        error = ((f(z_t).var() + f(fresh).var()) / 20_000).sqrt() + 1e-12
        assert abs(f(z_t).mean() - f(fresh).mean()) < 5 * error


def test_only_exchangeable_pairs_are_symmetric():
    assert [pair.symmetric for pair in EXACT] == [True] * 5 + [False] * 4
    assert not any(pair.symmetric for pair in INEXACT)


@pytest.mark.parametrize("pair", INEXACT, ids=repr)
def test_pairs_without_an_exact_pmi_say_so_and_name_one_that_has_it(pair):
    z_x, z_t = pair.sample(3, seed=0)
    assert torch.isfinite(pair.log_conditional(z_t, z_x)).all()
    assert not pair.exact_pmi
    with pytest.raises(ValueError, match="UniformSphere with VonMisesFisher"):
        pair.pmi(z_x, z_t)
    with pytest.raises(ValueError, match="not known exactly"):
        pair.sample_z_x(z_t, seed=0)


def test_normal_pair_has_the_mutual_information_of_a_gaussian_channel():
    """Mean PMI = dim/2 log(1 + snr); |z| < 4.5."""
    pair = Coupling(Normal(3, 2.0), AdditiveNormal(0.5))
    z_x, z_t = pair.sample(20_000, seed=22)
    assert abs(z_score(pair.pmi(z_x, z_t), 1.5 * math.log(1 + 16))) < 4.5


@pytest.mark.parametrize("pair", EXACT + INEXACT, ids=repr)
def test_equal_seeds_give_equal_pairs_and_global_state_is_untouched(pair):
    torch_state = torch.get_rng_state()
    numpy_state = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = pair.sample(50, seed=3), pair.sample(50, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[1], pair.sample(50, seed=4)[1])
    generator = torch.Generator().manual_seed(3)
    assert torch.equal(pair.sample(50, seed=generator)[1], first[1])
    assert not torch.equal(pair.sample(50, seed=generator)[1], first[1])
    assert torch.equal(torch_state, torch.get_rng_state())
    assert np.array_equal(numpy_state, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("pair", EXACT + INEXACT, ids=repr)
def test_float32_and_empty_samples_pass_through_the_densities(pair):
    z_x, z_t = pair.sample(200, seed=5, dtype=torch.float32)
    assert z_x.dtype == z_t.dtype == torch.float32
    assert torch.isfinite(pair.log_conditional(z_t, z_x)).all()
    assert pair.conditional.sample(z_x, seed=0).dtype == torch.float32
    empty = pair.sample(0, seed=5)
    assert empty[0].shape == empty[1].shape == (0, pair.dim)
    assert pair.log_conditional(empty[1], empty[0]).shape == (0,)


@pytest.mark.parametrize("pair", EXACT, ids=repr)
def test_pmi_broadcasts_to_a_table(pair):
    z_x, z_t = pair.sample(4, seed=6)
    table = pair.pmi(z_x[:, None], z_t)
    assert table.shape == (4, 4)
    torch.testing.assert_close(table.diagonal(), pair.pmi(z_x, z_t))


def test_pmi_can_be_differentiated():
    pair = Coupling(UniformSphere(4), VonMisesFisher(5.0))
    z_x, z_t = pair.sample(6, seed=7)
    z_x.requires_grad_()
    pair.pmi(z_x, z_t).sum().backward()
    # Points are put on the sphere first, so the gradient is the tangential part of kappa z_t.
    want = 5.0 * (z_t - (z_t * z_x).sum(dim=1, keepdim=True) * z_x)
    torch.testing.assert_close(z_x.grad, want.detach())


@settings(max_examples=25, deadline=None)
@given(
    dim=st.integers(2, 40),
    exponent=st.floats(-14, 17),
    seed=st.integers(0, 2**32),
)
def test_von_mises_fisher_never_fails_in_its_range(dim, exponent, seed):
    """Any dimension and any order of magnitude of kappa: finite, on the sphere, A in [0, 1]."""
    kappa = 10.0**exponent
    pair = Coupling(UniformSphere(dim), VonMisesFisher(kappa))
    z_x, z_t = pair.sample(20, seed=seed)
    assert torch.isfinite(pair.pmi(z_x, z_t)).all()
    assert float((z_t.norm(dim=1) - 1).abs().max()) < 1e-14
    assert 0 <= von_mises_fisher_mean_resultant_length(dim, kappa) <= 1


# --- Bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize("kappa", [-1.0, float("nan"), float("inf"), 1e101])
def test_bad_kappa_is_refused(kappa):
    for law in (VonMisesFisher, SignFlip, ProductOfVonMises):
        with pytest.raises(ValueError, match="kappa must be"):
            law(kappa)
    for function in (
        von_mises_fisher_log_normalizer,
        von_mises_fisher_mean_resultant_length,
    ):
        with pytest.raises(ValueError, match="kappa must be"):
            function(3, kappa)


def test_negative_kappa_says_what_to_do():
    with pytest.raises(ValueError, match=r"got -1.0; for no coupling use kappa=0"):
        VonMisesFisher(-1.0)


@pytest.mark.parametrize("law", [VonMisesFisher(1.0), ProjectedNormal(1.0), ProjectedLaplace(1.0)])
def test_centres_off_the_sphere_are_refused_with_a_count(law):
    center = UniformSphere(3).sample(4, seed=0)
    center[1] *= 1.01
    with pytest.raises(ValueError, match=r"unit norm, got 1 of 4 .* norm 1\.01"):
        law.sample(center, seed=0)
    with pytest.raises(ValueError, match="z must have unit norm"):
        law.log_density(center, center[0])
    with pytest.raises(ValueError, match="at least 2 coordinates"):
        law.sample(tensor([[1.0]]), seed=0)


def test_nan_and_shape_and_type_of_points_are_refused():
    law = VonMisesFisher(1.0)
    with pytest.raises(ValueError, match=r"center must be finite, got 2 .* out of 2"):
        law.sample(tensor([float("nan"), float("inf")]), seed=0)
    with pytest.raises(TypeError, match="center must be a torch tensor"):
        law.sample(np.ones(2), seed=0)
    with pytest.raises(TypeError, match=r"got torch\.int64"):
        law.sample(torch.tensor([1, 0]), seed=0)
    with pytest.raises(ValueError, match=r"last axis of 3 .* got shape \(2,\)"):
        law.log_density(tensor([1.0, 0.0]), tensor([1.0, 0.0, 0.0]))
    with pytest.raises(ValueError, match="last axis of 3"):
        Normal(3).log_density(torch.zeros(2))


def test_bad_sizes_dimensions_and_types_are_refused():
    with pytest.raises(ValueError, match="dim must be an integer >= 2, got 1"):
        UniformSphere(1)
    with pytest.raises(ValueError, match="dim must be an integer >= 2, got 1"):
        von_mises_fisher_log_normalizer(1, 1.0)
    with pytest.raises(ValueError, match="size must be an integer >= 0, got -1"):
        UniformSphere(2).sample(-1, seed=0)
    with pytest.raises(TypeError, match="size must be an integer"):
        UniformSphere(2).sample(2.0, seed=0)
    with pytest.raises(TypeError, match="seed must be"):
        UniformSphere(2).sample(2, seed=None)
    with pytest.raises(TypeError, match="dtype must be"):
        UniformSphere(2).sample(2, seed=0, dtype=torch.int64)
    for bad in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="must be a finite number > 0"):
            ProjectedNormal(bad)
        with pytest.raises(ValueError, match="must be a finite number > 0"):
            ClippedLaplace(bad)
    with pytest.raises(ValueError, match="low must be below high"):
        UniformBox(2, 1.0, 1.0)


def test_points_outside_the_support():
    """Outside a box the density is zero; off the signs or circles there is no density."""
    outside = tensor([0.5, 1.5])
    inside = tensor([0.5, 0.5])
    for law in (UniformBox(2), ClippedLaplaceStationary(2, 1.0)):
        assert law.log_density(outside) == -math.inf
    for law in (TruncatedLaplace(1.0), ClippedLaplace(1.0)):
        assert law.log_density(outside, inside) == -math.inf
        with pytest.raises(ValueError, match="between 0 and 1 in every coordinate, got 1 of 2"):
            law.sample(outside, seed=0)
    marginal_t = Coupling(UniformBox(2), TruncatedLaplace(1.0)).marginal_t
    assert marginal_t.log_density(outside) == -math.inf
    with pytest.raises(ValueError, match="must have coordinates"):
        BinaryAttributes(2).log_density(inside)
    with pytest.raises(ValueError, match="two coordinates per circle"):
        ProductOfVonMises(1.0).sample(tensor([1.0, 0.0, 0.0]), seed=0)
    with pytest.raises(ValueError, match="each circle of z"):
        ProductOfCircles(2).log_density(tensor([1.0, 0.0, 0.0, 0.0]))


def test_couplings_of_laws_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="needs centres on the domain 'sphere'"):
        Coupling(UniformBox(3), VonMisesFisher(1.0))
    with pytest.raises(ValueError, match="unbounded space"):
        Coupling(Normal(3), TruncatedLaplace(1.0))
    with pytest.raises(ValueError, match="give both the same low and high"):
        Coupling(UniformBox(2, -1.0, 1.0), TruncatedLaplace(1.0))
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        Coupling(BinaryAttributes(1), VonMisesFisher(1.0))
    with pytest.raises(TypeError, match="marginal must be a Law"):
        Coupling(VonMisesFisher(1.0), VonMisesFisher(1.0))
    with pytest.raises(TypeError, match="conditional must be a ConditionalLaw"):
        Coupling(UniformSphere(2), UniformSphere(2))


@pytest.mark.parametrize("shape", [0.6, 1.0, 2.0, 3.0])
def test_pmi_of_truncated_laws_has_the_gradient_of_finite_differences(shape):
    """Autograd through the incomplete gamma function gives NaN where its argument is 0."""
    pair = Coupling(UniformBox(2), TruncatedGeneralizedNormal(0.4, shape))
    z_x, z_t = tensor([[0.2, 0.7]]), tensor([[0.6, 0.9]])
    z_x.requires_grad_()
    z_t.requires_grad_()
    pair.pmi(z_x, z_t).sum().backward()
    step = 1e-5 * torch.eye(2, dtype=torch.float64)
    with torch.no_grad():
        by_x = (pair.pmi(z_x + step, z_t) - pair.pmi(z_x - step, z_t)) / 2e-5
        by_t = (pair.pmi(z_x, z_t + step) - pair.pmi(z_x, z_t - step)) / 2e-5
    torch.testing.assert_close(z_x.grad[0], by_x, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(z_t.grad[0], by_t, rtol=1e-6, atol=1e-6)
