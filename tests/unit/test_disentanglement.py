"""DCI, MIG and SAP: hand-computed examples, independent references, invariances and edges."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LassoCV, LinearRegression
from sklearn.metrics import accuracy_score, mutual_info_score, r2_score

from tutorials_lib._disentanglement import scores_from_importance
from tutorials_lib._gaps import _accuracy_of_thresholds
from tutorials_lib.metrics import dci, mig, sap

few = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 2**32 - 1)
measures = pytest.mark.parametrize("measure", [dci, mig, sap])
LOG2, LOG3 = math.log(2), math.log(3)


def mixed_factors(n: int, rng: np.random.Generator) -> np.ndarray:
    """Two continuous factors, one of three classes and one of two."""
    return np.column_stack(
        [rng.uniform(size=n), rng.normal(size=n), rng.integers(0, 3, n), rng.integers(0, 2, n)]
    )


def scrambled(codes: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Permute, flip and scale the columns; also say where each column came from."""
    n_codes = codes.shape[1]
    order = rng.permutation(n_codes)
    scale = rng.choice([-1, 1], n_codes) * np.exp(rng.normal(scale=3, size=n_codes))
    return codes[:, order] * scale, order


def rotation(dim: int, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(dim, dim)))[0]


def score_of(result) -> float:
    return result.disentanglement if hasattr(result, "disentanglement") else result.score


# --- MIG


def test_case_18_mig_of_a_table_computed_by_hand():
    """Two factors, three codes, eight rows.

    Code 0 agrees with factor 0 in 6 of 8 rows: I = (3/4) log 3 − log 2. Code 1 is factor 1, and
    code 2 holds both, so factor 1 has no gap and factor 0 one of log 2 − I.
    """
    first, second = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([0, 1, 0, 1, 0, 1, 0, 1])
    noisy = np.array([0, 0, 0, 1, 1, 1, 1, 0])
    result = mig(
        np.column_stack([first, second]), np.column_stack([noisy, second, first + 2 * second])
    )
    of_noisy = 0.75 * LOG3 - LOG2
    # Code 0 and factor 1: in rows with code 0, factor 1 is 0, 1, 0, 1; in the others 1, 0, 1, 0.
    expected = [[of_noisy, 0.0], [0.0, LOG2], [LOG2, LOG2]]
    np.testing.assert_allclose(result.mutual_information, expected, atol=1e-12)
    np.testing.assert_allclose(result.entropies, [LOG2, LOG2], atol=1e-12)
    np.testing.assert_allclose(result.per_factor, [1 - of_noisy / LOG2, 0.0], atol=1e-12)
    assert result.score == pytest.approx((1 - of_noisy / LOG2) / 2, abs=1e-12)
    assert result.best_code[0] == 2
    assert result.factor_kinds == ("discrete", "discrete")


def binned_by_loop(column: np.ndarray, bins: int, binning: str) -> list[float]:
    """The documented bins, row by row."""
    values = sorted(set(column))
    if len(values) <= bins:
        return [values.index(x) for x in column]
    n, labels = len(column), []
    for x in column:
        if binning == "equal-frequency":
            mean_rank = np.sum(column < x) + (np.sum(column == x) + 1) / 2
            place = bins * (mean_rank - 0.5) / n
        else:
            place = bins * (x - column.min()) / (column.max() - column.min())
        edge = round(place)
        if abs(place - edge) < 1e-9:
            # On an edge: nearer the middle; in the middle a bin of its own.
            nearer = edge if edge < bins / 2 else edge - 1
            labels.append(bins if edge == bins / 2 else nearer)
        else:
            labels.append(math.floor(place))
    return labels


@few
@given(seeds, st.integers(2, 7), st.sampled_from(["equal-frequency", "equal-width"]))
def test_case_18_information_agrees_with_loops_and_scikit_learn(seed, bins, binning):
    """Ties, few values and rows on edges included; sums over cells in a loop for the entropies."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 60))
    latents = np.column_stack(
        [rng.integers(0, 3, n), rng.normal(size=n), rng.normal(size=n).round(1) / 4]
    )
    codes = np.column_stack(
        [
            latents[:, 1] ** 2,
            rng.normal(size=n).round(),
            latents[:, 0] + rng.normal(size=n).round(1),
        ]
    )
    kinds = ("discrete", "continuous", "continuous")
    result = mig(latents, codes, bins=bins, binning=binning, factor_kinds=kinds, chance_repeats=1)
    z = [list(latents[:, 0])] + [binned_by_loop(c, bins, binning) for c in latents.T[1:]]
    c = [binned_by_loop(column, bins, binning) for column in codes.T]
    for k, labels in enumerate(z):
        shares = [labels.count(value) / n for value in set(labels)]
        assert result.entropies[k] == pytest.approx(-sum(p * math.log(p) for p in shares))
        for j, others in enumerate(c):
            expected = mutual_info_score(labels, others)
            assert result.mutual_information[j, k] == pytest.approx(expected, abs=1e-10)
    best = np.sort(result.mutual_information, axis=0)
    np.testing.assert_allclose(result.per_factor, (best[-1] - best[-2]) / result.entropies)


def test_case_18_continuous_factors_are_binned_as_documented():
    """Squares of 0 … 39: ten rows in each of four bins; by width, those below 1/4, 1/2, 3/4 of 39².

    These are 0–19, 20–27, 28–33 and 34–39.
    """
    factor = np.arange(40.0) ** 2
    kinds = "continuous"
    by_rank = mig(factor, factor, bins=4, factor_kinds=kinds)
    assert by_rank.entropies[0] == pytest.approx(math.log(4))
    shares = np.array([20, 8, 6, 6]) / 40
    by_width = mig(factor, factor, bins=4, binning="equal-width", factor_kinds=kinds)
    assert by_width.entropies[0] == pytest.approx(-(shares * np.log(shares)).sum())
    assert by_rank.score == pytest.approx(1)
    assert by_width.score == pytest.approx(1)


@few
@given(seeds, st.integers(2, 21), st.sampled_from(["equal-frequency", "equal-width"]))
def test_mig_does_not_see_order_sign_and_scale_of_codes(seed, bins, binning):
    rng = np.random.default_rng(seed)
    latents = mixed_factors(100, rng)
    codes = latents @ rng.normal(size=(4, 3))
    codes[:, 0] = codes[:, 0].round()  # ties
    moved, order = scrambled(codes, rng)
    a = mig(latents, codes, bins=bins, binning=binning, chance_repeats=2)
    b = mig(latents, moved, bins=bins, binning=binning, chance_repeats=2)
    np.testing.assert_allclose(a.mutual_information[order], b.mutual_information, atol=1e-12)
    assert a.score == pytest.approx(b.score, abs=1e-12)
    assert a.chance_level == pytest.approx(b.chance_level, abs=1e-12)
    # Two codes may share the largest information, so the best is known by what it has.
    best = a.mutual_information[order[b.best_code], np.arange(4)]
    np.testing.assert_allclose(best, a.mutual_information.max(axis=0), atol=1e-12)


def test_bins_of_equal_frequency_do_not_see_monotone_maps_and_equal_widths_do():
    rng = np.random.default_rng(0)
    latents = rng.normal(size=(500, 2))
    codes = np.exp(3 * latents[:, ::-1])
    assert mig(latents, codes).score == mig(latents, latents).score
    assert mig(latents, codes, binning="equal-width").score < 0.7


def test_case_17_mig_of_one_single_code_is_its_information_over_the_entropy():
    rng = np.random.default_rng(1)
    latents = np.column_stack([np.tile([0, 1], 300), np.repeat([0, 1, 2], 200)])
    result = mig(latents, latents[:, 1] + rng.integers(0, 2, 600) * 3)
    expected = result.mutual_information[0] / result.entropies
    np.testing.assert_allclose(result.per_factor, expected)
    assert result.per_factor[1] == pytest.approx(1)
    assert result.per_factor[0] < 0.02


def test_mig_of_few_rows_stands_beside_the_level_that_chance_gives():
    """Noise: MIG is near the chance level, the bias of the information near (a−1)(b−1)/2n.

    The bias is known to relative order 1/n times cells; tables of 6 × 6 cells on 400 rows. A mean
    of 20 gaps varies by less than a quarter of itself over data sets (error below 1e-4 at 100 %).
    """
    rng = np.random.default_rng(2)
    latents, codes = rng.normal(size=(400, 20)), rng.normal(size=(400, 5))
    result = mig(latents, codes, bins=6)
    assert result.chance_information.mean() == pytest.approx(25 / 800, rel=0.1)
    assert result.mutual_information.mean() == pytest.approx(25 / 800, rel=0.1)
    assert 0 < result.score < 2 * result.chance_level
    fewer = mig(latents[:60], codes[:60], bins=6)
    assert fewer.chance_level > 3 * result.chance_level
    one = mig(latents[:60], codes[:60, 0], bins=6)
    assert one.chance_level == pytest.approx(
        (one.chance_information / one.entropies).mean(), abs=1e-12
    )


def test_too_few_rows_for_the_bins_are_refused():
    rng = np.random.default_rng(3)
    with pytest.raises(ValueError, match="no two of the 15 rows share one of 20 bins in column 0"):
        mig(rng.integers(0, 2, 15), rng.normal(size=15))
    assert mig(rng.integers(0, 2, 15), rng.normal(size=15), bins=3).n_samples == 15


# --- SAP


def test_case_18_sap_agrees_with_one_regression_a_code():
    """Against scikit-learn on the same split; four factors, five codes, noise counting as 0."""
    rng = np.random.default_rng(4)
    latents = rng.normal(size=(120, 4))
    codes = np.hstack([latents[:, :2] + rng.normal(size=(120, 2)), rng.normal(size=(120, 3))])
    result = sap(latents, codes, test_fraction=0.25, seed=5)
    order = np.random.default_rng(5).permutation(120)
    test, train = order[:30], order[30:]
    gaps = []
    for k in range(4):
        scores = []
        for j in range(5):
            model = LinearRegression().fit(codes[train, j : j + 1], latents[train, k])
            scores.append(max(0, r2_score(latents[test, k], model.predict(codes[test, j : j + 1]))))
        np.testing.assert_allclose(result.scores[:, k], scores, atol=1e-10)
        gaps.append(sorted(scores)[-1] - sorted(scores)[-2])
    np.testing.assert_allclose(result.per_factor, gaps, atol=1e-10)
    assert result.score == pytest.approx(np.mean(gaps), abs=1e-10)
    assert (result.n_train, result.n_test) == (90, 30)


def test_case_18_thresholds_of_a_code_by_hand():
    """Fitted: classes 0 0 1 0 1 1 at 0 … 5, cut at 1.5 or 3.5, the first of the two.

    Below 1.5 are 2 of 3 of class 0, above all of class 1: 5/6, as at 3.5. New rows at 1, 2, 3, 4
    of classes 0, 0, 1, 1: one of two of class 0 is right and both of class 1, which is 3/4.
    """
    code, labels = np.arange(6.0), np.array([0, 0, 1, 0, 1, 1])
    assert _accuracy_of_thresholds(code, labels, code, labels) == pytest.approx(5 / 6)
    new, classes = np.arange(1.0, 5.0), np.array([0, 0, 1, 1])
    assert _accuracy_of_thresholds(code, labels, new, classes) == pytest.approx(3 / 4)
    # A class that was never fitted is never right.
    assert _accuracy_of_thresholds(code, labels, new, np.array([0, 0, 2, 2])) == 0.25


@few
@given(seeds, st.integers(2, 4))
def test_case_18_thresholds_are_the_best_of_all(seed, n_classes):
    """A search over all cuts between values, on the rows fitted on, in both orientations."""
    rng = np.random.default_rng(seed)
    others = rng.integers(0, n_classes, 24 // n_classes)
    labels = np.concatenate([np.arange(n_classes), others])
    code = (labels * rng.normal() + rng.normal(size=len(labels))).round(1)
    means = [code[labels == c].mean() for c in range(n_classes)]
    assume(np.diff(np.sort(means)).min() > 1e-9)
    order = np.argsort(means)
    values = np.unique(code)
    edges = np.concatenate([[-np.inf], (values[1:] + values[:-1]) / 2, [np.inf]])
    best = 0.0
    for cuts in itertools.combinations_with_replacement(edges, n_classes - 1):
        predicted = order[np.sum(code[:, None] > np.array(cuts), axis=1)]
        recalls = [np.mean(predicted[labels == c] == c) for c in range(n_classes)]
        best = max(best, np.mean(recalls))
    for orientation in (1, -1):
        found = _accuracy_of_thresholds(orientation * code, labels, orientation * code, labels)
        assert found == pytest.approx(best, abs=1e-12)


def test_classes_in_the_middle_of_a_code_and_rare_classes_are_found():
    """One code that is the class, 96 % of the rows in one of three: the accuracy is balanced."""
    rng = np.random.default_rng(6)
    shape = rng.choice(3, size=2000, p=[0.02, 0.96, 0.02])
    result = sap(shape, np.column_stack([shape, np.zeros(2000)]))
    assert result.scores[:, 0] == pytest.approx([1, 1 / 3])
    assert result.per_factor[0] == pytest.approx(2 / 3)


@few
@given(seeds)
def test_sap_does_not_see_order_sign_and_scale_of_codes(seed):
    rng = np.random.default_rng(seed)
    latents = mixed_factors(80, rng)
    codes = latents @ rng.normal(size=(4, 3))
    moved, order = scrambled(codes, rng)
    a, b = sap(latents, codes), sap(latents, moved)
    np.testing.assert_allclose(a.scores[order], b.scores, atol=1e-12)
    assert a.score == pytest.approx(b.score, abs=1e-12)


def test_rows_on_a_threshold_fall_on_the_same_side_in_all_units():
    """Codes on a grid: midpoints of values are values too, and rounding must not place them."""
    rng = np.random.default_rng(1)
    latents = mixed_factors(80, rng)
    codes = (latents @ rng.normal(size=(4, 5))).round(1)
    expected = sap(latents, codes).scores
    for scale in (0.1, 3.0, -7.0, 1 / 3):
        np.testing.assert_allclose(sap(latents, codes * scale).scores, expected, atol=1e-12)


@pytest.mark.parametrize("angle", [0.0, 0.3, math.pi / 4])
def test_sap_of_a_rotation_in_closed_form(angle):
    """R² of the two codes are cos² and sin² of the angle: the gap is the cosine of twice it.

    The standard error of a correlation on 10,000 rows is below 0.01; the bound is four of a gap.
    """
    latents = np.random.default_rng(7).normal(size=(20_000, 2))
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    assert sap(latents, latents @ turn).score == pytest.approx(math.cos(2 * angle), abs=0.06)


def test_case_17_sap_of_one_single_code_is_compared_with_a_constant_code():
    rng = np.random.default_rng(8)
    latents = mixed_factors(400, rng)
    for factor, ceiling in ((0, 1.0), (2, 2 / 3), (3, 1 / 2)):
        alone = sap(latents, latents[:, factor])
        beside = sap(latents, np.column_stack([latents[:, factor], np.ones(400)]))
        np.testing.assert_allclose(alone.per_factor, beside.per_factor, atol=1e-12)
        assert alone.per_factor[factor] == pytest.approx(ceiling, abs=1e-12)
        np.testing.assert_allclose(alone.baseline, [0, 0, 1 / 3, 1 / 2])
        assert np.all(np.delete(alone.per_factor, factor) < 0.2)


def test_sap_never_exceeds_the_gap_of_a_perfect_code():
    """Noise that scores less than a constant would widen the gap beyond it."""
    rng = np.random.default_rng(9)
    for seed in range(20):
        latents = mixed_factors(30, rng)
        codes = np.column_stack([latents, rng.normal(size=30)])
        result = sap(latents, codes, seed=seed)
        assert np.all(result.per_factor <= 1 - result.baseline + 1e-12)
        assert np.all(result.per_factor >= 0)


# --- DCI


def test_case_18_disentanglement_and_completeness_of_a_table_computed_by_hand():
    """Three codes and two factors.

    Code 0 serves both alike: 0. Codes 1 and 2 serve factor 1 only: 1, and hold half of all
    importance. Factor 0 rests on one code: 1. Factor 1 rests on all, with shares 1/2, 1/4, 1/4.
    """
    table = np.array([[2.0, 2.0], [0.0, 1.0], [0.0, 1.0]])
    disentanglement, per_code, per_factor = scores_from_importance(table)
    np.testing.assert_allclose(per_code, [0, 1, 1], atol=1e-12)
    assert disentanglement == pytest.approx(2 / 6)
    np.testing.assert_allclose(per_factor, [1, 1 - 1.5 * LOG2 / LOG3], atol=1e-12)


@few
@given(seeds, st.integers(2, 5), st.integers(2, 5))
def test_case_18_disentanglement_and_completeness_agree_with_a_loop(seed, n_codes, n_factors):
    rng = np.random.default_rng(seed)
    table = rng.gamma(0.3, size=(n_codes, n_factors)) * (
        rng.uniform(size=(n_codes, n_factors)) < 0.7
    )
    table[0] += 0.1
    table[1] = 0.0
    expected = 0.0
    for i in range(n_codes):
        if table[i].sum() == 0:
            continue
        shares = [x / table[i].sum() for x in table[i]]
        entropy = -sum(p * math.log(p, n_factors) for p in shares if p > 0)
        expected += table[i].sum() / table.sum() * (1 - entropy)
    disentanglement, per_code, per_factor = scores_from_importance(table)
    assert disentanglement == pytest.approx(expected, abs=1e-12)
    assert math.isnan(per_code[1])
    for j in range(n_factors):
        shares = [x / table[:, j].sum() for x in table[:, j]]
        entropy = -sum(p * math.log(p, n_codes) for p in shares if p > 0)
        assert per_factor[j] == pytest.approx(1 - entropy, abs=1e-12)


def test_a_code_that_nothing_rests_on_weighs_nothing_and_a_collapse_does_not_pay():
    disentanglement, per_code, per_factor = scores_from_importance(np.eye(3)[:, :2])
    assert disentanglement == 1
    assert np.isnan(per_code).tolist() == [False, False, True]
    np.testing.assert_array_equal(per_factor, [1, 1])
    latents = mixed_factors(200, np.random.default_rng(10))
    for estimator in ("trees", "lasso"):
        result = dci(latents, np.full((200, 3), 0.1), estimator=estimator)
        assert (result.disentanglement, result.completeness) == (0, 0)
        assert np.isnan(result.per_code).all()
        assert result.informativeness == pytest.approx(result.baseline.mean(), abs=0.06)
    assert mig(latents, np.full((200, 3), 0.1)).score == 0
    assert sap(latents, np.full((200, 3), 0.1)).score == 0


@pytest.mark.parametrize("estimator", ["trees", "lasso"])
def test_dci_of_a_perfect_representation_and_of_a_rotation(estimator):
    """Order, sign and scale cost nothing; a rotation keeps the information and mixes the codes."""
    rng = np.random.default_rng(11)
    latents = mixed_factors(1000, rng)
    codes, order = scrambled(latents, rng)
    result = dci(latents, codes, estimator=estimator)
    np.testing.assert_array_equal(order[result.importance.argmax(axis=0)], np.arange(4))
    assert result.disentanglement > 0.97
    assert result.completeness > 0.97
    assert result.informativeness > 0.99
    scaled = (latents - latents.mean(axis=0)) / latents.std(axis=0)
    turned = dci(latents, scaled @ rotation(4, rng), estimator=estimator)
    assert turned.disentanglement < 0.7
    assert turned.completeness < 0.7
    assert turned.informativeness > 0.85


@pytest.mark.parametrize(("estimator", "within"), [("trees", 0.08), ("lasso", 1e-3)])
def test_dci_does_not_see_order_sign_and_scale_of_codes(estimator, within):
    """Trees are grown from random cuts, which a flip changes; the lasso stops at a tolerance."""
    rng = np.random.default_rng(12)
    latents = mixed_factors(600, rng)
    codes = latents @ rng.normal(size=(4, 3))
    moved, order = scrambled(codes, rng)
    a, b = dci(latents, codes, estimator=estimator), dci(latents, moved, estimator=estimator)
    np.testing.assert_allclose(a.importance[order], b.importance, atol=within)
    for name in ("disentanglement", "completeness", "informativeness"):
        assert getattr(a, name) == pytest.approx(getattr(b, name), abs=within)


def test_a_code_with_two_factors_is_complete_but_not_disentangled():
    """And two codes for one factor are disentangled but not complete: 1 − log 2 / log 3."""
    rng = np.random.default_rng(13)
    latents = rng.normal(size=(2000, 2))
    merged = np.column_stack([latents.sum(axis=1), rng.normal(size=2000), rng.normal(size=2000)])
    result = dci(latents, merged, estimator="lasso")
    assert result.disentanglement < 0.1
    assert result.completeness > 0.9
    noise = rng.normal(size=2000)
    halves = np.column_stack([latents[:, 0] + noise, latents[:, 0] - noise, latents[:, 1]])
    result = dci(latents, halves, estimator="lasso")
    assert result.disentanglement > 0.98
    assert result.per_factor == pytest.approx([1 - LOG2 / LOG3, 1], abs=0.02)


def test_lasso_agrees_with_scikit_learn_on_the_same_split():
    rng = np.random.default_rng(14)
    latents = rng.normal(size=(200, 2))
    codes = np.hstack([latents @ rng.normal(size=(2, 3)), rng.normal(size=(200, 2))]) + 3
    result = dci(latents, codes, estimator="lasso", test_fraction=0.25, seed=15)
    order = np.random.default_rng(15).permutation(200)
    test, train = order[:50], order[50:]
    mean, scale = codes[train].mean(axis=0), codes[train].std(axis=0)
    for k in range(2):
        model = LassoCV(cv=5).fit((codes[train] - mean) / scale, latents[train, k])
        expected = np.abs(model.coef_) / np.abs(model.coef_).sum()
        np.testing.assert_allclose(result.importance[:, k], expected, atol=1e-3)
        r2 = r2_score(latents[test, k], model.predict((codes[test] - mean) / scale))
        assert result.informativeness_per_factor[k] == pytest.approx(r2, abs=1e-3)


@pytest.mark.parametrize("estimator", ["trees", "lasso"])
def test_informativeness_is_held_out(estimator):
    """Thirty codes of noise and 60 rows: on rows seen, the fit would be near perfect.

    R² of noise is above 0.2 and an accuracy of 30 fair coins above 0.85 with probability below
    1e-3 each.
    """
    rng = np.random.default_rng(16)
    latents = np.column_stack([rng.normal(size=60), rng.integers(0, 2, 60)])
    result = dci(latents, rng.normal(size=(60, 30)), estimator=estimator)
    assert result.informativeness_per_factor[0] < 0.2
    assert result.informativeness_per_factor[1] < 0.85
    order = np.random.default_rng(0).permutation(60)
    test, train = order[:30], order[30:]
    most = np.bincount(latents[train, 1].astype(int)).argmax()
    assert result.baseline[0] == 0
    assert result.baseline[1] == accuracy_score(latents[test, 1], np.full(30, most))


def test_case_17_dci_says_what_one_single_code_or_factor_leaves_undefined():
    rng = np.random.default_rng(17)
    latents = mixed_factors(200, rng)
    one_code = dci(latents, latents[:, 0])
    assert math.isnan(one_code.completeness)
    assert one_code.undefined == {"completeness": "one single code"}
    assert one_code.informativeness_per_factor[0] > 0.97
    assert 0 <= one_code.disentanglement <= 1
    assert "no completeness: one single code" in str(one_code)
    one_factor = dci(latents[:, 0], latents)
    assert math.isnan(one_factor.disentanglement)
    assert one_factor.undefined == {"disentanglement": "one single factor"}
    assert one_factor.completeness > 0.95


# --- all three


@measures
def test_rotation_lowers_the_score_of_a_perfect_representation(measure):
    rng = np.random.default_rng(18)
    latents = rng.uniform(size=(1500, 3))
    turned = latents @ rotation(3, rng)
    assert score_of(measure(latents, turned)) < score_of(measure(latents, latents)) - 0.2


def test_case_18_a_full_design_has_scores_of_one():
    """All combinations of three classes and four, twelve times: nothing is left to chance."""
    latents = np.tile(list(itertools.product(range(3), range(4))), (12, 1))
    codes = np.column_stack([-5.0 * latents[:, 1], latents[:, 0]])
    assert mig(latents, codes).score == pytest.approx(1, abs=1e-12)
    separated = sap(latents, codes)
    np.testing.assert_array_equal(separated.best_code, [1, 0])
    np.testing.assert_array_equal(separated.scores[[1, 0], [0, 1]], [1, 1])
    result = dci(latents, codes)
    assert result.informativeness == 1
    assert result.disentanglement > 0.97


@measures
def test_case_17_a_constant_factor_is_nan_with_a_reason_and_left_out(measure):
    rng = np.random.default_rng(19)
    latents = mixed_factors(300, rng)
    constant = np.insert(latents, 1, 0.1, axis=1)
    result, without = measure(constant, latents), measure(latents, latents)
    assert list(result.excluded) == [1]
    assert "constant" in result.excluded[1]
    assert np.isnan(result.per_factor).tolist() == [False, True, False, False, False]
    assert score_of(result) == pytest.approx(score_of(without), abs=0.01)
    assert "1 of 5 factors excluded" in str(result)
    nothing = measure(np.ones((50, 2)), rng.normal(size=(50, 3)))
    assert math.isnan(score_of(nothing))
    assert len(nothing.excluded) == 2


@measures
def test_a_factor_constant_on_one_part_of_the_rows_does_not_crash(measure):
    latents = np.random.default_rng(20).normal(size=(60, 2))
    latents[:, 1] = 0
    latents[7, 1] = 1
    result = measure(latents, latents)
    assert np.isfinite(score_of(result)) or result.undefined


@few
@given(seeds, st.integers(6, 30), st.integers(1, 4), st.integers(1, 4))
def test_few_rows_of_any_shape_give_numbers_in_range_and_no_warnings(seed, n, n_factors, n_codes):
    rng = np.random.default_rng(seed)
    latents = np.where(rng.uniform(size=n_factors) < 0.5, rng.normal(size=(n, n_factors)), 0)
    latents += rng.integers(0, 3, size=(n, n_factors))
    codes = rng.normal(size=(n, n_codes)).round(int(rng.integers(0, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = [mig(latents, codes, bins=3, chance_repeats=2), sap(latents, codes)]
        scores = [result.per_factor for result in results]
        result = dci(latents, codes)
        scores += [result.per_factor, result.per_code, result.importance]
    for values in scores:
        assert np.all(np.isnan(values) | ((values >= -1e-12) & (values <= 1 + 1e-12)))


def test_kinds_are_inferred_from_whole_numbers_or_given():
    rng = np.random.default_rng(21)
    latents = np.column_stack(
        [
            rng.integers(0, 8, 200),
            rng.integers(0, 8, 200) / 2,
            rng.integers(0, 200, 200),
            rng.choice([-1.0, 1.0], 200),
        ]
    )
    expected = ("discrete", "continuous", "continuous", "discrete")
    for measure in (mig, sap):
        assert measure(latents, latents).factor_kinds == expected
        assert measure(latents, latents, factor_kinds="continuous").factor_kinds == (
            ("continuous",) * 4
        )
    given_kinds = ["discrete", "discrete", "continuous", "discrete"]
    halves = sap(latents, latents, factor_kinds=given_kinds)
    assert halves.baseline[1] == pytest.approx(1 / 8)
    assert halves.scores[1, 1] == 1


@measures
def test_kinds_that_do_not_fit_are_refused(measure):
    latents = np.random.default_rng(22).normal(size=(50, 2))
    with pytest.raises(ValueError, match="factor_kinds must be one of 'continuous', 'discrete'"):
        measure(latents, latents, factor_kinds="ordinal")
    with pytest.raises(ValueError, match="one kind for each of 2 factors, got 1"):
        measure(latents, latents, factor_kinds=["continuous"])
    with pytest.raises(ValueError, match="factor 1 is said to be discrete but each of its 50 rows"):
        measure(latents, latents, factor_kinds=["continuous", "discrete"])


@measures
def test_bad_input_is_refused_with_the_reason(measure):
    good = np.random.default_rng(23).normal(size=(100, 2))
    bad = good.copy()
    bad[3, 1], bad[4, 0] = np.nan, np.inf
    for arguments in ((bad, good), (good, bad), (torch.from_numpy(bad), good)):
        with pytest.raises(ValueError, match="2 NaN or infinite entries out of 200"):
            measure(*arguments)
    with pytest.raises(ValueError, match=r"as many rows, got (100 and 99|99 and 100)"):
        measure(good, good[:99])
    with pytest.raises(ValueError, match="one row a sample"):
        measure(good[None], good)
    with pytest.raises(TypeError, match="real numbers"):
        measure(good + 0j, good)
    with pytest.raises(TypeError, match="seed must be an integer"):
        measure(good, good, seed=None)


def test_options_and_sizes_are_checked():
    rng = np.random.default_rng(24)
    good = rng.normal(size=(40, 2))
    with pytest.raises(ValueError, match="binning must be one of 'equal-frequency', 'equal-width'"):
        mig(good, good, binning="kmeans")
    with pytest.raises(ValueError, match="bins must be an integer >= 2"):
        mig(good, good, bins=1)
    with pytest.raises(ValueError, match="chance_repeats must be an integer >= 1"):
        mig(good, good, chance_repeats=0)
    with pytest.raises(ValueError, match="estimator must be one of 'trees', 'lasso'"):
        dci(good, good, estimator="mlp")
    for measure in (sap, dci):
        with pytest.raises(ValueError, match="both need at least 2"):
            measure(good[:3], good[:3])
        with pytest.raises(ValueError, match="between 0 and 1"):
            measure(good, good, test_fraction=1.0)
    with pytest.raises(ValueError, match="'lasso' needs at least 10 rows to fit, got 5"):
        dci(good[:10], good[:10], estimator="lasso")
    rare = np.array([0] * 34 + [1] * 6)
    with pytest.raises(ValueError, match="'lasso' needs at least 5 rows of each class"):
        dci(rare, good, estimator="lasso")


@measures
def test_seeds_decide_and_inputs_are_left_as_they_were(measure):
    rng = np.random.default_rng(25)
    latents = mixed_factors(120, rng)
    codes = latents @ rng.normal(size=(4, 5))
    before = latents.copy(), codes.copy()

    def found(seed):
        result = measure(latents, torch.from_numpy(codes).requires_grad_(), seed=seed)
        return score_of(result), getattr(result, "chance_level", None)

    assert found(0) == found(0) == found(np.random.default_rng(0))
    assert found(0) != found(1)
    np.testing.assert_array_equal(latents, before[0])
    np.testing.assert_array_equal(codes, before[1])


@pytest.mark.parametrize("scale", [2.0**-600, 2.0**600])
@measures
def test_scores_see_no_scale_however_extreme(measure, scale):
    rng = np.random.default_rng(26)
    latents = rng.normal(size=(100, 2))
    codes = latents @ rng.normal(size=(2, 3))
    expected = score_of(measure(latents, codes))
    assert score_of(measure(latents, codes * scale)) == expected
    assert score_of(measure(latents * scale, codes)) == expected


def test_results_are_frozen_and_print_as_one_line():
    latents = np.tile(list(itertools.product(range(3), range(4))), (12, 1))
    measured = np.column_stack([latents, np.linspace(0, 1, 144)])
    assert str(mig(latents, latents, chance_repeats=1)).startswith(
        "MIG 1.000 (plug-in, 20 equal-frequency bins, n=144, chance 0."
    )
    assert str(sap(measured, latents[:, :1])).endswith(
        "(R² of 1 and balanced accuracy of 2 factors, fitted on 72 rows, measured on 72 others)"
    )
    assert str(dci(latents, latents)).endswith(
        "informativeness 1.000 (trees, accuracy of 2 factors, fitted on 72 rows, "
        "measured on 72 others)"
    )
    for result in (mig(latents, latents), sap(latents, latents), dci(latents, latents)):
        assert "\n" not in str(result)
        with pytest.raises(dataclasses.FrozenInstanceError):
            result.excluded = {}
