"""Metrics: invariances, chance levels, held-out scores and the edges users ran into."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from tutorials_lib import metrics
from tutorials_lib.metrics import (
    leakage,
    linear_r2,
    mcc,
    mcc_chance_level,
    modality_gap,
)

few = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 2**32 - 1)


def scrambled(latents: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Permute, flip, scale and shift the columns."""
    n_latents = latents.shape[1]
    scale = rng.choice([-1, 1], n_latents) * np.exp(rng.normal(scale=3, size=n_latents))
    return latents[:, rng.permutation(n_latents)] * scale + rng.normal(size=n_latents)


# --- MCC


@few
@given(seeds, st.integers(1, 6))
def test_case_15_latents_up_to_permutation_sign_and_scale_have_mcc_one(seed, n_latents):
    """Also after a regression on held-out rows, by R², and on ranks."""
    rng = np.random.default_rng(seed)
    latents = rng.laplace(size=(60, n_latents))
    codes = scrambled(latents, rng)
    assert mcc(latents, codes).score == pytest.approx(1, abs=1e-12)
    assert mcc(latents, codes, method="spearman").score == pytest.approx(1, abs=1e-12)
    assert mcc(latents, codes, regression="linear").score == pytest.approx(1, abs=1e-12)
    assert linear_r2(latents, codes).score == pytest.approx(1, abs=1e-12)


def test_assignment_and_signs_undo_the_scrambling():
    rng = np.random.default_rng(0)
    latents = rng.normal(size=(200, 4))
    order, signs = np.array([2, 0, 3, 1]), np.array([1, -1, -1, 1])
    result = mcc(latents, (latents * signs)[:, order])
    np.testing.assert_array_equal(order[result.assignment], np.arange(4))
    np.testing.assert_array_equal(result.signs, signs)
    np.testing.assert_allclose(
        result.correlations[np.arange(4), result.assignment], signs, atol=1e-12
    )


@few
@given(seeds, st.integers(1, 4), st.integers(1, 4), st.sampled_from(["pearson", "spearman"]))
def test_mcc_is_the_best_of_all_assignments(seed, n_latents, n_codes, method):
    """Against NumPy's and SciPy's correlations and a search over all assignments."""
    rng = np.random.default_rng(seed)
    latents = rng.normal(size=(30, n_latents)).round(1)  # with ties
    codes = latents[:, :1] + rng.normal(size=(30, n_codes)).round(1)
    both = np.hstack([latents, codes])
    if method == "spearman":
        both = rankdata(both, axis=0)
        assert spearmanr(latents[:, 0], codes[:, 0]).statistic == pytest.approx(
            mcc(latents, codes, method=method).correlations[0, 0], abs=1e-12
        )
    table = np.abs(np.corrcoef(both.T)[:n_latents, n_latents:])
    wide = table if n_latents <= n_codes else table.T
    best = max(
        np.mean([wide[i, j] for i, j in enumerate(columns)])
        for columns in itertools.permutations(range(wide.shape[1]), len(wide))
    )
    assert mcc(latents, codes, method=method).score == pytest.approx(best, abs=1e-12)


def test_spearman_sees_through_a_monotone_map_and_pearson_does_not():
    latents = np.random.default_rng(1).normal(size=(500, 3))
    codes = np.exp(2 * latents[:, ::-1])
    assert mcc(latents, codes, method="spearman").score == pytest.approx(1, abs=1e-12)
    assert mcc(latents, codes).score < 0.8


def test_a_rotation_lowers_mcc_but_not_the_score_after_a_regression():
    """What each of the two scores can show: single latents, or linearity only."""
    rng = np.random.default_rng(2)
    latents = rng.uniform(size=(4000, 4))
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    assert mcc(latents, latents @ rotation).score < 0.9
    after = mcc(latents, latents @ rotation, regression="linear")
    assert after.score == pytest.approx(1, abs=1e-12)
    assert after.n_samples == 2000
    np.testing.assert_array_equal(after.assignment, np.arange(4))


def test_regression_of_noise_stays_at_chance_with_more_columns_than_rows():
    """On the rows it is fitted on, the fit would have correlation 1.

    The mean of five absolute chance correlations on 50 rows has standard deviation 0.04; the
    bound is over five of these from the mean, so the error probability is below 1e-5.
    """
    rng = np.random.default_rng(3)
    result = mcc(rng.normal(size=(100, 5)), rng.normal(size=(100, 120)), regression="linear")
    assert result.score < 0.35
    assert result.chance_level == pytest.approx(0.114, abs=0.002)


def test_case_16_chance_level_stands_beside_every_mcc():
    """d = 20: about 0.275 at n = 50 and 0.03 at n = 5,000; one run of MCC on noise is near it.

    The mean of 20 correlations of about 0.28 varies by less than 0.01, so a miss of 0.04 has
    probability below 1e-4.
    """
    assert mcc_chance_level(50, 20) == pytest.approx(0.278, abs=0.008)
    assert mcc_chance_level(5000, 20) == pytest.approx(0.028, abs=0.001)
    rng = np.random.default_rng(4)
    result = mcc(rng.normal(size=(50, 20)), rng.normal(size=(50, 20)))
    assert result.score == pytest.approx(result.chance_level, abs=0.04)
    assert "chance 0.2" in str(result)


def test_chance_level_of_one_latent_and_one_code_is_the_mean_absolute_correlation():
    """E|r| = Γ((n−1)/2)/(√π Γ(n/2)): the closed form and 5,000 simulations (error < 1e-5)."""
    exact = mcc_chance_level(10, 1, matched=True)
    assert exact == pytest.approx(math.gamma(4.5) / math.gamma(5) / math.sqrt(math.pi))
    assert mcc_chance_level(10, 1, repeats=5_000) == pytest.approx(exact, abs=0.015)
    ranks = mcc_chance_level(10, 1, repeats=5_000, method="spearman")
    assert ranks == pytest.approx(exact, abs=0.02)


def test_chance_level_of_many_rows_may_be_scaled_from_fewer(monkeypatch):
    """Simulated at 6,000 rows and scaled up from 2,000: equal to 1.5 % (each errs by 0.2 %)."""
    scaled = mcc_chance_level(6000, 20, repeats=40, seed=1)
    monkeypatch.setattr(metrics, "CHANCE_ROWS", 6000)
    assert scaled == pytest.approx(mcc_chance_level(6000, 20, repeats=40, seed=2), rel=0.015)


def test_chance_level_depends_on_the_shape_as_it_should():
    assert mcc_chance_level(100, 20) > mcc_chance_level(100, 5) > mcc_chance_level(100, 1)
    assert mcc_chance_level(100, 5, 50) > mcc_chance_level(100, 5)
    assert mcc_chance_level(100, 5, seed=3) == mcc_chance_level(100, 5, seed=3)
    with pytest.raises(ValueError, match="n_samples must be an integer >= 3"):
        mcc_chance_level(2, 5)


def test_case_17_a_constant_factor_is_nan_with_a_reason_and_left_out():
    rng = np.random.default_rng(5)
    latents = rng.normal(size=(100, 3))
    latents[:, 1] = 0.1
    codes = scrambled(latents[:, [0, 2]], rng)
    for result in (
        mcc(latents, codes),
        mcc(latents, codes, method="spearman"),
        mcc(latents, codes, regression="linear"),
        linear_r2(latents, codes),
        leakage(codes, latents, estimator="linear"),
    ):
        assert list(result.excluded) == [1]
        assert "constant" in result.excluded[1]
        assert np.isnan(result.per_factor).tolist() == [False, True, False]
        assert result.score == pytest.approx(1, abs=1e-12)
        assert "1 of 3" in str(result)


def test_case_17_one_single_code_scores_the_latent_it_serves_and_excludes_the_rest():
    latents = np.random.default_rng(6).normal(size=(400, 4))
    for code in (latents[:, 2], latents[:, 2:3]):
        result = mcc(latents, code)
        assert result.score == pytest.approx(1, abs=1e-12)
        np.testing.assert_array_equal(result.assignment, [-1, -1, 0, -1])
        np.testing.assert_array_equal(result.signs, [0, 0, 1, 0])
        assert result.excluded == dict.fromkeys((0, 1, 3), "no code left: 1 codes for 4 latents")
        assert linear_r2(latents, code).per_factor[2] == pytest.approx(1, abs=1e-12)


def test_case_17_nothing_but_constant_factors_gives_nan_and_no_crash():
    codes = np.random.default_rng(7).normal(size=(50, 2))
    for result in (mcc(np.ones((50, 2)), codes), linear_r2(np.ones((50, 2)), codes)):
        assert math.isnan(result.score)
        assert len(result.excluded) == 2
    assert math.isnan(leakage(codes, np.ones(50)).score)


def test_a_constant_code_counts_as_zero_so_that_a_collapse_does_not_pay():
    latents = np.random.default_rng(8).normal(size=(1000, 2))
    codes = latents.copy()
    codes[:, 1] = 5.0
    result = mcc(latents, codes)
    assert result.score == pytest.approx(0.5, abs=1e-12)
    assert result.constant_codes == (1,)
    assert result.excluded == {}
    assert mcc(latents, np.zeros((1000, 2))).score == 0
    assert linear_r2(latents, np.zeros((1000, 2))).score == pytest.approx(0, abs=0.01)


def test_more_codes_than_latents_leave_codes_without_a_latent():
    rng = np.random.default_rng(9)
    latents = rng.normal(size=(300, 2))
    codes = np.hstack([rng.normal(size=(300, 3)), latents])
    result = mcc(latents, codes)
    np.testing.assert_array_equal(result.assignment, [3, 4])
    assert result.score == pytest.approx(1, abs=1e-12)
    assert result.correlations.shape == (2, 5)


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_scores_do_not_depend_on_units_however_extreme(factor):
    latents = np.random.default_rng(10).normal(size=(50, 2))
    assert mcc(latents, latents * factor).score == pytest.approx(1, abs=1e-12)


# --- R²


@few
@given(seeds, st.integers(1, 4), st.integers(1, 5))
def test_linear_r2_agrees_with_scikit_learn_on_the_same_split(seed, n_latents, dim):
    rng = np.random.default_rng(seed)
    representation = rng.normal(size=(80, dim)) * 10.0 ** rng.integers(-1, 2, dim) + 5
    latents = rng.normal(size=(80, n_latents)) + representation[:, :1]
    result = linear_r2(latents, representation, test_fraction=0.25, seed=seed)
    order = np.random.default_rng(seed).permutation(80)
    test, train = order[:20], order[20:]
    model = LinearRegression().fit(representation[train], latents[train])
    expected = r2_score(
        latents[test], model.predict(representation[test]), multioutput="raw_values"
    )
    np.testing.assert_allclose(result.per_factor, expected, atol=1e-9)
    assert result.score == pytest.approx(expected.mean(), abs=1e-9)
    assert (result.n_train, result.n_test) == (60, 20)


@few
@given(seeds)
def test_linear_r2_keeps_columns_of_small_units(seed):
    """Units 10^30 apart; scikit-learn drops columns that are 10^6 smaller than others."""
    rng = np.random.default_rng(seed)
    latents = rng.normal(size=(60, 3))
    representation = latents + 0.3 * rng.normal(size=(60, 3))
    expected = linear_r2(latents, representation).per_factor
    found = linear_r2(latents, representation * [1e-15, 1.0, 1e15]).per_factor
    np.testing.assert_allclose(found, expected, atol=1e-10)


@few
@given(seeds)
def test_linear_r2_does_not_see_an_affine_map_of_the_representation(seed):
    rng = np.random.default_rng(seed)
    latents, representation = rng.normal(size=(60, 2)), rng.normal(size=(60, 3))
    representation[:, :2] += latents
    # A rotation, stretches and another: well conditioned, so that rounding stays small.
    left, right = (np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(2))
    matrix = left * [0.1, 1.0, 10.0] @ right
    moved = representation @ matrix + rng.normal(size=3)
    np.testing.assert_allclose(
        linear_r2(latents, representation).per_factor,
        linear_r2(latents, moved).per_factor,
        atol=1e-8,
    )


def test_case_16_noise_with_more_features_than_samples_has_no_r2():
    """100 samples, 120 noise features: 1.0 on rows seen, below 0.2 on others.

    Fifty predictions of fresh noise explain a fifth of it or more with probability below 1e-3
    per factor even when their scale is the best possible; here they only add variance.
    """
    rng = np.random.default_rng(11)
    features, noise = rng.normal(size=(100, 120)), rng.normal(size=(100, 3))
    seen = LinearRegression().fit(features, noise).score(features, noise)
    assert seen == pytest.approx(1)
    result = linear_r2(noise, features)
    assert (result.per_factor < 0.2).all()


def test_r2_of_noise_has_the_expected_value_the_docstring_states():
    """−dim/(n_train − dim − 1), over 300 data sets; four standard errors (error below 1e-4)."""
    rng = np.random.default_rng(12)
    scores = [
        linear_r2(rng.normal(size=400), rng.normal(size=(400, 20)), seed=rng).score
        for _ in range(300)
    ]
    error = np.std(scores) / math.sqrt(300)
    assert np.mean(scores) == pytest.approx(-20 / 179, abs=4 * error + 1 / 200)
    assert np.mean(scores) < 0


def test_seeds_decide_the_split():
    rng = np.random.default_rng(13)
    latents, representation = rng.normal(size=(50, 2)), rng.normal(size=(50, 2))
    a, b = (linear_r2(latents, representation, seed=s).score for s in (0, 1))
    assert a != b
    assert linear_r2(latents, representation, seed=1).score == b
    assert linear_r2(latents, representation, seed=np.random.default_rng(1)).score == b


# --- leakage


def test_nonlinear_leakage_is_seen_by_the_network_and_missed_by_the_line():
    """m as an angle: the line has the R² of m on sin ωm, in closed form. m²: the line has none.

    The spread of the linear R² over data sets of this size is below 0.01.
    """
    omega, a = 2 * math.pi, 0.45
    covariance = math.sin(omega * a) / (omega**2 * a) - math.cos(omega * a) / omega
    sine_power = 1 / 2 - math.sin(2 * omega * a) / (4 * omega * a)
    line = covariance**2 / (sine_power * a**2 / 3)
    rng = np.random.default_rng(14)
    z, m = rng.normal(size=(3000, 2)), rng.uniform(-a, a, size=(3000, 1))
    angle = np.hstack([z, np.cos(2 * np.pi * m), np.sin(2 * np.pi * m)])
    assert leakage(angle, m, estimator="linear").score == pytest.approx(line, abs=0.04)
    assert leakage(angle, m).score > 0.95
    assert leakage(angle, m, estimator="knn").score > 0.8
    square = np.hstack([z, m])
    assert leakage(square, m**2, estimator="linear").score < 0.05
    assert leakage(square, m**2).score > 0.95
    assert leakage(square, m**2, estimator="knn").score > 0.7


@pytest.mark.parametrize(("estimator", "lowest"), [("linear", -0.03), ("mlp", -0.1), ("knn", -0.2)])
def test_without_leakage_the_score_is_about_zero_or_below(estimator, lowest):
    """The ranges the docstring states; the spread over seeds is about 0.01."""
    rng = np.random.default_rng(15)
    result = leakage(rng.normal(size=(3000, 3)), rng.normal(size=(3000, 2)), estimator=estimator)
    assert lowest < result.score < 0.02
    assert result.estimator == estimator


def test_leakage_is_reproducible_and_equals_linear_r2_for_the_linear_estimator():
    rng = np.random.default_rng(16)
    r, m = rng.normal(size=(200, 3)), rng.normal(size=(200, 2))
    assert leakage(r, m, seed=3).score == leakage(r, m, seed=3).score
    assert leakage(r, m, estimator="linear", seed=3).score == linear_r2(m, r, seed=3).score


def test_leakage_refuses_what_it_cannot_do():
    r = np.random.default_rng(17).normal(size=(30, 2))
    with pytest.raises(ValueError, match="at least 40 rows"):
        leakage(r, r)
    with pytest.raises(ValueError, match="estimator must be one of 'linear', 'mlp', 'knn'"):
        leakage(r, r, estimator="forest")
    assert leakage(r[:8], r[:8], estimator="knn").n_train == 4


# --- modality gap


@pytest.mark.parametrize("cosine", [1.0, 0.3, 0.0, -1.0])
def test_gap_of_the_construction_in_which_it_is_free(cosine):
    """f_x = (√c z, a), f_t = (√c z, b): the gap is √(2(1−c)(1−cos)), the pair cosine c + (1−c)cos.

    The extremes are 0 and 2√(1−c).
    """
    c = 0.4
    z = np.random.default_rng(18).normal(size=(500, 3))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    a = math.sqrt(1 - c) * np.array([1.0, 0.0])
    b = math.sqrt(1 - c) * np.array([cosine, math.sqrt(1 - cosine**2)])
    f_x = np.hstack([math.sqrt(c) * z, np.tile(a, (500, 1))])
    f_t = np.hstack([math.sqrt(c) * z, np.tile(b, (500, 1))])
    result = modality_gap(torch.from_numpy(f_x), f_t)
    assert result.gap == pytest.approx(math.sqrt(2 * (1 - c) * (1 - cosine)), abs=1e-12)
    assert result.mean_cosine_of_pairs == pytest.approx(c + (1 - c) * cosine, abs=1e-12)
    expected = np.concatenate([np.zeros(3), a - b])
    np.testing.assert_allclose(result.gap * result.direction, expected, atol=1e-12)


def test_mean_cosines_agree_with_a_loop():
    rng = np.random.default_rng(19)
    f_x, f_t = rng.normal(size=(7, 4)) + 1, rng.normal(size=(7, 4)) * 5
    cosines = [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in f_t] for a in f_x]
    result = modality_gap(f_x, f_t)
    assert result.mean_cosine_of_pairs == pytest.approx(np.mean(np.diag(cosines)))
    others = np.mean([cosines[i][j] for i in range(7) for j in range(7) if i != j])
    assert result.mean_cosine_of_non_pairs == pytest.approx(others)


def test_gap_is_unmoved_by_a_common_shift_or_rotation_and_equal_sets_have_none():
    rng = np.random.default_rng(20)
    f_x, f_t = rng.normal(size=(50, 3)), rng.normal(loc=[2, 0, 0], size=(50, 3))
    gap = modality_gap(f_x, f_t).gap
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    assert modality_gap(f_x @ rotation, f_t @ rotation).gap == pytest.approx(gap)
    assert modality_gap(f_x + 9, f_t + 9).gap == pytest.approx(gap)
    same = modality_gap(f_x, f_x)
    assert same.gap == 0
    np.testing.assert_array_equal(same.direction, np.zeros(3))
    assert same.mean_cosine_of_pairs == pytest.approx(1)
    assert math.isnan(modality_gap(f_x[:1], f_t[:1]).mean_cosine_of_non_pairs)


def test_gap_refuses_rows_without_an_angle_and_unequal_shapes():
    with pytest.raises(ValueError, match="f_t has 1 rows that are zero"):
        modality_gap(np.ones((2, 2)), [[0.0, 0.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match="same shape"):
        modality_gap(np.ones((2, 2)), np.ones((2, 3)))


# --- inputs and results


@pytest.mark.parametrize("function", [mcc, linear_r2, leakage, modality_gap])
def test_bad_input_is_refused_with_the_reason(function):
    good = np.random.default_rng(21).normal(size=(100, 2))
    bad = good.copy()
    bad[3, 1], bad[4, 0] = np.nan, np.inf
    for arguments in ((bad, good), (good, bad), (torch.from_numpy(bad), good)):
        with pytest.raises(ValueError, match="2 NaN or infinite entries out of 200"):
            function(*arguments)
    with pytest.raises(ValueError, match=r"as many rows, got (100 and 99|99 and 100)"):
        function(good, good[:99])
    with pytest.raises(ValueError, match="one row a sample"):
        function(good[None], good)
    with pytest.raises(TypeError, match="real numbers"):
        function(good + 0j, good)


def test_options_and_sizes_are_checked():
    good = np.random.default_rng(22).normal(size=(10, 2))
    with pytest.raises(ValueError, match="method must be one of 'pearson', 'spearman'"):
        mcc(good, good, method="kendall")
    with pytest.raises(ValueError, match="regression must be one of None, 'linear'"):
        mcc(good, good, regression="ridge")
    with pytest.raises(ValueError, match="at least 3 rows, got 2"):
        mcc(good[:2], good[:2])
    with pytest.raises(ValueError, match="both need at least 2"):
        linear_r2(good[:3], good[:3])
    with pytest.raises(ValueError, match="between 0 and 1"):
        linear_r2(good, good, test_fraction=1.0)
    with pytest.raises(TypeError, match="seed must be an integer"):
        linear_r2(good, good, seed=None)


def test_tensors_with_gradients_and_half_precision_are_read():
    latents = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).bfloat16()
    latents.requires_grad_()
    assert mcc(latents, -latents.detach().float()).score == pytest.approx(1, abs=1e-12)


def test_inputs_are_left_as_they_were():
    latents = np.random.default_rng(23).normal(size=(80, 2))
    before = latents.copy()
    for function in (mcc, linear_r2, leakage, modality_gap):
        function(latents, torch.from_numpy(latents))
    np.testing.assert_array_equal(latents, before)


def test_results_are_frozen_and_print_as_one_line():
    rng = np.random.default_rng(24)
    latents = rng.normal(size=(5000, 3))
    result = mcc(latents, latents + 0.06 * rng.normal(size=(5000, 3)))
    assert str(result) == repr(result) == "MCC 0.998 (pearson, n=5000, chance 0.017)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.score = 1.0
    text = str(mcc(latents, latents, method="spearman", regression="linear"))
    assert text == ("MCC 1.000 (spearman of held-out linear predictions, n=2500, chance 0.016)")
    assert str(linear_r2(latents, latents)) == (
        "R² 1.000 (linear, fitted on 2500 rows, measured on 2500 others)"
    )
    assert str(modality_gap([[1.0, 0.0]] * 2, [[0.0, 1.0]] * 2)) == (
        "modality gap 1.414 (n=2, mean cosine 0.000 in pairs, 0.000 between others)"
    )


@pytest.mark.parametrize("scale", [2.0**-600, 2.0**600])
def test_r2_and_gap_see_no_scale_however_extreme(scale: float) -> None:
    """Squares of such entries leave the range of floats; R² came out near 0 and cosines as 0."""
    rng = np.random.default_rng(0)
    latents = rng.normal(size=(200, 2))
    codes = latents @ rng.normal(size=(2, 2)) + 0.1 * rng.normal(size=(200, 2))
    for measure in (
        linear_r2,
        lambda z, r: leakage(r, z, estimator="knn"),
        lambda z, r: mcc(z, r, regression="linear"),
    ):
        expected = measure(latents, codes).score
        assert measure(latents, codes * scale).score == expected
        assert measure(latents * scale, codes).score == expected
    small, large = modality_gap(latents, codes), modality_gap(latents * scale, codes * scale)
    assert large.gap == pytest.approx(scale * small.gap, rel=1e-12)
    assert large.mean_cosine_of_pairs == small.mean_cosine_of_pairs
    assert large.mean_cosine_of_non_pairs == small.mean_cosine_of_non_pairs
