"""Mixings against their bounds, the latent model against its inverse, mechanisms against laws.

Statistical tests use fixed seeds; each says how likely a miss would be over random ones.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from tutorials_lib.generators import (
    InvertibleMixing,
    LatentPartialCausalModel,
    Mechanism,
    MechanismMixture,
)
from tutorials_lib.latents import (
    AdditiveNormal,
    BinaryAttributes,
    ClippedLaplace,
    ClippedLaplaceStationary,
    Coupling,
    Laplace,
    Normal,
    ProjectedLaplace,
    SignFlip,
    TruncatedLaplace,
    UniformBox,
    UniformSphere,
    VonMisesFisher,
    von_mises_fisher_mean_resultant_length,
)
from tutorials_lib.metrics import linear_r2

few = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 2**63 - 1)
sphere = Coupling(UniformSphere(3), VonMisesFisher(5.0))


def gaussian(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# --- mixing


@few
@given(
    seeds,
    st.integers(1, 8),
    st.integers(1, 5),
    st.floats(1, 10),
    st.floats(0.05, 1),
    st.floats(-3, 3),
)
def test_mixing_and_its_inverse_stretch_no_more_than_they_say(
    seed, dim, depth, condition_number, slope, log_distance
):
    """Both Lipschitz bounds, on near and on far pairs of points."""
    mixing = InvertibleMixing(
        dim, depth=depth, condition_number=condition_number, negative_slope=slope, seed=seed
    )
    a = gaussian(50, dim, seed=seed) * 3
    b = a + 10**log_distance * gaussian(50, dim, seed=seed ^ 1)
    ratio = (mixing(a) - mixing(b)).norm(dim=1) / (a - b).norm(dim=1)
    assert ratio.max() <= mixing.lipschitz_bound * (1 + 1e-9)
    assert ratio.min() >= 1 / mixing.inverse_lipschitz_bound * (1 - 1e-9)
    back = (mixing.inverse(a) - mixing.inverse(b)).norm(dim=1) / (a - b).norm(dim=1)
    assert back.max() <= mixing.inverse_lipschitz_bound * (1 + 1e-9)
    assert ratio.max() / ratio.min() <= mixing.condition_bound * (1 + 1e-9)


@few
@given(seeds, st.integers(1, 20), st.integers(1, 5), st.floats(1, 10), st.floats(0.1, 1))
def test_mixing_round_trip_is_exact_up_to_rounding(seed, dim, depth, condition_number, slope):
    """Rounding in float64, stretched by the bound."""
    mixing = InvertibleMixing(
        dim, depth=depth, condition_number=condition_number, negative_slope=slope, seed=seed
    )
    z = gaussian(30, dim, seed=seed)
    rounding = 1e-14 * dim * mixing.condition_bound
    torch.testing.assert_close(mixing.inverse(mixing(z)), z, atol=rounding, rtol=0)
    torch.testing.assert_close(mixing(mixing.inverse(z)), z, atol=rounding, rtol=0)


def test_default_mixing_round_trip_is_exact_to_1e_10():
    for dim in (1, 3, 15, 64):
        mixing = InvertibleMixing(dim, seed=dim)
        z = 10 * gaussian(500, dim, seed=dim)
        torch.testing.assert_close(mixing.inverse(mixing(z)), z, atol=1e-10, rtol=0)
        torch.testing.assert_close(mixing(mixing.inverse(z)), z, atol=1e-10, rtol=0)


def test_condition_bound_is_what_the_layers_give():
    """Against singular values by torch; no more than condition_number^depth / slope^(depth−1)."""
    mixing = InvertibleMixing(6, depth=3, condition_number=2.0, negative_slope=0.2, seed=0)
    singular = torch.linalg.svdvals(mixing.weights)
    expected = (singular[:, 0] / singular[:, -1]).prod() / 0.2**2
    assert mixing.condition_bound == pytest.approx(float(expected), rel=1e-12)
    assert mixing.condition_bound <= 2**3 * 25
    assert (singular[:, 0] / singular[:, -1]).max() <= 2
    rotation = InvertibleMixing(6, depth=1, condition_number=1.0, seed=0)
    assert rotation.condition_bound == pytest.approx(1)


def test_bound_of_the_slope_is_reached():
    """In one dimension the two slopes differ by negative_slope^(depth−1) at most."""
    mixing = InvertibleMixing(1, depth=2, negative_slope=0.2, seed=3)
    one = torch.ones(1, 1, dtype=torch.float64)
    stretch = mixing(one).abs() / mixing(-one).abs()
    assert max(stretch, 1 / stretch) == pytest.approx(5)


@pytest.mark.parametrize(
    "coupling",
    [
        sphere,
        Coupling(UniformSphere(10), VonMisesFisher(10.0)),
        Coupling(UniformBox(5), TruncatedLaplace(10.0)),
        Coupling(BinaryAttributes(6), SignFlip(6.0)),
    ],
    ids=str,
)
def test_the_default_model_is_clearly_nonlinear_for_every_kind_of_latent(coupling):
    """A line reads no more than 85 % of the latents off the observation; all of it if linear."""
    for seed in range(3):
        model = LatentPartialCausalModel(coupling, m_x=3, m_t=3, seed=seed)
        pairs = model.sample(3000, seed=seed)
        assert linear_r2(pairs.z_x, pairs.x).score < 0.85
        assert linear_r2(pairs.z_t, pairs.t).score < 0.85
    linear = LatentPartialCausalModel(coupling, m_x=3, m_t=3, mixing_depth=1, seed=0)
    pairs = linear.sample(3000, seed=0, dtype=torch.float64)
    assert linear_r2(pairs.z_x, pairs.x).score == pytest.approx(1, abs=1e-9)


def test_mixing_keeps_the_type_and_leading_axes_and_passes_gradients():
    mixing = InvertibleMixing(3, seed=0)
    z = gaussian(2, 5, 3, seed=0)
    assert mixing(z).shape == (2, 5, 3)
    torch.testing.assert_close(mixing(z)[1, 2], mixing(z[1, 2]))
    assert mixing(z.float()).dtype == torch.float32
    torch.testing.assert_close(mixing(z.float()).double(), mixing(z), atol=1e-5, rtol=1e-5)
    assert torch.autograd.gradcheck(mixing, z[0].clone().requires_grad_())
    single = InvertibleMixing(3, seed=0, dtype=torch.float32)
    assert single.weights.dtype == torch.float32
    torch.testing.assert_close(single(z), mixing(z), atol=1e-5, rtol=1e-5)
    assert list(mixing.parameters()) == []


def test_mixing_is_reproducible_and_leaves_the_global_state_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    a, b = InvertibleMixing(4, seed=1), InvertibleMixing(4, seed=1)
    torch.testing.assert_close(a.weights, b.weights, atol=0, rtol=0)
    generator = torch.Generator().manual_seed(1)
    c, d = InvertibleMixing(4, seed=generator), InvertibleMixing(4, seed=generator)
    torch.testing.assert_close(a.weights, c.weights, atol=0, rtol=0)
    assert not torch.equal(c.weights, d.weights)
    LatentPartialCausalModel(sphere, m_x=1, m_t=1, seed=1).sample(5, seed=2)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 0}, "dim must be an integer >= 1"),
        ({"depth": 0}, "depth must be an integer >= 1"),
        ({"condition_number": 0.5}, "condition_number must be at least 1, got 0.5"),
        ({"condition_number": math.inf}, "condition_number must be a finite"),
        ({"negative_slope": 0.0}, "negative_slope must be a finite number > 0"),
        ({"negative_slope": 1.5}, "at most 1, got 1.5"),
    ],
)
def test_mixing_refuses_what_would_not_be_invertible(options, message):
    with pytest.raises(ValueError, match=message):
        InvertibleMixing(**{"dim": 3, "seed": 0, **options})


def test_mixing_refuses_bad_points():
    mixing = InvertibleMixing(3, seed=0)
    with pytest.raises(ValueError, match="1 NaN or infinite entries out of 3"):
        mixing(torch.tensor([0.0, math.nan, 1.0]))
    with pytest.raises(ValueError, match="last axis of 3"):
        mixing.inverse(torch.zeros(3, 2))
    with pytest.raises(TypeError, match="float32 or float64"):
        mixing(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(TypeError, match="got ndarray"):
        mixing(np.zeros(3))
    with pytest.raises(TypeError, match="dtype must be"):
        InvertibleMixing(3, seed=0, dtype=torch.float16)


# --- the latent model


@pytest.mark.parametrize(("m_x", "m_t"), [(2, 3), (0, 1), (Laplace(2), UniformBox(1)), (0, 0)])
def test_the_model_inverts_its_own_generators(m_x, m_t):
    model = LatentPartialCausalModel(sphere, m_x=m_x, m_t=m_t, seed=0)
    pairs = model.sample(200, seed=1, dtype=torch.float64)
    z, m = model.invert_x(pairs.x)
    torch.testing.assert_close(z, pairs.z_x, atol=1e-10, rtol=0)
    torch.testing.assert_close(m, pairs.m_x, atol=1e-10, rtol=0)
    z, m = model.invert_t(pairs.t)
    torch.testing.assert_close(z, pairs.z_t, atol=1e-10, rtol=0)
    torch.testing.assert_close(m, pairs.m_t, atol=1e-10, rtol=0)
    torch.testing.assert_close(model.g_x(pairs.z_x, pairs.m_x), pairs.x, atol=0, rtol=0)
    torch.testing.assert_close(model.g_t(pairs.z_t, pairs.m_t), pairs.t, atol=0, rtol=0)
    assert pairs.x.shape == (200, model.x_dim)
    assert pairs.t.shape == (200, model.t_dim)
    assert pairs.m_t.shape == (200, model.t_dim - 3)


def test_the_model_draws_its_latents_from_the_laws_it_was_given():
    """E z_x·z_t is the mean resultant length; private latents depend on nothing.

    The mean of 20,000 products has standard error 0.002, a correlation 0.007; the bounds are
    over five of these for 21 numbers: error probability below 1e-5.
    """
    model = LatentPartialCausalModel(sphere, m_x=2, m_t=Laplace(1), seed=0)
    pairs = model.sample(20_000, seed=3, dtype=torch.float64)
    expected = von_mises_fisher_mean_resultant_length(3, 5.0)
    assert float((pairs.z_x * pairs.z_t).sum(1).mean()) == pytest.approx(expected, abs=0.011)
    latents = torch.cat([pairs.z_x, pairs.z_t, pairs.m_x, pairs.m_t], dim=1)
    correlations = torch.corrcoef(latents.T)
    assert correlations[6:, :6].abs().max() < 0.036
    assert float(pairs.m_x.var()) == pytest.approx(1, abs=0.04)
    assert float(pairs.m_t.abs().mean()) == pytest.approx(1, abs=0.04)


def test_the_seed_of_the_model_and_that_of_a_sample_are_apart():
    first = LatentPartialCausalModel(sphere, m_x=1, m_t=1, seed=0)
    second = LatentPartialCausalModel(sphere, m_x=1, m_t=1, seed=1)
    a, b = first.sample(10, seed=5), second.sample(10, seed=5)
    assert torch.equal(a.z_x, b.z_x) and torch.equal(a.m_t, b.m_t)
    assert not torch.allclose(a.x, b.x)
    assert torch.equal(first.sample(10, seed=5).x, a.x)
    assert not torch.equal(first.mixing_x.weights, first.mixing_t.weights)
    generator = torch.Generator().manual_seed(5)
    c, d = first.sample(10, seed=generator), first.sample(10, seed=generator)
    assert torch.equal(c.x, a.x) and not torch.equal(c.x, d.x)


def test_the_model_samples_float32_by_default_and_may_sample_nothing():
    model = LatentPartialCausalModel(sphere, m_x=1, m_t=0, seed=0)
    pairs = model.sample(4, seed=0)
    assert {value.dtype for value in pairs} == {torch.float32}
    assert pairs._fields == ("x", "t", "z_x", "z_t", "m_x", "m_t")
    assert model.sample(0, seed=0).x.shape == (0, 4)
    exact = model.sample(4, seed=0, dtype=torch.float64)
    torch.testing.assert_close(pairs.x, exact.x.float(), atol=0, rtol=0)


def test_the_model_says_what_is_wrong():
    with pytest.raises(TypeError, match="coupling must be a Coupling, got UniformSphere"):
        LatentPartialCausalModel(UniformSphere(3), m_x=1, m_t=1, seed=0)
    with pytest.raises(ValueError, match="m_t, if it is not a Law, must be an integer >= 0"):
        LatentPartialCausalModel(sphere, m_x=1, m_t=-1, seed=0)
    with pytest.raises(TypeError, match="m_x, if it is not a Law, must be an integer"):
        LatentPartialCausalModel(sphere, m_x=1.5, m_t=1, seed=0)
    model = LatentPartialCausalModel(sphere, m_x=2, m_t=1, seed=0)
    with pytest.raises(ValueError, match="m must have a last axis of 2"):
        model.g_x(torch.zeros(1, 3), torch.zeros(1, 1))
    with pytest.raises(TypeError, match="dtype must be"):
        model.sample(3, seed=0, dtype=torch.int64)
    with pytest.raises(ValueError, match="size must be an integer >= 0"):
        model.sample(-1, seed=0)
    with pytest.raises(TypeError, match="seed must be"):
        model.sample(3, seed=None)
    assert "x_dim=5, t_dim=4" in repr(model)


# --- mechanisms

SIZE = 4000
COUPLINGS = [
    (sphere, [0.0, 0.6, 0.8]),
    (Coupling(ClippedLaplaceStationary(2, 6.0), ClippedLaplace(6.0)), [0.9, 0.2]),
    (Coupling(Normal(2), AdditiveNormal(0.5)), [1.5, -1.0]),
    (Coupling(UniformBox(2), TruncatedLaplace(6.0)), [1.0, 0.3]),
]


def same_law(a: torch.Tensor, b: torch.Tensor) -> float:
    """Smallest Kolmogorov–Smirnov p-value over the coordinates, corrected for their number."""
    values = [ks_2samp(a[:, i].numpy(), b[:, i].numpy()).pvalue for i in range(a.shape[1])]
    return min(1.0, min(values) * len(values))


@pytest.mark.parametrize(("coupling", "point"), COUPLINGS, ids=str)
def test_both_directions_and_any_mixture_have_one_joint_law(coupling, point):
    """Coordinates, sums and products of all; p-values below 1e-4 have probability below 1e-3."""

    def features(z_x: torch.Tensor, z_t: torch.Tensor) -> torch.Tensor:
        return torch.cat([z_x, z_t, z_x - z_t, (z_x * z_t).sum(1, keepdim=True)], dim=1)

    expected = features(*coupling.sample(SIZE, seed=0))
    for sampler in (
        Mechanism(coupling, "text->image"),
        Mechanism(coupling, "image->text"),
        MechanismMixture(coupling, 0.3),
    ):
        drawn = features(*sampler.sample(SIZE, seed=1))
        assert same_law(drawn, expected) > 1e-4


@pytest.mark.parametrize(("coupling", "point"), COUPLINGS, ids=str)
def test_interventions_move_what_comes_after_and_nothing_else(coupling, point):
    """do(z_t) moves z_x under text->image only; do(z_x) moves z_t under image->text only.

    The reference for p(z_x | z_t = v) reweights draws of z_x by p(v | z_x), which no mechanism
    does. Same laws have p-values above 1e-4 but for a probability below 1e-3, the others none.
    """
    v = torch.tensor(point, dtype=torch.float64)
    marginal_x, marginal_t = coupling.sample(SIZE, seed=0)
    candidates = coupling.sample(100 * SIZE, seed=1)[0]
    weights = coupling.log_conditional(v, candidates).exp()
    keep = torch.multinomial(
        weights / weights.sum(), SIZE, generator=torch.Generator().manual_seed(2)
    )
    given_t = candidates[keep]
    given_x = coupling.conditional.sample(v.repeat(SIZE, 1), seed=3)

    forward, backward = Mechanism(coupling, "image->text"), Mechanism(coupling, "text->image")
    assert same_law(backward.intervene(SIZE, z_t=v, seed=4)[0], given_t) > 1e-4
    assert same_law(backward.intervene(SIZE, z_x=v, seed=4)[1], marginal_t) > 1e-4
    assert same_law(forward.intervene(SIZE, z_x=v, seed=4)[1], given_x) > 1e-4
    assert same_law(forward.intervene(SIZE, z_t=v, seed=4)[0], marginal_x) > 1e-4
    assert same_law(given_t, marginal_x) < 1e-10
    assert same_law(given_x, marginal_t) < 1e-10


def test_mean_under_interventions_on_the_sphere_is_the_resultant_length_times_alpha():
    """E[z_x·v | do(z_t=v)] = αA₃(κ) and E[z_t·v | do(z_x=v)] = (1−α)A₃(κ), A₃ = coth κ − 1/κ.

    Standard errors are below 0.006, the bound is 0.03.
    """
    v = [0.0, 0.0, 1.0]
    length = 1 / math.tanh(5.0) - 1 / 5.0
    for alpha in (0.0, 0.25, 1.0):
        mixture = MechanismMixture(sphere, alpha)
        z_x, z_t = mixture.intervene(10_000, z_t=v, seed=0)
        assert torch.equal(z_t, torch.tensor(v, dtype=torch.float64).repeat(10_000, 1))
        assert float(z_x[:, 2].mean()) == pytest.approx(alpha * length, abs=0.03)
        z_x, z_t = mixture.intervene(10_000, z_x=v, seed=1)
        assert torch.equal(z_x, torch.tensor(v, dtype=torch.float64).repeat(10_000, 1))
        assert float(z_t[:, 2].mean()) == pytest.approx((1 - alpha) * length, abs=0.03)


def test_mechanisms_need_the_reverse_conditional_only_for_text_first():
    coupling = Coupling(UniformSphere(3), ProjectedLaplace(0.3))
    forward = Mechanism(coupling, "image->text")
    assert forward.intervene(5, z_t=[0.0, 0.0, 1.0], seed=0)[0].shape == (5, 3)
    with pytest.raises(ValueError, match="needs the law of z_x given z_t"):
        Mechanism(coupling, "text->image")
    with pytest.raises(ValueError, match="needs the law of z_x given z_t"):
        MechanismMixture(coupling, 0.5)


def test_mechanisms_say_what_is_wrong():
    mechanism = Mechanism(sphere, "text->image")
    with pytest.raises(ValueError, match="exactly one of z_x and z_t, got 0"):
        mechanism.intervene(5, seed=0)
    with pytest.raises(ValueError, match="exactly one of z_x and z_t, got 2"):
        mechanism.intervene(5, z_x=[0, 0, 1], z_t=[0, 0, 1], seed=0)
    with pytest.raises(ValueError, match=r"one point of shape \(3,\), got shape \(1, 3\)"):
        mechanism.intervene(5, z_x=[[0, 0, 1]], seed=0)
    with pytest.raises(ValueError, match="1 NaN or infinite"):
        mechanism.intervene(5, z_x=[math.nan, 0, 1], seed=0)
    with pytest.raises(ValueError, match="unit norm"):
        mechanism.intervene(5, z_x=[0, 0, 2], seed=0)
    box = Mechanism(Coupling(UniformBox(2), TruncatedLaplace(6.0)), "image->text")
    with pytest.raises(ValueError, match="z_t must be a point that"):
        box.intervene(5, z_t=[0.5, 1.5], seed=0)
    with pytest.raises(ValueError, match="direction must be"):
        Mechanism(sphere, "x->t")
    with pytest.raises(TypeError, match="coupling must be a Coupling"):
        Mechanism(UniformSphere(3), "text->image")
    for alpha in (-0.1, 1.1):
        with pytest.raises(ValueError, match="alpha must be"):
            MechanismMixture(sphere, alpha)


def test_mechanisms_are_reproducible_and_may_draw_nothing():
    for sampler in (Mechanism(sphere, "text->image"), MechanismMixture(sphere, 0.5)):
        a, b = sampler.sample(6, seed=7), sampler.sample(6, seed=7)
        assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])
        assert sampler.sample(0, seed=0)[1].shape == (0, 3)
        assert sampler.intervene(0, z_x=[0, 0, 1], seed=0)[1].shape == (0, 3)
