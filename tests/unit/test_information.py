"""Information on finite joints against closed forms, float64 loops and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tutorials_lib.information import (
    check_joint,
    entropy,
    kl_divergence,
    loss_decomposition,
    mutual_information,
    pmi,
    random_joint,
    softmax_posteriors,
)

joints = st.builds(
    random_joint,
    st.integers(1, 6),
    st.integers(1, 6),
    concentration=st.sampled_from([0.3, 1.0, 5.0]),
    seed=st.integers(0, 2**32 - 1),
)
few = settings(max_examples=25, deadline=None)


def loop_loss(joint: np.ndarray, scores: np.ndarray) -> float:
    """L∞ written out term by term."""
    rows, columns = joint.shape
    p_x = [sum(joint[i, j] for j in range(columns)) for i in range(rows)]
    p_t = [sum(joint[i, j] for i in range(rows)) for j in range(columns)]
    total = 0.0
    for i in range(rows):
        for j in range(columns):
            total -= 2 * joint[i, j] * scores[i, j]
    for i in range(rows):
        total += p_x[i] * math.log(sum(p_t[j] * math.exp(scores[i, j]) for j in range(columns)))
    for j in range(columns):
        total += p_t[j] * math.log(sum(p_x[i] * math.exp(scores[i, j]) for i in range(rows)))
    return total


@few
@given(joints, st.integers(0, 2**32 - 1))
def test_loss_and_its_parts_agree_with_loops_and_scipy(joint, seed):
    scores = np.random.default_rng(seed).normal(scale=3, size=joint.shape)
    parts = loss_decomposition(joint, scores)
    assert parts.loss == pytest.approx(loop_loss(joint, scores), abs=1e-10)
    q_text, q_image = softmax_posteriors(joint, scores)
    p_x, p_t = joint.sum(1), joint.sum(0)
    kl_text = sum(
        p_x[i] * scipy.stats.entropy(joint[i], q_text[i]) for i in range(len(p_x)) if p_x[i] > 0
    )
    kl_image = sum(
        p_t[j] * scipy.stats.entropy(joint[:, j], q_image[:, j])
        for j in range(len(p_t))
        if p_t[j] > 0
    )
    assert parts.kl_text == pytest.approx(kl_text, abs=1e-10)
    assert parts.kl_image == pytest.approx(kl_image, abs=1e-10)


@few
@given(joints, st.integers(0, 2**32 - 1))
def test_the_loss_is_two_divergences_minus_twice_the_information(joint, seed):
    """The fundamental lemma, for critics that know nothing about the joint."""
    scores = np.random.default_rng(seed).normal(scale=5, size=joint.shape)
    parts = loss_decomposition(joint, scores)
    total = parts.kl_text + parts.kl_image - 2 * parts.mutual_information
    assert parts.loss == pytest.approx(total, abs=1e-10)


@few
@given(joints, st.floats(-50, 50))
def test_pmi_plus_any_constant_attains_the_bound(joint, constant):
    parts = loss_decomposition(joint, np.maximum(pmi(joint), -600) + constant)
    assert parts.kl_text == pytest.approx(0, abs=1e-10)
    assert parts.kl_image == pytest.approx(0, abs=1e-10)
    assert parts.loss == pytest.approx(-2 * mutual_information(joint), abs=1e-9)


def test_an_optimised_table_of_scores_reaches_the_bound_at_pmi():
    """An optimiser that knows no theory ends at −2I, and at PMI up to one constant."""
    joint = random_joint(7, 6, seed=0)
    found = scipy.optimize.minimize(
        lambda s: loss_decomposition(joint, s.reshape(7, 6)).loss,
        np.zeros(42),
        jac=lambda s: (
            -2 * joint
            + joint.sum(1)[:, None] * softmax_posteriors(joint, s.reshape(7, 6))[0]
            + joint.sum(0)[None, :] * softmax_posteriors(joint, s.reshape(7, 6))[1]
        ).ravel(),
        method="BFGS",
        options={"gtol": 1e-10},
    )
    assert found.fun == pytest.approx(-2 * mutual_information(joint), abs=1e-12)
    difference = found.x.reshape(7, 6) - pmi(joint)
    assert np.ptp(difference) < 1e-4


def test_mutual_information_of_a_binary_symmetric_channel():
    """I = log 2 − H(e) for a fair bit flipped with probability e."""
    e = 0.11
    joint = np.array([[1 - e, e], [e, 1 - e]]) / 2
    expected = math.log(2) + e * math.log(e) + (1 - e) * math.log(1 - e)
    assert mutual_information(joint) == pytest.approx(expected, abs=1e-15)
    expected_pmi = np.log([[2 * (1 - e), 2 * e], [2 * e, 2 * (1 - e)]])
    np.testing.assert_allclose(pmi(joint), expected_pmi, atol=1e-14)


@few
@given(joints)
def test_information_is_entropies_of_the_margins_less_that_of_the_joint(joint):
    expected = entropy(joint.sum(1)) + entropy(joint.sum(0)) - entropy(joint)
    assert mutual_information(joint) == pytest.approx(expected, abs=1e-12)
    assert mutual_information(joint) == pytest.approx(mutual_information(joint.T), abs=1e-12)
    p = pmi(joint)
    assert mutual_information(joint) == pytest.approx(
        np.sum(joint[joint > 0] * p[joint > 0]), abs=1e-12
    )


def test_independent_and_deterministic_extremes():
    independent = np.outer([0.2, 0.3, 0.5], [0.1, 0.9])
    assert mutual_information(independent) == pytest.approx(0, abs=1e-15)
    assert mutual_information(independent) >= 0
    diagonal = np.diag([0.25, 0.25, 0.5])
    assert mutual_information(diagonal) == pytest.approx(entropy([0.25, 0.25, 0.5]), abs=1e-15)
    assert entropy([1.0, 0.0]) == 0
    assert entropy(np.full((2, 4), 1 / 8)) == pytest.approx(math.log(8))


def test_pmi_is_minus_infinity_where_the_joint_is_zero_and_the_loss_copes():
    """PMI itself, with its −inf, is an optimal critic on restricted support."""
    joint = np.array([[0.5, 0.0], [0.2, 0.3]])
    assert np.isneginf(pmi(joint)[0, 1])
    assert np.isfinite(pmi(joint)[joint > 0]).all()
    parts = loss_decomposition(joint, pmi(joint))
    assert parts.loss == pytest.approx(-2 * mutual_information(joint), abs=1e-14)
    assert parts.kl_text == pytest.approx(0, abs=1e-14)


def test_a_value_of_mass_zero_changes_nothing():
    joint = random_joint(3, 4, seed=1)
    scores = np.random.default_rng(2).normal(size=(3, 4))
    padded = np.pad(joint, ((0, 1), (0, 1)))
    padded_scores = np.pad(scores, ((0, 1), (0, 1)), constant_values=2.0)
    assert np.isneginf(pmi(padded)[3]).all()
    small, large = loss_decomposition(joint, scores), loss_decomposition(padded, padded_scores)
    assert large.loss == pytest.approx(small.loss, abs=1e-14)
    assert large.kl_image == pytest.approx(small.kl_image, abs=1e-14)


def test_forbidding_a_pair_that_occurs_costs_an_infinite_loss():
    joint = np.full((2, 2), 0.25)
    scores = np.array([[0.0, -np.inf], [0.0, 0.0]])
    parts = loss_decomposition(joint, scores)
    assert parts.loss == parts.kl_text == parts.kl_image == math.inf


def test_scores_far_beyond_the_range_of_exp():
    """Posteriors that underflow still give finite divergences."""
    joint = np.full((2, 2), 0.25)
    parts = loss_decomposition(joint, np.array([[2000.0, 0.0], [0.0, 2000.0]]))
    assert parts.kl_text == pytest.approx(1000 - math.log(2), rel=1e-12)
    assert parts.loss == pytest.approx(2 * (1000 - math.log(2)), rel=1e-12)


@few
@given(joints, st.integers(0, 2**32 - 1))
def test_posteriors_are_laws_and_do_not_see_a_shift(joint, seed):
    scores = np.random.default_rng(seed).normal(scale=4, size=joint.shape)
    q_text, q_image = softmax_posteriors(joint, scores)
    np.testing.assert_allclose(q_text.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(q_image.sum(0), 1, atol=1e-12)
    shifted = softmax_posteriors(joint, scores + 7.0)
    np.testing.assert_allclose(shifted[0], q_text, atol=1e-12)
    # A shift per image is invisible to q(t|x), though not to q(x|t).
    per_row = softmax_posteriors(joint, scores + np.arange(len(joint))[:, None])
    np.testing.assert_allclose(per_row[0], q_text, atol=1e-12)


def test_kl_against_scipy_and_its_edges():
    p, q = random_joint(2, 5, seed=3), random_joint(2, 5, seed=4)
    assert kl_divergence(p, q) == pytest.approx(scipy.stats.entropy(p.ravel(), q.ravel()))
    assert kl_divergence(p, p) == 0
    assert kl_divergence([0.0, 1.0], [0.5, 0.5]) == pytest.approx(math.log(2))
    assert kl_divergence([0.5, 0.5], [0.0, 1.0]) == math.inf
    with pytest.raises(ValueError, match="same shape"):
        kl_divergence([0.5, 0.5], [1.0])


@pytest.mark.parametrize(
    ("joint", "message"),
    [
        (np.full((2, 2), 0.3), "got the sum 1.2"),
        (np.array([[1.1, -0.1]]), "1 negative entries"),
        (np.array([0.5, 0.5]), "2 axes"),
        (np.array([[np.nan, 1.0]]), "1 NaN or infinite"),
        (np.zeros((0, 3)), "at least one entry"),
    ],
)
def test_what_is_not_a_joint_is_refused_with_the_reason(joint, message):
    for function in (check_joint, pmi, mutual_information):
        with pytest.raises(ValueError, match=message):
            function(joint)
    with pytest.raises(ValueError, match=message):
        loss_decomposition(joint, np.zeros_like(joint))


def test_bad_scores_are_refused_with_the_reason():
    joint = np.full((2, 2), 0.25)
    with pytest.raises(ValueError, match="shape of the joint"):
        softmax_posteriors(joint, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="1 NaN or \\+inf"):
        softmax_posteriors(joint, np.array([[np.nan, 0], [0, 0]]))
    with pytest.raises(ValueError, match="the first is row 1"):
        softmax_posteriors(joint, np.array([[0, 0], [-np.inf, -np.inf]]))
    with pytest.raises(TypeError, match="real numbers"):
        check_joint([["a", "b"]])


def test_tensors_are_read_whatever_their_dtype_and_gradient():
    joint = random_joint(3, 3, seed=5)
    scores = torch.randn(3, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    expected = loss_decomposition(joint, scores.detach().double().numpy())
    assert loss_decomposition(torch.from_numpy(joint), scores) == expected
    assert scores.requires_grad


def test_check_joint_returns_a_copy():
    joint = random_joint(2, 2, seed=6)
    check_joint(joint)[0, 0] = 7
    assert joint[0, 0] < 1


def test_random_joint_is_reproducible_and_concentration_acts():
    np.testing.assert_array_equal(random_joint(4, 3, seed=9), random_joint(4, 3, seed=9))
    assert random_joint(4, 3, seed=9).shape == (4, 3)
    generator = np.random.default_rng(9)
    first, second = (random_joint(4, 3, seed=generator) for _ in range(2))
    assert not np.array_equal(first, second)
    peaked = mutual_information(random_joint(8, 8, concentration=0.05, seed=0))
    flat = mutual_information(random_joint(8, 8, concentration=50.0, seed=0))
    assert flat < 0.02 < 0.5 < peaked
    for bad in (None, True, 1.5):
        with pytest.raises(TypeError, match="seed must be an integer"):
            random_joint(2, 2, seed=bad)
    with pytest.raises(ValueError, match="concentration"):
        random_joint(2, 2, concentration=0.0, seed=0)


def test_the_decomposition_prints_as_one_line():
    text = str(loss_decomposition(np.full((2, 2), 0.25), np.zeros((2, 2))))
    assert text == (
        "loss 0.0000 = KL text 0.0000 + KL image 0.0000 − 2 × mutual information 0.0000 (nats)"
    )


def test_mutual_information_with_marginals_whose_product_underflows() -> None:
    """A pair of mass 1e-200 that is alone in its row and column adds 1e-200 log 1e200, not inf."""
    tiny = 1e-200
    joint = np.array([[1 - tiny, 0.0], [0.0, tiny]])
    assert mutual_information(joint) == pytest.approx(tiny * 200 * math.log(10), rel=1e-12)
    for seed in range(100):
        peaked = random_joint(4, 4, concentration=1e-3, seed=seed)
        assert mutual_information(peaked) <= entropy(peaked.sum(axis=1)) + 1e-12
