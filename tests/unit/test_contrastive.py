"""What tutorials_lib.contrastive promises, checked against loops, closed forms and open_clip."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from open_clip.loss import ClipLoss
from scipy.spatial.distance import cdist
from scipy.special import xlogy
from scipy.stats import multinomial

from tutorials_lib.contrastive import (
    ContrastiveLoss,
    Encoder,
    History,
    bias_constant,
    critic,
    info_nce,
    info_nce_from_scores,
    population_loss,
    population_loss_monte_carlo,
    sample_batch_losses,
    train,
)

KINDS = ["cosine", "dot", "l1", "l2", 3.0, math.inf]


def embeddings(n: int, d: int, seed: int, dtype: torch.dtype = torch.float64) -> tuple:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=dtype)
    return x, x + 0.5 * torch.randn(n, d, generator=generator, dtype=dtype)


def loop_loss(scores: np.ndarray, ids: list | None = None) -> float:
    """Symmetric InfoNCE as the definition reads, one scalar at a time."""
    n = len(scores)
    ids = list(range(n)) if ids is None else ids
    total = 0.0
    for table in (scores, scores.T):
        for i in range(n):
            everything = math.fsum(math.exp(table[i][j]) for j in range(n))
            positive = math.fsum(math.exp(table[i][j]) for j in range(n) if ids[j] == ids[i])
            total -= math.log(positive / everything) / n
    return total


def random_joint(a: int, b: int, seed: int) -> np.ndarray:
    joint = np.random.default_rng(seed).dirichlet(np.ones(a * b)).reshape(a, b)
    return joint / joint.sum()


def pmi_of(joint: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(joint) - np.log(joint.sum(1, keepdims=True)) - np.log(joint.sum(0))


def mutual_information_of(joint: np.ndarray) -> float:
    cells = joint > 0
    return float((joint[cells] * pmi_of(joint)[cells]).sum())


# --- critic ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_critic_equals_scipy_distances_and_plain_dot_products(kind):
    """Every critic is what its name says, against scipy's distances in float64."""
    x, t = embeddings(5, 3, 0)[0], embeddings(7, 3, 1)[0]
    if kind == "cosine":
        expected = 1 - cdist(x, t, "cosine")
    elif kind == "dot":
        expected = x.numpy() @ t.numpy().T
    else:
        order = {"l1": 1, "l2": 2}.get(kind, kind)
        expected = -(
            cdist(x, t, "chebyshev") if order == math.inf else cdist(x, t, "minkowski", p=order)
        )
    scores = critic(x, t, kind=kind, temperature=0.25)
    assert scores.shape == (5, 7)
    np.testing.assert_allclose(scores, expected / 0.25, rtol=1e-12, atol=1e-12)


def test_l2_critic_keeps_its_digits_for_nearly_matching_pairs():
    """The distance of rows 1e-6 apart, far from the origin, is right to 1e-3 in float32."""
    x = torch.full((40, 4), 8.0)
    t = x + torch.tensor([2**-20, 0, 0, 0])
    scores = critic(x, t, kind="l2", temperature=1.0)
    np.testing.assert_allclose(scores, -(2.0**-20), rtol=1e-3)


def test_cosine_ignores_the_length_of_rows_but_refuses_zero_rows():
    """Rows need not have unit norm, but a zero row has no direction and is named."""
    x, t = embeddings(6, 3, 2)
    scale = torch.arange(1.0, 7.0, dtype=torch.float64)[:, None]
    torch.testing.assert_close(
        critic(scale * x, t, temperature=0.5), critic(x, t / scale, temperature=0.5)
    )
    x[4] = 0
    with pytest.raises(ValueError, match=r"x must have no zero row.*got 1 of 6"):
        critic(x, t, temperature=0.5)
    assert torch.isfinite(critic(x, t, kind="dot", temperature=0.5)).all()


# --- info_nce -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ids", [None, [0, 1, 0, 2, 1, 0]])
def test_info_nce_equals_a_loop_over_its_definition(kind, ids):
    """Value in float64 equals a scalar loop, with and without several positives."""
    x, t = embeddings(6, 3, 3)
    expected = loop_loss(critic(x, t, kind=kind, temperature=0.3).numpy(), ids)
    value = info_nce(x, t, temperature=0.3, kind=kind, ids=ids)
    assert value.item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ids", [None, [0, 1, 0, 2, 1]])
@pytest.mark.parametrize("chunk_size", [None, 2])
def test_gradient_equals_finite_differences(kind, ids, chunk_size):
    """Gradients in x, t and the temperature agree with central differences."""
    x, t = embeddings(5, 3, 4)
    temperature = torch.tensor(0.7, dtype=torch.float64)
    inputs = [tensor.requires_grad_() for tensor in (x, t, temperature)]
    assert torch.autograd.gradcheck(
        lambda x, t, temperature: info_nce(
            x, t, temperature=temperature, kind=kind, ids=ids, chunk_size=chunk_size
        ),
        inputs,
        atol=1e-6,
    )


@pytest.mark.parametrize("kind", ["cosine", "l1"])
@pytest.mark.parametrize("ids", [None, torch.arange(23) % 7])
@pytest.mark.parametrize("chunk_size", [1, 5, 23, 100])
def test_chunked_equals_unchunked_in_value_and_gradient(kind, ids, chunk_size):
    """Bounding memory changes neither the loss nor any gradient."""
    results = []
    for size in (None, chunk_size):
        x, t = embeddings(23, 4, 5)
        temperature = torch.tensor(0.2, dtype=torch.float64)
        inputs = [tensor.requires_grad_() for tensor in (x, t, temperature)]
        value = info_nce(x, t, temperature=temperature, kind=kind, ids=ids, chunk_size=size)
        results.append((value, *torch.autograd.grad(value, inputs)))
    for plain, chunked in zip(*results, strict=True):
        torch.testing.assert_close(chunked, plain, rtol=1e-11, atol=1e-12)


def test_open_clip_reports_half_of_our_sum():
    """open_clip's loss is the mean of the two directions, ours the sum."""
    x, t = embeddings(32, 8, 6, torch.float32)
    x, t = torch.nn.functional.normalize(x, dim=1), torch.nn.functional.normalize(t, dim=1)
    theirs = ClipLoss()(x, t, torch.tensor(1 / 0.07))
    ours = info_nce(x, t, temperature=0.07)
    assert ours.item() == pytest.approx(2 * theirs.item(), rel=1e-5)


@settings(deadline=None, max_examples=25)
@given(n=st.integers(2, 12), seed=st.integers(0, 10**6), groups=st.integers(1, 12))
def test_loss_is_never_negative_and_ignores_order_and_score_offsets(n, seed, groups):
    """0 is the floor; permuting pairs, relabelling ids or adding a constant changes nothing."""
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(5 * rng.standard_normal((n, n)))
    ids = torch.from_numpy(rng.integers(0, groups, n))
    order = torch.from_numpy(rng.permutation(n))
    for labels, moved in ((None, None), (ids, 100 - ids[order])):
        value = info_nce_from_scores(scores, labels)
        assert value >= -1e-12
        again = info_nce_from_scores(scores[order][:, order] + 17.0, moved)
        assert again.item() == pytest.approx(value.item(), abs=1e-10)
    assert info_nce_from_scores(scores, torch.zeros(n, dtype=torch.int64)).item() == 0


def test_perfect_separation_reaches_zero_and_constant_scores_two_log_n():
    """The two values everybody knows: 0 for a perfect critic, 2 log N for a blind one."""
    assert info_nce_from_scores(1000 * torch.eye(9)).item() == 0
    assert info_nce_from_scores(torch.zeros(9, 9)).item() == pytest.approx(2 * math.log(9))


def test_case_08_duplicated_caption_floor_is_log_2_without_ids_and_0_with():
    """One caption given twice: without ids its two rows stop at log 2 a direction, with ids at 0.

    Of the 2·N row terms 2·2 are affected, so the loss stops at (2/N)·2·log 2. No table of scores
    whose columns 0 and 1 are equal, as they are for one caption, does better.
    """
    floor = 2 * 2 / 6 * math.log(2)
    x = torch.eye(6, dtype=torch.float64)
    x[1] = x[0]
    ids = [7, 7, 2, 3, 4, 5]
    assert info_nce(x, x, temperature=0.01).item() == pytest.approx(floor, abs=1e-12)
    assert info_nce(x, x, temperature=0.01, ids=ids).item() == pytest.approx(0, abs=1e-12)
    generator = torch.Generator().manual_seed(0)
    for scale in (0.1, 1.0, 10.0, 1000.0):
        scores = scale * torch.randn(6, 6, generator=generator, dtype=torch.float64)
        scores += scale * torch.eye(6)
        scores[:, 1] = scores[:, 0]
        assert info_nce_from_scores(scores).item() >= floor


def test_case_08_ids_can_be_lists_arrays_or_tensors_and_must_fit():
    """ids of any integer container agree; wrong length or floats are refused."""
    x, t = embeddings(4, 3, 7)
    values = [
        info_nce(x, t, temperature=1.0, ids=ids).item()
        for ids in ([0, 1, 1, 2], np.array([0, 1, 1, 2]), torch.tensor([0, 1, 1, 2]))
    ]
    assert values[0] == values[1] == values[2]
    with pytest.raises(ValueError, match=r"shape \(4,\)"):
        info_nce(x, t, temperature=1.0, ids=[0, 1, 1])
    with pytest.raises(TypeError, match="ids must be integers"):
        info_nce(x, t, temperature=1.0, ids=[0.0, 1.0, 1.0, 2.0])


def test_case_20_log_sum_and_log_mean_differ_by_log_n_and_have_equal_gradients():
    """L_N with sums inside the logarithm equals the form with means plus 2 log N."""
    scores = (3 * embeddings(8, 8, 8)[0]).requires_grad_()
    log_sum = info_nce_from_scores(scores)
    log_mean = (
        torch.log(torch.exp(scores).mean(1)).mean()
        + torch.log(torch.exp(scores).mean(0)).mean()
        - 2 * scores.diagonal().mean()
    )
    assert log_sum.item() - log_mean.item() == pytest.approx(2 * math.log(8), abs=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(v, scores)[0] for v in (log_sum, log_mean)))


def test_bad_input_is_refused_with_a_word_on_what_to_do():
    """One pair, NaN, wrong shapes, dtypes, temperatures and critics never reach the arithmetic."""
    x, t = embeddings(4, 3, 9)
    broken = x.clone()
    broken[1, 2] = math.nan
    for arguments, error, message in [
        ((x[:1], t[:1], {}), ValueError, "at least 2, got 1"),
        ((x[:3], t, {}), ValueError, "as many images as texts, got 3 and 4"),
        ((broken, t, {}), ValueError, "x must be finite, got 1"),
        ((x, broken, {"chunk_size": 2}), ValueError, "t must be finite, got 1"),
        ((x, t[:, :2], {}), ValueError, "same number of columns"),
        ((x, t.float(), {}), TypeError, "one dtype"),
        ((x.long(), t.long(), {}), TypeError, "floating-point tensor"),
        ((x.numpy(), t, {}), TypeError, "floating-point tensor"),
        ((x[0], t[0], {}), ValueError, "two dimensions"),
        ((x, t, {"temperature": 0.0}), ValueError, "temperature"),
        ((x, t, {"temperature": -1.0}), ValueError, "temperature"),
        ((x, t, {"temperature": math.nan}), ValueError, "temperature"),
        ((x, t, {"temperature": torch.ones(2)}), ValueError, "one entry"),
        ((x, t, {"kind": "l3"}), ValueError, "kind must be"),
        ((x, t, {"kind": 0.5}), ValueError, "p >= 1"),
        ((x, t, {"kind": True}), ValueError, "kind must be"),
        ((x, t, {"chunk_size": 0}), ValueError, "chunk_size"),
    ]:
        x_bad, t_bad, options = arguments
        with pytest.raises(error, match=message):
            info_nce(x_bad, t_bad, **{"temperature": 1.0, **options})
    with pytest.raises(ValueError, match="as many images as texts"):
        info_nce_from_scores(torch.zeros(3, 4))
    with pytest.raises(ValueError, match="scores must be finite, got 1"):
        info_nce_from_scores(torch.tensor([[0.0, math.inf], [0.0, 0.0]]))


def test_extreme_scores_neither_overflow_nor_lose_the_loss():
    """Scores of ±1e4 give the exact value, not inf or NaN; in float32 up to its own spacing."""
    scores = torch.tensor([[1e4, -1e4], [1e4, 1e4]], dtype=torch.float64)
    assert info_nce_from_scores(scores).item() == pytest.approx(math.log(2), rel=1e-9)
    assert info_nce_from_scores(scores.float()).item() == pytest.approx(math.log(2), abs=1e-3)


# --- ContrastiveLoss ------------------------------------------------------------------------------


def test_case_20_temperature_starts_at_clips_value_and_is_clamped_at_100():
    """log_scale starts at log(1/0.07); beyond 100 it is moved back, and can still come down."""
    loss = ContrastiveLoss()
    assert loss.log_scale.item() == pytest.approx(math.log(1 / 0.07), rel=1e-6)
    assert loss.temperature == pytest.approx(0.07, rel=1e-6)

    x, t = embeddings(8, 3, 10)
    with torch.no_grad():
        loss.log_scale.fill_(50.0)
    assert loss.temperature == pytest.approx(0.01, rel=1e-6)
    value = loss(x, t)
    assert value.item() == pytest.approx(info_nce(x, t, temperature=0.01).item(), rel=1e-5)
    assert loss.log_scale.item() == pytest.approx(math.log(100), rel=1e-6)
    value.backward()
    assert loss.log_scale.grad.item() != 0


def test_contrastive_loss_is_info_nce_with_its_options():
    """Critic, ids, chunks and a fixed temperature pass through unchanged."""
    x, t = embeddings(8, 3, 11)
    ids = torch.arange(8) % 3
    loss = ContrastiveLoss("l1", init_temperature=0.5, learn_temperature=False, chunk_size=3)
    assert list(loss.parameters()) == []
    expected = info_nce(x, t, temperature=0.5, kind="l1", ids=ids)
    assert loss(x, t, ids=ids).item() == pytest.approx(expected.item(), rel=1e-6)


def test_contrastive_loss_refuses_a_start_beyond_its_clamp_and_unknown_critics():
    """A start sharper than max_scale would be changed silently; it is refused instead."""
    with pytest.raises(ValueError, match="raise max_scale"):
        ContrastiveLoss(init_temperature=0.001)
    ContrastiveLoss(init_temperature=0.01)
    with pytest.raises(ValueError, match="kind must be"):
        ContrastiveLoss("euclid")
    with pytest.raises(ValueError, match="init_temperature"):
        ContrastiveLoss(init_temperature=0.0)


def test_learned_temperature_follows_the_gradient_to_its_optimum():
    """On fixed embeddings, learning τ ends where a scalar search over τ ends."""
    x, t = embeddings(64, 4, 12)
    best = min(np.linspace(0.05, 1.5, 581), key=lambda tau: info_nce(x, t, temperature=tau).item())
    loss = ContrastiveLoss(init_temperature=1.0).double()
    optimiser = torch.optim.LBFGS(loss.parameters(), max_iter=50, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        value = loss(x, t)
        value.backward()
        return value

    optimiser.step(closure)
    assert loss.temperature == pytest.approx(best, abs=0.005)


# --- population loss ------------------------------------------------------------------------------


def test_population_loss_equals_a_loop_and_its_gradient_finite_differences():
    """The closed form on a discrete joint, against sums written out."""
    joint, scores = random_joint(4, 3, 0), np.random.default_rng(1).standard_normal((4, 3))
    p_x, p_t = joint.sum(1), joint.sum(0)
    expected = -2 * (joint * scores).sum()
    for i in range(4):
        expected += p_x[i] * math.log(sum(p_t[j] * math.exp(scores[i, j]) for j in range(3)))
    for j in range(3):
        expected += p_t[j] * math.log(sum(p_x[i] * math.exp(scores[i, j]) for i in range(4)))
    assert population_loss(joint, scores).item() == pytest.approx(expected, abs=1e-13)
    variable = torch.from_numpy(scores).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: population_loss(joint, s), [variable])


@settings(deadline=None, max_examples=20)
@given(a=st.integers(1, 6), b=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_population_loss_is_at_least_minus_twice_the_information_and_pmi_attains_it(a, b, seed):
    """Fundamental lemma: min L∞ = −2I, at PMI plus any constant, and nowhere below."""
    joint = random_joint(a, b, seed)
    bound = -2 * mutual_information_of(joint)
    assert population_loss(joint, pmi_of(joint) + 3.0).item() == pytest.approx(bound, abs=1e-10)
    noise = np.random.default_rng(seed).standard_normal((a, b))
    assert population_loss(joint, pmi_of(joint) + noise).item() >= bound - 1e-12


def test_optimised_table_reaches_minus_twice_the_information():
    """Descent on a free 7×6 table of scores ends at −2I and at PMI + constant, not elsewhere."""
    joint = random_joint(7, 6, 2)
    scores = torch.zeros(7, 6, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [scores],
        max_iter=2000,
        tolerance_grad=1e-12,
        tolerance_change=1e-16,
        history_size=42,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimiser.zero_grad()
        value = population_loss(joint, scores)
        value.backward()
        return value

    optimiser.step(closure)
    assert closure().item() == pytest.approx(-2 * mutual_information_of(joint), abs=1e-10)
    gap = scores.detach().numpy() - pmi_of(joint)
    assert np.ptp(gap) < 1e-3


def test_population_loss_accepts_the_pmi_of_a_joint_with_zeros():
    """PMI is −inf where the joint is zero; the bound is attained there too, with a clean gradient.

    A row that never occurs has neither weight nor PMI, and is left out.
    """
    joint = np.array([[0.5, 0.0, 0.0], [0.0, 0.25, 0.25], [0.0, 0.0, 0.0]])
    scores = torch.tensor(
        [[math.log(2), -math.inf, -math.inf], [-math.inf, math.log(2), math.log(2)], [0.0] * 3],
        dtype=torch.float64,
        requires_grad=True,
    )
    value = population_loss(joint, scores)
    assert value.item() == pytest.approx(-2 * math.log(2), abs=1e-12)
    value.backward()
    torch.testing.assert_close(scores.grad, torch.zeros(3, 3, dtype=torch.float64))
    impossible = torch.zeros(2, 2)
    impossible[0, 0] = -math.inf
    assert population_loss(np.full((2, 2), 0.25), impossible).item() == math.inf


@pytest.mark.parametrize(
    ("joint", "scores", "message"),
    [
        (np.full((2, 2), 0.3), np.zeros((2, 2)), "sum 1.2"),
        (np.array([[1.5, -0.5]]), np.zeros((1, 2)), "smallest entry -0.5"),
        (np.full((2, 2), 0.25), np.zeros((2, 3)), "one shape"),
        (np.full((2, 2), math.nan), np.zeros((2, 2)), "joint must be finite, got 4"),
        (np.full((2, 2), 0.25), np.full((2, 2), math.nan), "scores must be finite or -inf, got 4"),
    ],
)
def test_functions_of_a_joint_refuse_what_is_no_distribution(joint, scores, message):
    """The sum is named, so the reader sees at once what to divide by."""
    for function in (
        population_loss,
        bias_constant,
        lambda j, s: sample_batch_losses(j, s, batch_size=4, batches=1, seed=0),
    ):
        with pytest.raises(ValueError, match=message):
            function(joint, scores)


# --- sampling: bias, rate, estimates --------------------------------------------------------------


def test_sampled_batch_losses_are_info_nce_of_the_drawn_batch():
    """Exhaustive check on N = 3: the exact expectation over all batches, against info_nce.

    The mean of 200,000 sampled losses lies within 4.4 standard errors of the enumerated
    expectation; error probability 1e-5.
    """
    joint, scores = random_joint(2, 2, 3), np.random.default_rng(4).standard_normal((2, 2))
    cells = list(itertools.product(range(2), range(2)))
    expected = 0.0
    for batch in itertools.product(cells, repeat=3):
        rows, columns = zip(*batch, strict=True)
        table = torch.from_numpy(scores[np.ix_(rows, columns)])
        weight = math.prod(joint[cell] for cell in batch)
        expected += weight * info_nce_from_scores(table).item()
    losses = sample_batch_losses(joint, scores, batch_size=3, batches=200_000, seed=0)
    assert losses.shape == (200_000,)
    standard_error = losses.std().item() / math.sqrt(len(losses))
    assert abs(losses.mean().item() + 2 * math.log(3) - expected) < 4.4 * standard_error


def test_bias_of_the_batch_loss_is_c_over_n_by_enumeration():
    """On a 2×2 joint the expectation over all batches is a finite sum: N·bias tends to c.

    The loss depends on the four cell counts only, so all multinomial outcomes are summed. The
    error of N·bias halves when N doubles (it is O(1/N)) and is small at N = 64.
    """
    joint = random_joint(2, 2, 9)
    scores = np.random.default_rng(10).standard_normal((2, 2))
    limit, c = population_loss(joint, scores).item(), bias_constant(joint, scores)
    errors = []
    for size in (32, 64):
        outcomes = np.array(
            [
                (a, b, d, size - a - b - d)
                for a in range(size + 1)
                for b in range(size + 1 - a)
                for d in range(size + 1 - a - b)
            ]
        )
        weights = multinomial.pmf(outcomes, size, joint.ravel())
        shares = outcomes.reshape(-1, 2, 2) / size
        share_x, share_t = shares.sum(2), shares.sum(1)
        expected = (
            xlogy(share_x, np.einsum("nj,ij->ni", share_t, np.exp(scores))).sum(1)
            + xlogy(share_t, np.einsum("ni,ij->nj", share_x, np.exp(scores))).sum(1)
            - 2 * (shares * scores).sum((1, 2))
        ) @ weights
        errors.append(size * (expected - limit) - c)
    assert errors[1] / errors[0] == pytest.approx(0.5, abs=0.05)
    assert abs(errors[1]) < 0.02 * abs(c)


def test_bias_of_sampled_batch_losses_is_c_over_n():
    """The same by simulation on an 8×8 joint at N = 64, where c is 40 standard errors from 0.

    400,000 batches give N·bias a standard error of 0.013. Allowed are 4.4 of them and 0.02 for
    the O(1/N) remainder; error probability 1e-5.
    """
    joint = random_joint(8, 8, 5)
    scores = 0.8 * pmi_of(joint)
    losses = sample_batch_losses(joint, scores, batch_size=64, batches=400_000, seed=0)
    measured = 64 * (losses.mean() - population_loss(joint, scores)).item()
    standard_error = 64 * losses.std().item() / math.sqrt(len(losses))
    assert standard_error < 0.015
    assert abs(measured - bias_constant(joint, scores)) < 4.4 * standard_error + 0.02


def test_bias_constant_equals_a_loop_and_ignores_score_offsets():
    """c against sums written out; adding 500 to every score leaves it alone."""
    joint, scores = random_joint(3, 4, 6), np.random.default_rng(7).standard_normal((3, 4))
    p_x, p_t, k = joint.sum(1), joint.sum(0), np.exp(scores)
    expected = 0.0
    for i, j in itertools.product(range(3), range(4)):
        mu_x, mu_t = k[i] @ p_t, k[:, j] @ p_x
        expected += joint[i, j] * ((k[i, j] - mu_x) / mu_x + (k[i, j] - mu_t) / mu_t)
        expected -= 0.5 * p_x[i] * p_t[j] * ((k[i, j] - mu_x) / mu_x) ** 2
        expected -= 0.5 * p_x[i] * p_t[j] * ((k[i, j] - mu_t) / mu_t) ** 2
    assert bias_constant(joint, scores) == pytest.approx(expected, abs=1e-12)
    assert bias_constant(joint, scores + 500.0) == pytest.approx(expected, abs=1e-9)


def test_spread_of_the_batch_loss_falls_like_one_over_root_n():
    """std(L_N)·√N is constant: the ratio between N = 64 and N = 1024 is within 3% of 4.

    With 20,000 batches the standard error of a standard deviation is 0.5%, that of the ratio
    0.7%; 3% is above four of them, error probability below 1e-4.
    """
    joint = random_joint(5, 5, 8)
    scores = 0.5 * pmi_of(joint)
    small, large = (
        sample_batch_losses(joint, scores, batch_size=size, batches=20_000, seed=size).std().item()
        for size in (64, 1024)
    )
    assert small / large == pytest.approx(4, rel=0.03)


def test_monte_carlo_population_loss_finds_minus_twice_the_information_of_a_gaussian():
    """Correlated standard normals: the critic PMI gives −2I = log(1 − ρ²).

    PMI = (ρxt − ρ²(x² + t²)/2)/(1 − ρ²) + c, a dot product of features (x, x², 1) and (t, 1, t²).
    Over 40 runs with N = 3,000 the standard deviation was 0.021 and the bias 0.002; the tolerance
    0.09 is above four of them, error probability below 1e-4.
    """
    rho, size = 0.6, 3_000
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size, generator=generator, dtype=torch.float64)
    noise = torch.randn(size, generator=generator, dtype=torch.float64)
    t = rho * x + math.sqrt(1 - rho**2) * noise
    one = torch.ones_like(x)
    features_x = torch.stack([rho * x, -(rho**2) / 2 * x**2, one], 1) / (1 - rho**2)
    features_t = torch.stack([t, one, -(rho**2) / 2 * t**2], 1)
    estimate = population_loss_monte_carlo(features_x, features_t, kind="dot", temperature=1.0)
    assert estimate == pytest.approx(math.log(1 - rho**2), abs=0.09)


def test_monte_carlo_population_loss_leaves_positives_out_and_ignores_chunks():
    """The estimate equals a loop over its definition, for any chunk size."""
    x, t = embeddings(7, 3, 13)
    scores = critic(x, t, temperature=0.5).numpy()
    others = ~np.eye(7, dtype=bool)
    expected = -2 * scores.diagonal().mean()
    for table in (scores, scores.T):
        expected += np.mean([np.log(np.exp(table[i][others[i]]).mean()) for i in range(7)])
    for chunk_size in (1, 3, 100):
        value = population_loss_monte_carlo(x, t, temperature=0.5, chunk_size=chunk_size)
        assert value == pytest.approx(expected, abs=1e-12)


# --- encoders -------------------------------------------------------------------------------------


def test_encoder_keeps_its_codomain_and_depends_on_its_seed_alone():
    """Unit vectors, the open box, or anything; the global random state plays no part."""
    x = 3 * torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    sphere = Encoder(6, 4, codomain="sphere", width=8, seed=0)(x)
    torch.testing.assert_close(sphere.norm(dim=1), torch.ones(50))
    box = Encoder(6, 4, codomain="box", width=8, seed=0)(x)
    assert box.min() > 0 and box.max() < 1
    assert Encoder(6, 4, codomain="euclidean", width=8, seed=0)(x).abs().max() > 1
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    again = Encoder(6, 4, codomain="sphere", width=8, seed=0)(x)
    torch.testing.assert_close(again, sphere, rtol=0, atol=0)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not torch.equal(Encoder(6, 4, codomain="sphere", width=8, seed=1)(x), sphere)


def test_whitening_fixes_scale_and_mean_once_and_survives_a_save():
    """After whiten, the first layer sees identity covariance; a flat direction stays finite.

    The state dict carries it, so that a loaded encoder is not whitened again on other data.
    """
    x = embeddings(4000, 5, 14)[0] @ torch.diag(torch.tensor([1e-3, 1, 1, 10, 0]).double()) + 7
    encoder = Encoder(5, 2, width=8, seed=0)
    assert not encoder.whitened
    encoder.whiten(x)
    seen = (x - encoder.center.double()) @ encoder.whitener.double()
    expected = torch.diag(torch.tensor([1.0, 1, 1, 1, 0]).double())
    torch.testing.assert_close(torch.cov(seen.T), expected, atol=1e-3, rtol=0)
    assert torch.linalg.matrix_rank(encoder.whitener) == 5
    loaded = Encoder(5, 2, width=8, seed=1)
    loaded.load_state_dict(encoder.state_dict())
    assert loaded.whitened
    torch.testing.assert_close(loaded(x.float()), encoder(x.float()))
    with pytest.raises(ValueError, match="at least 2 rows and 5 columns"):
        encoder.whiten(x[:, :4])


def test_training_whitens_new_encoders_and_leaves_whitened_ones():
    """The first training run sets the whitening; a second run keeps it."""
    encoder_x, encoder_t, loss, _ = trained(2)
    assert encoder_x.whitened and encoder_t.whitened
    center, whitener = encoder_x.center.clone(), encoder_x.whitener.clone()
    train(
        circle_pairs,
        encoder_x,
        encoder_t,
        loss,
        steps=2,
        batch_size=8,
        seed=9,
        device="cpu",
        progress=False,
    )
    assert torch.equal(encoder_x.center, center) and torch.equal(encoder_x.whitener, whitener)


def test_encoder_refuses_unknown_codomains_and_sizes():
    """The message lists what is allowed."""
    with pytest.raises(ValueError, match="'sphere', 'box' or 'euclidean', got 'torus'"):
        Encoder(3, 3, codomain="torus", seed=0)
    with pytest.raises(ValueError, match="width"):
        Encoder(3, 3, width=0, seed=0)
    with pytest.raises(TypeError, match="seed"):
        Encoder(3, 3, seed=None)


# --- training -------------------------------------------------------------------------------------


def circle_pairs(size: int, *, seed: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Angles on a circle, noisy across the pair, seen through two linear maps."""
    angle = 2 * math.pi * torch.rand(size, generator=seed)
    other = angle + 0.3 * torch.randn(size, generator=seed)
    x = torch.stack([angle.cos(), angle.sin()], 1) @ torch.tensor([[2.0, 0.5, 1.0], [0.0, 1, -1]])
    t = torch.stack([other.cos(), other.sin()], 1) @ torch.tensor([[1.0, -1.0], [1.0, 2.0]])
    return x, t, angle


def trained(steps: int, **options) -> tuple:
    encoder_x, encoder_t = Encoder(3, 2, width=16, seed=5), Encoder(2, 2, width=16, seed=6)
    loss = ContrastiveLoss(init_temperature=1.0)
    history = train(
        circle_pairs,
        encoder_x,
        encoder_t,
        loss,
        steps=steps,
        batch_size=64,
        seed=7,
        device="cpu",
        progress=False,
        **options,
    )
    return encoder_x, encoder_t, loss, history


def test_training_lowers_the_loss_recovers_the_circle_and_learns_the_temperature():
    """Distances on the circle come back; the best τ is 1/κ, κ = 11 for noise of sd 0.3 or so.

    Some initial weights fold the circle and stay folded (a local optimum); these do not.
    """
    encoder_x, _, loss, history = trained(400, eval_every=100, temperature_learning_rate=0.02)
    assert isinstance(history, History)
    assert history.step.tolist() == [100, 200, 300, 400]
    assert history.loss[-1] < history.loss[0]
    assert history.temperature[-1] == pytest.approx(loss.temperature)
    assert 0.06 < loss.temperature < 0.2
    assert history.seconds > 0
    x, _, angle = circle_pairs(500, seed=torch.Generator().manual_seed(3))
    truth = torch.stack([angle.cos(), angle.sin()], 1)
    code = encoder_x(x).detach()
    assert (code @ code.T - truth @ truth.T).abs().mean() < 0.05
    assert not encoder_x.training


def test_training_repeats_exactly_for_a_seed_and_calls_back_at_each_entry():
    """Same seeds, same run; the last entry is there even where eval_every does not divide steps."""
    seen = []
    first = trained(25, eval_every=10, callback=seen.append)[3]
    second = trained(25, eval_every=10)[3]
    assert seen == first.step.tolist() == [10, 20, 25]
    np.testing.assert_array_equal(first.loss, second.loss)


def test_interrupted_training_returns_what_there_is():
    """Ctrl-C after 20 steps gives a history of 20 steps and encoders that can be used."""

    def stop(step: int) -> None:
        if step == 20:
            raise KeyboardInterrupt

    encoder_x, _, _, history = trained(1000, eval_every=10, callback=stop)
    assert history.step.tolist() == [10, 20]
    assert not encoder_x.training
    assert torch.isfinite(encoder_x(torch.zeros(1, 3) + 1)).all()


def test_diverging_training_names_the_step():
    """An embedding that overflows stops the run at once and says what to try."""
    encoder = Encoder(3, 2, codomain="euclidean", width=4, seed=0)
    other = Encoder(2, 2, codomain="euclidean", width=4, seed=1)
    with torch.no_grad():
        encoder.out.bias.fill_(math.inf)
    with pytest.raises(FloatingPointError, match=r"step 0.*lower learning_rate"):
        train(
            circle_pairs,
            encoder,
            other,
            ContrastiveLoss("l2"),
            steps=5,
            batch_size=8,
            seed=0,
            device="cpu",
            progress=False,
        )


@pytest.mark.parametrize("log_scale", [math.nan, -1e6])
def test_a_temperature_that_runs_away_is_named(log_scale):
    """The critic would refuse the temperature as a bad argument, which it is not."""
    loss = ContrastiveLoss(init_temperature=1.0)
    with torch.no_grad():
        loss.log_scale.fill_(log_scale)
    parts = Encoder(3, 2, seed=0), Encoder(2, 2, seed=1), loss
    with pytest.raises(FloatingPointError, match=r"the temperature is not finite at step 0"):
        train(circle_pairs, *parts, steps=1, batch_size=8, seed=0, device="cpu", progress=False)


def test_training_refuses_broken_data_and_sizes():
    """NaN from the sampler is the data's fault, not the optimiser's, and is reported as such."""

    def broken(size: int, *, seed: torch.Generator) -> tuple:
        x, t, _ = circle_pairs(size, seed=seed)
        x[0] = math.nan
        return x, t

    parts = Encoder(3, 2, seed=0), Encoder(2, 2, seed=1), ContrastiveLoss()
    common = {"seed": 0, "device": "cpu", "progress": False}
    with pytest.raises(ValueError, match="the sampler's x must be finite, got 3"):
        train(broken, *parts, steps=1, batch_size=8, **common)
    with pytest.raises(ValueError, match="batch_size"):
        train(circle_pairs, *parts, steps=1, batch_size=1, **common)
    with pytest.raises(ValueError, match="learning_rate"):
        train(circle_pairs, *parts, steps=1, batch_size=8, learning_rate=0.0, **common)


def test_one_shared_encoder_is_trained_once_per_step():
    """Passing one module twice must not hand its parameters to the optimiser twice."""
    shared = Encoder(2, 2, width=8, seed=0)

    def views(size: int, *, seed: torch.Generator) -> tuple:
        t = circle_pairs(size, seed=seed)[1]
        return t + 0.1 * torch.randn(t.shape, generator=seed), t

    history = train(
        views,
        shared,
        shared,
        ContrastiveLoss(),
        steps=10,
        batch_size=16,
        seed=0,
        device="cpu",
        progress=False,
    )
    assert np.isfinite(history.loss).all()


def test_bias_constant_survives_rows_far_apart() -> None:
    """A row shifted by 1000 leaves k/μ_x as it was; only the k/μ_t terms change, to a limit."""
    joint = np.array([[0.3, 0.2], [0.1, 0.4]])
    scores = np.array([[0.5, -0.2], [0.1, 0.3]])
    far, further = (bias_constant(joint, scores - [[0.0], [shift]]) for shift in (100.0, 1000.0))
    assert math.isfinite(further)
    assert further == pytest.approx(far, rel=1e-12)


def test_a_forbidden_pair_weighs_nothing_in_batches_without_it() -> None:
    """A score of −inf on a pair that was not drawn must not turn the batch's loss into NaN."""
    joint = np.array([[0.4, 0.1], [0.1, 0.4]])
    scores = np.array([[1.0, -math.inf], [0.0, 1.0]])
    losses = sample_batch_losses(joint, scores, batch_size=4, batches=200, seed=0)
    assert not bool(torch.isnan(losses).any())
    without = float(torch.isfinite(losses).double().mean())
    # 0.9^4 of the batches hold no forbidden pair; six standard errors, so it fails below 1e-8.
    assert without == pytest.approx(0.9**4, abs=6 * 0.5 / math.sqrt(200))


@pytest.mark.parametrize("transpose", [False, True])
def test_scores_that_forbid_a_whole_row_are_refused(transpose: bool) -> None:
    """The softmax over no pair is no law; the loss was NaN."""
    scores = np.array([[1.0, 0.0], [-math.inf, -math.inf]])
    scores = scores.T if transpose else scores
    for function in (population_loss, bias_constant):
        with pytest.raises(ValueError, match="at least one finite score, but 1 are -inf"):
            function(np.full((2, 2), 0.25), scores)


def test_an_empty_joint_is_refused_in_words() -> None:
    """Not by an error from inside torch."""
    with pytest.raises(ValueError, match="not empty"):
        population_loss(np.zeros((0, 0)), np.zeros((0, 0)))


def test_scores_that_overflow_are_refused_in_chunks_too() -> None:
    """The loss in chunks and the estimate of its limit returned NaN where the plain loss raises."""
    x, t = (1e30 * rows for rows in embeddings(6, 3, seed=0, dtype=torch.float32))
    for function in (
        lambda: info_nce(x, t, kind="dot", temperature=1.0),
        lambda: info_nce(x, t, kind="dot", temperature=1.0, chunk_size=2),
        lambda: population_loss_monte_carlo(x, t, kind="dot", temperature=1.0),
    ):
        with pytest.raises(ValueError, match="scores must be finite"):
            function()


def test_the_cosine_refuses_rows_whose_norm_overflows() -> None:
    """Divided by an infinite norm, all cosines were 0 and the loss was 2 log N, silently."""
    x, t = embeddings(6, 3, seed=0, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"x must have rows whose norm .* got 6 of 6"):
        info_nce(1e30 * x, t, temperature=1.0)
    assert torch.isfinite(info_nce(1e15 * x, t, temperature=1.0))


@pytest.mark.parametrize("p", [9.0, 50.0, 400.0])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_large_orders_of_the_distance_keep_float32_accuracy(p: float, scale: float) -> None:
    """The p-th powers leave the range of float32; distances came out as 0 or infinite."""
    x, t = (scale * rows for rows in embeddings(5, 4, seed=1, dtype=torch.float32))
    x.requires_grad_()
    scores = critic(x, t, kind=p, temperature=1.0)
    differences = np.abs(x.detach().double().numpy()[:, None] - t.double().numpy())
    peak = differences.max(axis=2)
    reference = peak * ((differences / peak[..., None]) ** p).sum(axis=2) ** (1 / p)
    np.testing.assert_allclose(-scores.detach().numpy(), reference, rtol=1e-5)
    scores.sum().backward()
    # The gradient of a norm of order p has dual norm 1 for each of the five pairs of a row.
    assert bool((x.grad.abs().sum(1) <= 5 * 4 ** (1 / p) * (1 + 1e-5)).all())
    assert bool((x.grad != 0).any())


def test_numpy_numbers_name_a_distance() -> None:
    """A p read from an array is the number it is."""
    x, t = embeddings(4, 3, seed=0)
    for p in (np.float32(3), np.int64(3)):
        assert torch.equal(
            critic(x, t, kind=p, temperature=1.0), critic(x, t, kind=3.0, temperature=1.0)
        )


@pytest.mark.parametrize(
    ("sampler", "error", "message"),
    [
        (lambda size, seed: (torch.zeros(size, 3),) * 2, None, None),
        (
            lambda size, seed: (torch.zeros(size + 8, 3), torch.zeros(size, 3)),
            ValueError,
            "sampler's x must have the 16 rows asked for, got 24",
        ),
        (
            lambda size, seed: (torch.zeros(size, 3), torch.zeros(size - 1, 3)),
            ValueError,
            "sampler's t must have the 16 rows asked for, got 15",
        ),
        (
            lambda size, seed: (np.zeros((size, 3)), torch.zeros(size, 3)),
            TypeError,
            "sampler's x must be a tensor, got ndarray",
        ),
    ],
)
def test_a_sampler_that_returns_something_else_is_refused_before_training(
    sampler: object, error: type[Exception] | None, message: str | None
) -> None:
    """Too many rows were trained on to the end, then refused; a row too few went unnoticed."""
    encoders = [Encoder(3, 2, codomain="box", width=4, depth=1, seed=seed) for seed in (0, 1)]
    before = encoders[0].skip.weight.detach().clone()

    def run() -> History:
        return train(
            sampler,
            *encoders,
            ContrastiveLoss("l1", init_temperature=1.0),
            steps=2,
            batch_size=8,
            seed=0,
            device="cpu",
            progress=False,
        )

    if error is None:
        assert run().step.tolist() == [2]
        return
    with pytest.raises(error, match=message):
        run()
    assert torch.equal(encoders[0].skip.weight, before)
