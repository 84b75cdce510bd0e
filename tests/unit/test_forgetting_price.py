"""The price of forgetting: its closed forms against losses computed from their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from tutorials_lib.information import (
    batch_price,
    loss_decomposition,
    mutual_information,
    price_of_forgetting,
    random_joint,
)

FORGET = [0, 1, 0, 2, 1, 0]


def conditional_information(joint: np.ndarray, classes: list[int]) -> float:
    """I(x; t | ρ) as a mean of mutual informations, class by class."""
    total = 0.0
    for value in set(classes):
        block = joint[:, [c == value for c in classes]]
        total += block.sum() * mutual_information(block / block.sum())
    return total


def loss_with_negatives(
    joint: np.ndarray, scores: np.ndarray, negatives: np.ndarray, own_weight: float
) -> float:
    """The population loss with negatives, straight from its definition."""
    p_x, p_t = joint.sum(1), joint.sum(0)
    q = p_t @ negatives
    r = (p_t + q) / (1 + q.sum())
    seen = joint > 0
    loss = -2 * (joint[seen] * scores[seen]).sum()
    loss += p_x @ logsumexp(scores, axis=1, b=r)
    loss += p_t[p_t > 0] @ logsumexp(scores[:, p_t > 0], axis=0, b=p_x[:, None])
    weight = joint[:, :, None] * negatives[None]
    with np.errstate(invalid="ignore"):
        margins = scores[:, :, None] - scores[:, None, :]
    used = weight > 0
    return loss + own_weight * (weight[used] * np.logaddexp(0, -margins[used])).sum() / q.sum()


def restricted_corpus(binding: float, ambiguous: float) -> tuple[np.ndarray, np.ndarray]:
    """Scenes that determine their caption: 0 and 1 share a bag, 2 and 3 have bags of their own.

    The bag of captions 0 and 1 has mass ``ambiguous``; scene 0 is the share ``binding`` of it.
    """
    masses = [ambiguous * binding, ambiguous * (1 - binding), *[(1 - ambiguous) / 2] * 2]
    negatives = np.zeros((4, 4))
    negatives[0, 1] = negatives[1, 0] = 1
    return np.diag(masses), negatives


@pytest.mark.parametrize("seed", range(5))
def test_price_is_twice_the_conditional_information(seed):
    joint = random_joint(7, 6, concentration=0.5, seed=seed)
    price = price_of_forgetting(joint, FORGET)
    assert price.total == pytest.approx(2 * conditional_information(joint, FORGET), abs=1e-12)
    assert price.image_side == pytest.approx(price.text_side, abs=1e-12)
    assert price.choice == 0


@pytest.mark.parametrize("seed", range(5))
def test_critics_attain_the_least_losses(seed):
    joint = random_joint(7, 6, concentration=0.5, seed=seed)
    price = price_of_forgetting(joint, FORGET)
    for critic, least in (
        (price.critic, price.least_loss),
        (price.blind_critic, price.least_loss_blind),
    ):
        assert loss_decomposition(joint, critic).loss == pytest.approx(least, abs=1e-12)
    assert price.least_loss_blind - price.least_loss == pytest.approx(price.total, abs=1e-12)


def test_no_blind_critic_does_better_than_the_least_blind_loss():
    """An optimiser that knows no theory finds the same minimum."""
    joint = random_joint(5, 6, concentration=0.5, seed=3)

    def loss(table: np.ndarray) -> float:
        return loss_decomposition(joint, table.reshape(5, 3)[:, FORGET]).loss

    found = minimize(loss, np.zeros(15), method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9})
    assert found.fun == pytest.approx(price_of_forgetting(joint, FORGET).least_loss_blind, abs=1e-8)


def test_a_map_that_forgets_nothing_is_free_and_a_constant_costs_all():
    joint = random_joint(4, 5, seed=0)
    assert price_of_forgetting(joint, range(5)).total == pytest.approx(0, abs=1e-12)
    assert price_of_forgetting(joint, ["same"] * 5).total == pytest.approx(
        2 * mutual_information(joint), abs=1e-12
    )


@pytest.mark.parametrize("ambiguous", [1e-3, 0.1, 1.0])
def test_rare_binary_ambiguity_is_cheap(ambiguous):
    """At most 2ε log 2 without negatives, attained by even bindings."""
    joint, _ = restricted_corpus(0.5, ambiguous)
    price = price_of_forgetting(joint, [0, 0, 1, 2]).total
    assert price == pytest.approx(2 * ambiguous * math.log(2), abs=1e-12)
    joint, _ = restricted_corpus(0.9, ambiguous)
    assert price_of_forgetting(joint, [0, 0, 1, 2]).total < price


@pytest.mark.parametrize("own_weight", [0.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_price_with_hard_negatives_against_the_definition_of_the_loss(seed, own_weight):
    rng = np.random.default_rng(seed)
    joint = np.zeros((6, 4))
    joint[np.arange(6), [0, 0, 1, 1, 2, 3]] = rng.dirichlet(np.ones(6))
    _, negatives = restricted_corpus(0.5, 0.5)
    classes = [0, 0, 1, 2]
    price = price_of_forgetting(joint, classes, hard_negatives=negatives, own_weight=own_weight)
    for critic, least in (
        (price.critic, price.least_loss),
        (price.blind_critic, price.least_loss_blind),
    ):
        assert loss_with_negatives(joint, critic, negatives, own_weight) == pytest.approx(
            least, abs=1e-12
        )
    assert price.least_loss_blind - price.least_loss == pytest.approx(price.total, abs=1e-12)

    def blind_loss(table: np.ndarray) -> float:
        scores = log_softmax(table.reshape(6, 3), axis=1)[:, classes]
        return loss_with_negatives(joint, scores, negatives, own_weight)

    found = minimize(blind_loss, np.zeros(18), method="L-BFGS-B", options={"gtol": 1e-9})
    # The infimum lies at infinite scores, which the optimiser comes close to.
    assert price.least_loss_blind - 1e-12 <= found.fun < price.least_loss_blind + 1e-3


@pytest.mark.parametrize("ambiguous", [1e-3, 0.1, 1.0])
def test_on_restricted_support_negatives_cost_log_2_per_ambiguous_caption(ambiguous):
    """E KL = ε log 2 in the denominators, and the choice costs log 2 however small ε is."""
    joint, negatives = restricted_corpus(1.0, ambiguous)
    # Each caption that has a negative costs what a fair coin would. Others share no class with it.
    price = price_of_forgetting(joint, [0, 0, 1, 2], hard_negatives=negatives, own_weight=1.0)
    assert price.text_side == pytest.approx(0, abs=1e-12)
    assert price.image_side == pytest.approx(ambiguous * math.log(2), abs=1e-12)
    assert price.choice == pytest.approx(math.log(2), abs=1e-12)
    assert price_of_forgetting(joint, [0, 0, 1, 2]).total == pytest.approx(0, abs=1e-12)


def test_batch_price_against_a_sum_over_all_batches():
    """Two pairs a batch: 36 batches in all. 5 standard errors: error probability under 1e-6."""
    joint = random_joint(3, 2, concentration=0.5, seed=1)
    classes = [0, 0]
    price = price_of_forgetting(joint, classes)

    def loss(scores: np.ndarray) -> float:
        sums = logsumexp(scores, axis=1) + logsumexp(scores, axis=0) - 2 * np.diag(scores)
        return sums.mean()

    exact = 0.0
    for first in np.ndindex(joint.shape):
        for second in np.ndindex(joint.shape):
            at = np.ix_((first[0], second[0]), (first[1], second[1]))
            change = loss(price.blind_critic[at]) - loss(price.critic[at])
            exact += joint[first] * joint[second] * change
    estimate = batch_price(joint, classes, batch_size=2, n_batches=20_000, seed=0)
    assert abs(estimate.price - exact) < 5 * estimate.standard_error


def test_batch_price_tends_to_the_price():
    """The bias is c/N, so that it drops to a tenth at ten times the size; 5 standard errors."""
    joint = random_joint(4, 6, concentration=0.5, seed=2)
    limit = price_of_forgetting(joint, FORGET).total
    small, large = (
        batch_price(joint, FORGET, batch_size=size, n_batches=100_000, seed=0)
        for size in (200, 2000)
    )
    error = 5 * (small.standard_error / 10 + large.standard_error)
    assert abs(large.price - limit - (small.price - limit) / 10) < error
    assert small.price < limit - 5 * small.standard_error


def test_errors_say_what_is_wrong():
    joint, negatives = restricted_corpus(0.5, 0.5)
    with pytest.raises(ValueError, match="each of the 4 captions, got 3"):
        price_of_forgetting(joint, [0, 0, 1])
    with pytest.raises(ValueError, match=r"shape \(4, 4\), got \(3, 4\)"):
        price_of_forgetting(joint, [0, 0, 1, 2], hard_negatives=negatives[:3])
    with pytest.raises(ValueError, match=r"row 0 sums to 0\.5"):
        price_of_forgetting(joint, [0, 0, 1, 2], hard_negatives=negatives / 2)
    with pytest.raises(ValueError, match="no hard_negatives"):
        price_of_forgetting(joint, [0, 0, 1, 2], own_weight=1.0)
    with pytest.raises(ValueError, match="negative 1 of caption 0 has another"):
        price_of_forgetting(joint, [0, 1, 2, 3], hard_negatives=negatives, own_weight=1.0)
    with pytest.raises(ValueError, match="captions 0 and 1 share an image"):
        price_of_forgetting(
            np.full((2, 4), 1 / 8), [0, 0, 1, 2], hard_negatives=negatives, own_weight=1.0
        )
    with pytest.raises(ValueError, match="batch_size"):
        batch_price(joint, [0, 0, 1, 2], batch_size=1, seed=0)
