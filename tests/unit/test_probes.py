"""Probes: choices on validation only, rotation invariance, ties, adapters, intervals."""

from __future__ import annotations

import functools
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import softmax
from sklearn.decomposition import PCA, FastICA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline

from tutorials_lib import probes
from tutorials_lib._probing import hits
from tutorials_lib.probes import (
    FEATURES,
    CentroidProbe,
    ForestProbe,
    Labelled,
    LinearProbe,
    PCAFeatures,
    ProbeComparison,
    TipAdapter,
    TipAdapterF,
    compare_probes,
    features,
    few_shot_split,
    probe_records,
    zero_shot_accuracy,
)

few = settings(max_examples=20, deadline=None)
CLASSES, DIM, SOURCES = 4, 8, 5
MIXING = np.random.default_rng(99).normal(size=(SOURCES, DIM)) * [[3], [2], [1], [1], [0.5]]


def embeddings(n, seed, *, shift=0.0):
    """Unit vectors of n rows in 4 classes, told apart by two of five Laplace sources."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % CLASSES
    sources = rng.laplace(size=(n, SOURCES))
    sources[:, 0] += 2 * (y // 2) + shift
    sources[:, 1] += 2 * (y % 2)
    x = sources @ MIXING + 0.3 * rng.normal(size=(n, DIM))
    return x / np.linalg.norm(x, axis=1, keepdims=True), y


TRAIN = embeddings(400, 0)
TEST = embeddings(400, 1)
SPLIT = few_shot_split(TRAIN[1], shots=8, seed=0)


def few_shots(transformer=None):
    """Training and validation rows, transformed, as `fit` takes them."""
    X, y = TRAIN
    X = X if transformer is None else transformer.transform(X)
    return X[SPLIT[0]], y[SPLIT[0]], X[SPLIT[1]], y[SPLIT[1]]


def rotation(d, seed):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]


# --- Splits


@few
@given(
    seed=st.integers(0, 2**32 - 1),
    counts=st.lists(st.integers(5, 9), min_size=1, max_size=6),
    shots=st.integers(1, 3),
    validation_shots=st.integers(0, 2),
)
def test_splits_are_balanced_and_disjoint(seed, counts, shots, validation_shots):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)) * 7, counts))
    train, validation = few_shot_split(
        labels, shots=shots, validation_shots=validation_shots, seed=seed
    )
    for rows, number in ((train, shots), (validation, validation_shots)):
        np.testing.assert_array_equal(labels[rows], np.repeat(np.unique(labels), number))
    both = np.concatenate([train, validation])
    assert len(set(both)) == len(both)


def test_splits_follow_the_seed_and_nest():
    """The training rows of 2 shots are among those of 4, so that curves over shots are smooth."""
    y = TRAIN[1]
    first, again = (few_shot_split(torch.from_numpy(y), shots=4, seed=3) for _ in range(2))
    np.testing.assert_array_equal(np.concatenate(first), np.concatenate(again))
    assert set(few_shot_split(y, shots=2, seed=3)[0]) <= set(first[0])
    assert set(first[0]) != set(few_shot_split(y, shots=4, seed=4)[0])


def test_every_row_of_a_class_is_equally_likely():
    """6,000 draws of 2 from 10: χ² with 9 degrees; the seed is fixed, so no chance of failure."""
    rng = np.random.default_rng(0)
    drawn = [few_shot_split(np.zeros(10, int), shots=2, seed=rng)[0] for _ in range(3000)]
    counts = np.bincount(np.concatenate(drawn), minlength=10)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_validation_shots_are_as_many_as_shots_but_at_most_four():
    for shots, expected in ((1, 1), (2, 2), (4, 4), (16, 4)):
        assert len(few_shot_split(TRAIN[1], shots=shots, seed=0)[1]) == CLASSES * expected


def test_classes_with_too_few_rows_are_named():
    with pytest.raises(ValueError, match=r"need 4 rows of each class, but 1 of 2.*class b has 3"):
        few_shot_split(list("aaaabbb"), shots=2, seed=0)
    with pytest.raises(TypeError, match="integers or strings"):
        few_shot_split([0.5, 1.5], shots=1, seed=0)
    with pytest.raises(ValueError, match="shots must be an integer >= 1"):
        few_shot_split([0, 0], shots=0, seed=0)


# --- Choices are made on validation rows


def test_case_25_test_rows_cannot_influence_a_choice():
    """Nothing of a comparison but the accuracies depends on the test rows or their labels."""

    def run(test):
        return compare_probes(
            *TRAIN,
            source=test,
            features={"raw": features("raw"), "white": PCAFeatures(3, whiten=True)},
            probe={"l2": LinearProbe(), "tip": TipAdapter(np.eye(CLASSES, DIM), device="cpu")},
            seeds=2,
            progress=False,
        ).records

    X, y = TEST
    rng = np.random.default_rng(0)
    other = (rng.normal(size=(7, DIM)), rng.integers(CLASSES, size=7))
    for right, wrong in zip(run((X, y)), run(other), strict=True):
        assert right.chosen == wrong.chosen
        assert right.validation_accuracy == wrong.validation_accuracy


def test_case_25_scoring_changes_nothing():
    probe = LinearProbe().fit(*few_shots())
    before = (dict(probe.chosen), probe.coef_.copy())
    first = probe.score(*TEST)
    probe.score(TEST[0], np.roll(TEST[1], 1))
    assert probe.chosen == before[0] and probe.score(*TEST) == first
    np.testing.assert_array_equal(probe.coef_, before[1])


@pytest.mark.parametrize(
    "probe",
    [
        LinearProbe(Cs=[1e-3, 1.0, 1e3]),
        LinearProbe("l1", Cs=[0.1, 1.0, 10.0]),
        ForestProbe(depths=(1, 3), n_trees=10),
        CentroidProbe(n_kept=(1, 2, DIM)),
        TipAdapter(np.eye(CLASSES, DIM), alpha=(0, 1), beta=(1, 5), device="cpu"),
    ],
    ids=lambda probe: type(probe).__name__,
)
def test_the_choice_is_the_best_on_validation_rows(probe):
    """Against every candidate fitted alone."""
    name = {"C": "Cs", "depth": "depths", "components": "n_kept"}
    X, y, X_val, y_val = few_shots()
    probe.fit(X, y, X_val, y_val)
    assert len(probe.candidates) > 1
    for candidate in probe.candidates:
        options = {
            name.get(key, key): [value] if key in name else value
            for key, value in candidate.options.items()
        }
        alone = type(probe)(**{**probe.get_params(), **options}).fit(X, y, X_val, y_val)
        assert alone.score(X_val, y_val) == pytest.approx(candidate.accuracy)
    best = max(candidate.accuracy for candidate in probe.candidates)
    assert probe.validation_accuracy == best == pytest.approx(probe.score(X_val, y_val))


def test_ties_on_validation_go_to_the_lower_log_loss():
    X, y = np.array([[-1.0], [1.0]] * 4), np.array([0, 1] * 4)
    probe = LinearProbe(Cs=[1e-2, 1e2, 1e6]).fit(X, y, X, y)
    weak, strong, stronger = probe.candidates
    assert weak.accuracy == strong.accuracy == stronger.accuracy == 1
    assert weak.log_loss > strong.log_loss > stronger.log_loss > strong.log_loss - 0.01
    # What perfect separation still gains is not worth a weaker penalty.
    assert probe.chosen == {"C": 1e2}
    # One contradicted validation row far out: certainty is punished.
    with_outlier = LinearProbe(Cs=[1e-2, 1e2]).fit(X, y, np.r_[X, [[9.0]], [[9.0]]], np.r_[y, 0, 1])
    assert with_outlier.candidates[0].accuracy == with_outlier.candidates[1].accuracy
    assert with_outlier.chosen == {"C": 1e-2}
    # Without a log loss, the simplest wins.
    assert ForestProbe(depths=(5, 1), n_trees=5).fit(X, y, X, y).chosen == {"depth": 1}


# --- Linear probes


@pytest.mark.parametrize("classes", [2, CLASSES])
def test_l2_probe_minimises_the_penalised_loss(classes):
    """The gradient of ½‖W‖² + C Σ cross-entropy vanishes at the fit (softmax, or the logistic
    function for two classes, whose one weight vector is w₂ − w₁)."""
    X, y, X_val, y_val = few_shots()
    y, y_val = y % classes, y_val % classes
    probe = LinearProbe(Cs=[3.0], tol=1e-10).fit(X, y, X_val, y_val)
    residual = softmax(probe.scores(X), axis=1) - np.eye(classes)[y]
    gradient = 3.0 * residual.T @ X
    weights = probe.coef_ if classes > 2 else np.stack([-probe.coef_[1], probe.coef_[1]]) * 2
    np.testing.assert_allclose(weights, -gradient, atol=1e-3)
    np.testing.assert_allclose(residual.sum(axis=0), 0, atol=1e-3)


def test_l1_probe_is_sparse_and_optimal():
    """|gradient| is at most 1/C, and equal to it, against the sign, where a weight is not zero."""
    X, y, X_val, y_val = few_shots()
    C = 2.0
    probe = LinearProbe("l1", Cs=[C], tol=1e-8, max_iter=20000).fit(X, y, X_val, y_val)
    residual = softmax(probe.scores(X), axis=1) - np.eye(CLASSES)[y]
    gradient = residual.T @ X
    kept = probe.coef_ != 0
    assert 0 < kept.sum() < kept.size / 2
    assert np.abs(gradient).max() <= (1 + 1e-3) / C
    np.testing.assert_allclose(gradient[kept], -np.sign(probe.coef_[kept]) / C, rtol=1e-3)


@pytest.mark.parametrize("probe", [LinearProbe("l2"), LinearProbe("l1"), ForestProbe(n_trees=5)])
@pytest.mark.parametrize("shots", [1, 8])
def test_fitting_warns_of_nothing(probe, shots):
    """The name of scikit-learn's penalty changed; and it takes one-shot labels for a regression."""
    X, y = TRAIN
    train, validation = few_shot_split(y, shots=shots, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probe.fit(X[train], y[train], X[validation], y[validation])


def test_only_a_chosen_fit_that_has_not_converged_warns():
    with pytest.warns(ConvergenceWarning, match=r"the chosen fit, C=10, .* in 1 iterations"):
        probe = LinearProbe(Cs=[10.0], max_iter=1).fit(*few_shots())
    assert not probe.converged


def test_torch_and_half_precision_are_read():
    X, y, X_val, y_val = map(torch.from_numpy, few_shots())
    whole = LinearProbe(Cs=[1.0]).fit(X, y, X_val, y_val)
    half = LinearProbe(Cs=[1.0]).fit(X.half(), y, X_val.half(), y_val)
    np.testing.assert_allclose(half.coef_, whole.coef_, atol=1e-2)
    assert whole.coef_.shape == (CLASSES, DIM)


# --- Rotations


@pytest.mark.parametrize("seed", range(5))
def test_l2_probe_does_not_see_rotations(seed):
    """Same predictions and same choice of C: the penalty and the loss are both invariant."""
    Q = rotation(DIM, seed)
    X, y, X_val, y_val = few_shots()
    plain = LinearProbe(Cs=np.logspace(-2, 3, 6), tol=1e-9).fit(X, y, X_val, y_val)
    turned = LinearProbe(Cs=np.logspace(-2, 3, 6), tol=1e-9).fit(X @ Q, y, X_val @ Q, y_val)
    assert plain.chosen == turned.chosen
    np.testing.assert_allclose(turned.scores(TEST[0] @ Q), plain.scores(TEST[0]), atol=1e-3)
    np.testing.assert_array_equal(turned.predict(TEST[0] @ Q), plain.predict(TEST[0]))


def whitened_and_independent(make_ica):
    """PCA-whitening and PCA+FastICA to five components, fitted on all training rows."""
    white = features("PCA-whitening", SOURCES).fit(TRAIN[0])
    return white, make_ica().fit(TRAIN[0])


ICAS = {
    "ours": lambda: features("PCA+FastICA", SOURCES, seed=0),
    # scikit-learn's, as an independent reference.
    "scikit-learn": lambda: make_pipeline(
        PCA(SOURCES, svd_solver="full"),
        FastICA(whiten="unit-variance", whiten_solver="svd", random_state=0, max_iter=1000),
    ),
}


@pytest.mark.parametrize("make_ica", ICAS.values(), ids=ICAS)
def test_pca_ica_features_are_a_rotation_of_pca_whitened_features(make_ica):
    white, independent = whitened_and_independent(make_ica)
    z, s = white.transform(TEST[0]), independent.transform(TEST[0])
    Q = np.linalg.lstsq(z, s, rcond=None)[0]
    np.testing.assert_allclose(z @ Q, s, atol=1e-6)
    np.testing.assert_allclose(Q.T @ Q, np.eye(SOURCES), atol=1e-6)


@pytest.mark.parametrize("make_ica", ICAS.values(), ids=ICAS)
def test_l2_probe_gains_nothing_from_independence(make_ica):
    """PCA+FastICA and PCA-whitening: same C chosen on validation, same predictions."""
    fits = [
        (LinearProbe(tol=1e-9).fit(*few_shots(transformer)), transformer.transform(TEST[0]))
        for transformer in whitened_and_independent(make_ica)
    ]
    (white, z), (independent, s) = fits
    assert white.chosen == independent.chosen
    np.testing.assert_array_equal(white.predict(z), independent.predict(s))
    np.testing.assert_allclose(white.scores(z), independent.scores(s), atol=1e-2)


@pytest.mark.parametrize("make_ica", ICAS.values(), ids=ICAS)
@pytest.mark.parametrize(
    "probe",
    [LinearProbe("l1", Cs=[0.3]), ForestProbe(depths=[3]), CentroidProbe(n_kept=[2])],
    ids=["l1", "forest", "centroid"],
)
def test_other_probes_see_independence(probe, make_ica):
    """Two sources tell the classes apart: found as axes, they help where axes matter."""
    white, independent = whitened_and_independent(make_ica)
    scores = []
    for transformer in (white, independent):
        probe.fit(*few_shots(transformer))
        scores.append(probe.score(transformer.transform(TEST[0]), TEST[1]))
    assert scores[0] != scores[1]


def test_centroids_on_all_components_do_not_see_rotations():
    Q = rotation(DIM, 5)
    X, y, X_val, y_val = few_shots()
    plain = CentroidProbe(n_kept=[DIM]).fit(X, y, X_val, y_val)
    turned = CentroidProbe(n_kept=[DIM]).fit(X @ Q, y, X_val @ Q, y_val)
    np.testing.assert_array_equal(plain.predict(TEST[0]), turned.predict(TEST[0] @ Q))
    assert plain.score(*TEST) != CentroidProbe(n_kept=[2]).fit(X, y, X_val, y_val).score(*TEST)


def test_tip_adapter_gains_nothing_from_independence():
    """Its cache knows cosines only, and a rotation keeps them."""
    weights = class_means()
    adapters = [
        TipAdapter(weights, scale=3.0, alpha=5.0, beta=2.0, transform=transformer, device="cpu")
        for transformer in whitened_and_independent(ICAS["scikit-learn"])
    ]
    white, independent = (adapter.fit(*few_shots()).scores(TEST[0]) for adapter in adapters)
    np.testing.assert_allclose(white, independent, atol=1e-4)
    raw = TipAdapter(weights, scale=3.0, alpha=5.0, beta=2.0, device="cpu").fit(*few_shots())
    assert np.abs(raw.scores(TEST[0]) - white).max() > 0.1


# --- Ties


def test_case_22_a_constant_scorer_is_at_chance():
    """The first class does not win by argmax, whatever the probe."""
    assert hits(np.zeros((3, 4)), np.array([0, 1, 3])).tolist() == [0.25] * 3
    blind = np.ones((40, 3))
    y = np.arange(40) % CLASSES
    for probe in (
        LinearProbe("l1", Cs=[1e-6]),
        CentroidProbe(),
        ForestProbe(n_trees=5),
        TipAdapter(np.ones((CLASSES, 3)), device="cpu"),
    ):
        assert probe.fit(blind, y, blind, y).score(blind, y) == pytest.approx(1 / CLASSES)
    assert zero_shot_accuracy(blind, np.ones((CLASSES, 3)), np.zeros(40, int)) == 1 / CLASSES


def test_hits_by_hand():
    scores = np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 5.0, 5.0]])
    np.testing.assert_array_equal(hits(scores, np.array([0, 1, 2, 2])), [1, 0.5, 0, 0.5])


# --- Other classes, other rows


def test_among_leaves_other_classes_out():
    probe = LinearProbe().fit(*few_shots())
    X, y = TEST
    two = y < 2
    scores = probe.scores(X[two])[:, :2]
    assert probe.score(X[two], y[two], among=[1, 0]) == (scores.argmax(1) == y[two]).mean()
    assert probe.score(X[two], y[two], among=[1, 0]) > probe.score(X[two], y[two])
    with pytest.raises(ValueError, match="among holds 1 classes that the probe was not fitted on"):
        probe.score(X, y, among=[0, 9])
    with pytest.raises(ValueError, match="y holds 2 classes"):
        probe.score(X, y, among=[0, 1])


def test_labels_may_be_words_and_gaps():
    X, y, X_val, y_val = few_shots()
    words = np.array(["ant", "bee", "cat", "dog"])
    numbers = LinearProbe(Cs=[1.0]).fit(X, 10 * y - 5, X_val, 10 * y_val - 5)
    named = LinearProbe(Cs=[1.0]).fit(X, words[y], X_val, words[y_val])
    assert named.score(TEST[0], words[TEST[1]]) == numbers.score(TEST[0], 10 * TEST[1] - 5)
    assert set(named.predict(TEST[0])) <= set(words)


def test_large_test_sets_are_scored_in_parts():
    """The same accuracy as the mean over single rows."""
    probe = LinearProbe(Cs=[1.0]).fit(*few_shots())
    X, y = np.tile(TEST[0], (11, 1)), np.tile(TEST[1], 11)
    assert len(X) > 4096
    assert probe.score(X, y) == pytest.approx(probe.score(*TEST))
    assert probe.scores(X).shape == (len(X), CLASSES)


def test_rows_that_do_not_fit_are_refused():
    X, y, X_val, y_val = few_shots()
    with pytest.raises(NotFittedError, match="fit this LinearProbe"):
        LinearProbe().score(X, y)
    for arguments, message in (
        ((X, y, X_val[:, :3], y_val), "X has 8 columns and X_val has 3"),
        ((X, y[:-1], X_val, y_val), "y must hold one label for each of 32 rows, got 31"),
        ((X, y * 0, X_val, y_val), "at least two classes, y holds 1"),
        ((X, y, X_val, y_val + 1), "y_val holds 1 classes .* not fitted on: 4"),
        ((X * np.nan, y, X_val, y_val), "X must be finite"),
        ((X[0], y, X_val, y_val), r"X must have shape \(N, d\)"),
    ):
        with pytest.raises(ValueError, match=message):
            LinearProbe().fit(*arguments)
    with pytest.raises(TypeError, match="real numbers"):
        LinearProbe().fit(X.astype(str), y, X_val, y_val)
    with pytest.raises(ValueError, match="fitted on 8 columns, X has 2"):
        LinearProbe(Cs=[1.0]).fit(X, y, X_val, y_val).predict(X[:, :2])
    with pytest.raises(ValueError, match="penalty must be 'l2' or 'l1', got 'l3'"):
        LinearProbe("l3").fit(X, y, X_val, y_val)
    with pytest.raises(ValueError, match="Cs must be a number or several"):
        LinearProbe(Cs=[]).fit(X, y, X_val, y_val)


# --- Features


def test_pca_features_agree_with_scikit_learn():
    """Up to sign, and to the factor √(N/(N−1)) in whitening."""
    X = TRAIN[0]
    ours = PCAFeatures(4).fit(X).transform(X)
    theirs = PCA(4, svd_solver="full").fit(X).transform(X)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-10)
    white = PCAFeatures(4, whiten=True).fit(X).transform(X)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(4), atol=1e-10)
    np.testing.assert_allclose(white.mean(0), 0, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rank_is_found_not_assumed(dtype):
    """Fewer rows than columns, duplicated and constant columns; also far from the origin."""
    rng = np.random.default_rng(0)
    few_rows = rng.normal(size=(5, 20)).astype(dtype)
    assert PCAFeatures().fit(few_rows).transform(few_rows).shape == (5, 4)
    doubled = rng.normal(size=(50, 3)).astype(dtype)
    doubled = np.hstack([doubled, doubled, np.ones((50, 1), dtype)]) + dtype(100)
    white = PCAFeatures(whiten=True).fit(doubled)
    assert len(white.variances_) == 3
    np.testing.assert_allclose(np.cov(white.transform(doubled).T, bias=True), np.eye(3), atol=1e-4)
    with pytest.raises(ValueError, match="50 rows of 7 columns vary in 3 directions only"):
        PCAFeatures(4).fit(doubled)
    with pytest.raises(ValueError, match="vary in 0 directions only"):
        PCAFeatures().fit(np.ones((5, 2), dtype))


@pytest.mark.parametrize("name", FEATURES)
def test_features_by_name(name):
    made = features(name, 3, seed=1).fit(TRAIN[0])
    moved = made.transform(TEST[0])
    assert moved.shape == (len(TEST[0]), 3 if name.startswith("PCA") else DIM)
    if name not in ("raw", "PCA"):
        np.testing.assert_allclose(
            np.cov(made.transform(TRAIN[0]).T, bias=True), np.eye(moved.shape[1]), atol=1e-6
        )
    if name == "raw":
        np.testing.assert_array_equal(moved, TEST[0])


def test_unknown_features_are_refused():
    with pytest.raises(ValueError, match=r"one of raw, PCA, .* got 'ICA'"):
        features("ICA")
    with pytest.raises(ValueError, match="PCA-whitening needs n_components"):
        features("PCA-whitening")


# --- Centroids and forests


def test_centroids_take_the_columns_that_tell_the_classes_apart():
    """Column 3 carries the class, column 1 a little of it, and column 0 noise of large scale."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    X = rng.normal(size=(200, 5)) * [5, 1, 1, 1, 1] + np.outer(y, [0, 1.5, 0, 4, 0])
    probe = CentroidProbe().fit(X[:60], y[:60], X[60:100], y[60:100])
    assert list(probe.columns_[:2]) == [3, 1][: len(probe.columns_)]
    assert probe.score(X[100:], y[100:]) > 0.95
    assert [fit.options["components"] for fit in probe.candidates] == [1, 2, 4, 5]


def test_centroids_work_from_one_shot():
    X, y = TRAIN
    train, validation = few_shot_split(y, shots=1, seed=0)
    probe = CentroidProbe(n_kept=[DIM]).fit(X[train], y[train], X[validation], y[validation])
    nearest = ((TEST[0][:, None] - X[train]) ** 2).sum(2).argmin(1)
    np.testing.assert_array_equal(probe.predict(TEST[0]), nearest)
    with pytest.raises(ValueError, match="no number up to 8"):
        CentroidProbe(n_kept=[9]).fit(X[train], y[train], X[validation], y[validation])


def test_forests_follow_their_seed():
    first, again, other = (
        ForestProbe(depths=[4], n_trees=10, seed=seed).fit(*few_shots()).scores(TEST[0])
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


# --- Zero-shot and Tip-Adapter


def class_means():
    return np.stack([TRAIN[0][TRAIN[1] == label].mean(0) for label in range(CLASSES)])


def test_zero_shot_accuracy_by_hand():
    images = np.array([[2.0, 0.1], [0.1, 3.0], [1.0, 1.0], [-1.0, 0.0]])
    classes = np.array([[5.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    assert zero_shot_accuracy(images, classes, [0, 0, 1, 2]) == (1 + 0 + 0.5 + 1) / 4
    assert zero_shot_accuracy(images[:2], classes, [2, 1], among=[1, 2]) == 0.5
    assert zero_shot_accuracy(torch.tensor(images), torch.tensor(classes), [0, 1, 0, 2]) == 7 / 8
    for arguments, message in (
        ((images, classes, [0, 0, 1, 3]), "labels and among must be rows of classes, 0 to 2"),
        ((images, classes[:, :1], [0] * 4), "embed both with one model"),
        ((images * 0, classes, [0] * 4), "images holds 4 zero vectors"),
    ):
        with pytest.raises(ValueError, match=message):
            zero_shot_accuracy(*arguments)


def test_tip_adapter_scores_follow_the_formula():
    """Against loops in float64; the transform acts on the cache only."""
    weights, transform = class_means(), PCAFeatures(3, whiten=True).fit(TRAIN[0])
    X, y, X_val, y_val = few_shots()
    adapter = TipAdapter(
        weights, alpha=1.5, beta=3.0, scale=20.0, transform=transform, device="cpu"
    ).fit(X, y, X_val, y_val)

    def unit(rows):
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    keys, queries = unit(transform.transform(X)), unit(transform.transform(TEST[0]))
    expected = 20.0 * unit(TEST[0]) @ unit(weights).T
    for i, query in enumerate(queries):
        for key, label in zip(keys, y, strict=True):
            expected[i, label] += 1.5 * math.exp(-3.0 * (1 - query @ key))
    np.testing.assert_allclose(adapter.scores(TEST[0]), expected, atol=1e-4)
    assert adapter.chosen == {"alpha": 1.5, "beta": 3.0}


def test_without_its_cache_tip_adapter_is_zero_shot():
    weights = class_means()
    adapter = TipAdapter(weights, alpha=0.0, beta=1.0, device="cpu").fit(*few_shots())
    assert adapter.score(*TEST) == zero_shot_accuracy(TEST[0], weights, TEST[1])


def test_tip_adapter_is_no_worse_than_zero_shot_on_validation_rows():
    weights = np.random.default_rng(0).normal(size=(CLASSES, DIM))
    _, _, X_val, y_val = few_shots()
    adapter = TipAdapter(weights, scale=5.0, device="cpu").fit(*few_shots())
    assert adapter.chosen["alpha"] > 0
    assert adapter.validation_accuracy > zero_shot_accuracy(X_val, weights, y_val)


def test_training_the_keys_helps_and_follows_the_seed():
    """Weights that know nothing leave the work to the keys."""
    weights = np.random.default_rng(0).normal(size=(CLASSES, DIM))
    options = dict(alpha=(1.0, 5.0), beta=(2.0, 8.0), scale=1.0, device="cpu", batch_size=8)
    still = TipAdapter(weights, **{k: v for k, v in options.items() if k != "batch_size"})
    still.fit(*few_shots())
    X, y, X_val, y_val = few_shots()
    trained = [
        TipAdapterF(
            weights, **options, learning_rate=0.02, epochs=30, choose_epoch=False, seed=seed
        ).fit(X, y, X_val, y_val)
        for seed in (0, 0, 1)
    ]
    losses = [
        -np.log(softmax(adapter.scores(X), axis=1)[np.arange(len(y)), y]).mean()
        for adapter in (still, trained[0])
    ]
    assert losses[1] < losses[0]
    assert trained[0].chosen["epoch"] == 30
    np.testing.assert_array_equal(trained[0].scores(X_val), trained[1].scores(X_val))
    assert (trained[0].scores(X_val) != trained[2].scores(X_val)).any()


def test_the_epoch_is_chosen_on_validation_rows():
    """Training on wrong labels can only hurt, so the untrained keys are kept."""
    X, y, X_val, y_val = few_shots()
    adapter = TipAdapterF(
        class_means(), alpha=5.0, beta=5.0, scale=10.0, learning_rate=0.1, epochs=3, device="cpu"
    )
    wrong = (y + 1) % CLASSES
    # Validation rows that agree with the keys as they are.
    assert adapter.fit(X, wrong, X, wrong).chosen["epoch"] > 0
    validation = TipAdapter(class_means(), alpha=5.0, beta=5.0, scale=10.0, device="cpu")
    labels = validation.fit(X, wrong, X_val, y_val).predict(X_val)
    assert adapter.fit(X, wrong, X_val, labels).chosen["epoch"] == 0


def test_adapters_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match=r"weights must have shape \(4, 8\).*got \(3, 8\)"):
        TipAdapter(class_means()[:3], device="cpu").fit(*few_shots())
    with pytest.raises(ValueError, match="alpha must be a number or several"):
        TipAdapter(class_means(), alpha=(), device="cpu").fit(*few_shots())
    with pytest.raises(ValueError, match="alpha must be a finite number >= 0, got -1"):
        TipAdapter(class_means(), alpha=-1.0, device="cpu").fit(*few_shots())
    with pytest.raises(ValueError, match="alpha = 0 leaves the cache out"):
        TipAdapterF(class_means(), alpha=0.0, device="cpu").fit(*few_shots())
    with pytest.raises(FloatingPointError, match="not finite after epoch"):
        TipAdapterF(class_means(), alpha=1.0, beta=100.0, learning_rate=1e30, device="cpu").fit(
            *few_shots()
        )


# --- Comparisons


def fresh_comparison(**options):
    shifts = {"near": embeddings(200, 2, shift=0.5), "far": embeddings(200, 3, shift=2.0)}
    options = (
        dict(features=("raw", "PCA-whitening"), n_components=3, seeds=4, shots=(1, 4)) | options
    )
    return compare_probes(*TRAIN, source=TEST, shifts=shifts, progress=False, **options)


# The same comparison serves several tests.
small_comparison = functools.cache(fresh_comparison)


def test_records_hold_every_fit_and_the_mean_of_the_shifts():
    records = small_comparison(probe=("l2", "centroid")).records
    assert len(records) == 2 * 2 * 4 * 2
    assert len({(r.probe, r.features, r.shots, r.seed) for r in records}) == len(records)
    for record in records:
        assert list(record.accuracy) == ["source", "near", "far", "shift average"]
        assert record.accuracy["shift average"] == pytest.approx(
            (record.accuracy["near"] + record.accuracy["far"]) / 2
        )
        assert record.n_features == (DIM if record.features == "raw" else 3)


def test_a_record_is_what_its_parts_give():
    """Split, features and probe by hand; the pool is all training rows."""
    record = next(
        r
        for r in small_comparison().records
        if (r.features, r.shots, r.seed) == ("PCA-whitening", 4, 2)
    )
    X, y = TRAIN
    transform = PCAFeatures(3, whiten=True).fit(X).transform
    train, validation = few_shot_split(y, shots=4, seed=2)
    probe = LinearProbe().fit(
        transform(X[train]), y[train], transform(X[validation]), y[validation]
    )
    assert record.chosen == probe.chosen
    assert record.accuracy["source"] == probe.score(transform(TEST[0]), TEST[1])


def test_summary_agrees_with_scipy():
    comparison = small_comparison()
    rows = {(r.features, r.shots, r.test): r for r in comparison.summary()}
    values = {
        name: np.array(
            [r.accuracy["far"] for r in comparison.records if (r.features, r.shots) == (name, 4)]
        )
        for name in ("raw", "PCA-whitening")
    }
    row = rows["PCA-whitening", 4, "far"]
    mine = values["PCA-whitening"]
    assert (row.mean, row.sd, row.n_seeds) == (mine.mean(), mine.std(ddof=1), 4)
    np.testing.assert_allclose(
        (row.low, row.high), stats.t.interval(0.95, 3, mine.mean(), stats.sem(mine))
    )
    paired = stats.ttest_rel(mine, values["raw"])
    assert row.difference == pytest.approx((mine - values["raw"]).mean())
    np.testing.assert_allclose(
        (row.difference_low, row.difference_high), paired.confidence_interval(0.95)
    )
    assert rows["raw", 4, "far"].difference == 0
    assert "against raw" in repr(comparison)


def test_one_seed_has_no_interval_and_a_baseline_must_be_there():
    one = small_comparison(seeds=(7,), shots=(2,))
    assert all(r.seed == 7 for r in one.records)
    assert all(math.isnan(row.sd) and math.isnan(row.low) for row in one.summary())
    with pytest.raises(ValueError, match="no fit of l2 on 'FastICA' with 2 shots"):
        one.summary(baseline="FastICA")
    with pytest.raises(ValueError, match="confidence must lie between 0 and 1"):
        one.summary(confidence=95)


def test_a_comparison_can_be_taken_up_again():
    options = dict(
        source=TEST, features=("raw", "whitening"), seeds=3, probe=("l2", "centroid"),
        progress=False,
    )  # fmt: skip
    whole = list(probe_records(*TRAIN, **options))
    done = {(r.probe, r.features, r.shots, r.seed) for r in whole[:5]}
    rest = list(probe_records(*TRAIN, **options, done=done))
    assert rest == whole[5:]


def test_transformers_can_be_fitted_on_the_shots_or_elsewhere():
    on_shots = small_comparison(pool="shots", shots=(4,), seeds=1, features=("raw", "PCA"))
    X, y = TRAIN
    train, validation = few_shot_split(y, shots=4, seed=0)
    transform = PCAFeatures(3).fit(X[train]).transform
    probe = LinearProbe().fit(
        transform(X[train]), y[train], transform(X[validation]), y[validation]
    )
    assert on_shots.records[1].accuracy["source"] == probe.score(transform(TEST[0]), TEST[1])
    elsewhere = fresh_comparison(pool=embeddings(50, 9)[0], shots=(4,), seeds=1)
    assert elsewhere.records[0].accuracy == on_shots.records[0].accuracy
    assert elsewhere.records[1].accuracy != on_shots.records[1].accuracy
    with pytest.raises(ValueError, match="vary in 3 directions only"):
        small_comparison(pool="shots", shots=(1,), n_components=4)
    with pytest.raises(ValueError, match="pool must be 'train', 'shots' or embeddings"):
        small_comparison(pool="test")


def test_test_sets_of_some_classes_compete_among_these():
    X, y = TEST
    two = y < 2
    part = Labelled(X[two], y[two], among=[0, 1])
    options = dict(source=TEST, seeds=1, features=("raw",), progress=False)
    limited = compare_probes(*TRAIN, shifts={"two": part}, **options).records[0].accuracy
    free = compare_probes(*TRAIN, shifts={"two": part[:2]}, **options).records[0].accuracy
    assert limited["two"] > free["two"] and limited["source"] == free["source"]
    assert "shift average" not in limited  # of one


def test_adapters_get_features_for_their_cache():
    record = small_comparison(
        probe=TipAdapter(class_means(), scale=5.0, device="cpu"), shots=(4,), seeds=1
    ).records[1]
    X, y = TRAIN
    train, validation = few_shot_split(y, shots=4, seed=0)
    alone = TipAdapter(
        class_means(),
        scale=5.0,
        device="cpu",
        transform=PCAFeatures(3, whiten=True).fit(X),
    ).fit(X[train], y[train], X[validation], y[validation])
    assert record.chosen == alone.chosen
    assert record.accuracy["source"] == alone.score(*TEST)


def test_comparisons_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match=r"probe must be among l2, l1, .* got 'svm'"):
        small_comparison(probe="svm")
    with pytest.raises(ValueError, match="cannot be called 'source'"):
        compare_probes(*TRAIN, source=TEST, shifts={"source": TEST}, progress=False)
    with pytest.raises(ValueError, match="PCA-whitening needs n_components"):
        small_comparison(n_components=None)
    with pytest.raises(ValueError, match="rows of each class"):
        small_comparison(shots=(99,))


def test_everything_public_is_named():
    assert all(hasattr(probes, name) for name in probes.__all__)


# --- Units, however extreme


def clouds(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Three clouds around the axes, n rows each."""
    y = np.arange(3 * n) % 3
    return np.eye(3)[y] + 0.3 * np.random.default_rng(0).normal(size=(3 * n, 3)), y


@pytest.mark.parametrize("scale", [1e-200, 1e-20, 1e20, 1e200])
@pytest.mark.parametrize("name", ["forest", "tip", "tip-f"])
def test_probes_that_see_no_unit_see_none_however_extreme(name, scale):
    """Trees see an order and Tip-Adapter angles, which no power of ten changes."""
    x, y = clouds(40)
    weights = np.eye(3)
    make = {
        "forest": lambda: ForestProbe(n_trees=10),
        "tip": lambda: TipAdapter(weights, device="cpu"),
        "tip-f": lambda: TipAdapterF(weights, device="cpu", epochs=2),
    }[name]
    usual, scaled = make(), make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        usual.fit(x[:30], y[:30], x[30:60], y[30:60])
        scaled.fit(x[:30] * scale, y[:30], x[30:60] * scale, y[30:60])
        accuracy = scaled.score(x[60:] * scale, y[60:])
    assert accuracy == pytest.approx(usual.score(x[60:], y[60:]), abs=0.02)
    assert accuracy > 0.8
    assert scaled.chosen == usual.chosen


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_zero_shot_accuracy_sees_no_unit_however_extreme(scale):
    x, y = clouds(40)
    expected = zero_shot_accuracy(x, np.eye(3), y)
    assert zero_shot_accuracy(x * scale, np.eye(3) / scale, y) == expected > 0.8


@pytest.mark.parametrize("scale", [1e-150, 1e150])
@pytest.mark.parametrize("whiten", [True, False])
def test_principal_directions_are_those_of_any_unit(scale, whiten):
    x, _ = clouds(40)
    factor = 2.0 ** np.round(np.log2(scale))
    usual = PCAFeatures(whiten=whiten).fit(x)
    scaled = PCAFeatures(whiten=whiten).fit(x * factor)
    unit = 1.0 if whiten else factor
    np.testing.assert_allclose(scaled.transform(x * factor), usual.transform(x) * unit, rtol=1e-9)


def test_a_far_mean_does_not_hide_the_variance():
    x, _ = clouds(40)
    white = PCAFeatures(whiten=True).fit_transform(x + 1e8)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(3), atol=1e-6)
    with pytest.raises(ValueError, match="vary in 0 directions only"):
        PCAFeatures().fit(np.full((50, 3), 1e8 + 0.1))


def test_scores_that_leave_the_range_of_floats_are_an_error():
    x, y = clouds(40)
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="unit norm or unit"):
        CentroidProbe().fit(x[:30] * 1e200, y[:30], x[30:60] * 1e200, y[30:60])


# --- What users pass


def test_labels_may_be_objects_as_in_a_data_frame():
    x, y = clouds(40)
    names = np.array(["a", "b", "c"])[y]
    fitted = CentroidProbe().fit(x[:30], names[:30].astype(object), x[30:60], names[30:60])
    assert fitted.classes_.tolist() == ["a", "b", "c"]
    assert fitted.score(x[60:], names[60:].astype(object)) > 0.8
    assert CentroidProbe().fit(x[:30], y[:30].astype(object), x[30:60], y[30:60]).score(x, y) > 0.8
    for wrong in ([None, "a"], [True, False], [0.5, 1.5]):
        with pytest.raises(TypeError, match="must be integers or strings"):
            few_shot_split(np.array(wrong * 5, dtype=object), shots=1, seed=0)


def test_one_number_is_as_good_as_a_list_of_one():
    x, y = clouds(40)
    for make in (
        lambda one: LinearProbe(Cs=one(1.0)),
        lambda one: ForestProbe(depths=one(3), n_trees=5),
        lambda one: CentroidProbe(n_kept=one(2)),
    ):
        options = [
            make(one).fit(x[:30], y[:30], x[30:60], y[30:60]).chosen
            for one in (lambda number: number, lambda number: [number])
        ]
        assert options[0] == options[1]
        with pytest.raises(ValueError, match="to choose from, got none"):
            make(lambda number: []).fit(x[:30], y[:30], x[30:60], y[30:60])


def test_a_fit_that_fails_leaves_nothing_of_an_earlier_one():
    """Else new classes would be predicted by old weights."""
    x, y = clouds(40)
    probe = LinearProbe().fit(x[:30], y[:30], x[30:60], y[30:60])
    probe.set_params(penalty="l3")
    names = np.array(["x", "y", "z"])[y]
    with pytest.raises(ValueError, match="penalty"):
        probe.fit(x[:30], names[:30], x[30:60], names[30:60])
    with pytest.raises(NotFittedError):
        probe.predict(x)
    pca = PCAFeatures().fit(x)
    pca.set_params(n_components=9)
    with pytest.raises(ValueError, match="n_components=9"):
        pca.fit(x)
    with pytest.raises(NotFittedError):
        pca.transform(x)
    adapter = TipAdapterF(np.eye(3), device="cpu", epochs=0)
    with pytest.raises(ValueError, match="epochs"):
        adapter.fit(x[:30], y[:30], x[30:60], y[30:60])
    assert not hasattr(adapter, "_validation")


@pytest.mark.parametrize("name", ["raw", "whitening"])
def test_features_refuse_other_columns(name):
    x, _ = clouds(10)
    with pytest.raises(ValueError, match="fitted on 3 columns, X has 2"):
        features(name).fit(x).transform(x[:, :2])


def test_labels_that_do_not_compete_are_named_as_such():
    x, y = clouds(40)
    fitted = CentroidProbe().fit(x[:30], y[:30], x[30:60], y[30:60])
    with pytest.raises(ValueError, match="1 classes that are not in among: 2"):
        fitted.score(x, y, among=[0, 1])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"seeds": 0}, ValueError, "seeds must be an integer >= 1"),
        ({"seeds": []}, ValueError, "seeds must be a number or several"),
        ({"seeds": [5, 5]}, ValueError, "seeds must be distinct"),
        ({"seeds": True}, TypeError, "seeds must be an integer"),
        ({"shots": []}, ValueError, "shots must be a number or several"),
        ({"shots": (2, 2)}, ValueError, "shots must be distinct"),
        ({"features": ()}, ValueError, "features must name at least one"),
        ({"validation_shots": 0}, ValueError, "validation_shots must be an integer >= 1"),
        ({"source": np.zeros((9, 3))}, TypeError, r"source must be a pair \(vectors, labels\)"),
        ({"shifts": {"s": np.zeros((9, 3))}}, TypeError, "s must be a pair"),
        ({"probe": CentroidProbe}, TypeError, "or a probe such as"),
        ({"probe": None}, TypeError, "or a probe such as"),
    ],
)
def test_comparisons_name_what_makes_no_sense(change, error, message):
    x, y = clouds(40)
    options = {"source": (x[60:], y[60:]), "features": "raw", "seeds": 2, **change}
    with pytest.raises(error, match=message):
        compare_probes(x[:60], y[:60], progress=False, **options)


def test_numbers_of_numpy_and_single_shots_are_read():
    x, y = clouds(40)
    options = {"source": (x[60:], y[60:]), "features": "raw", "progress": False}
    options["probe"] = "centroid"
    given = compare_probes(x[:60], y[:60], seeds=np.int64(2), shots=2, **options)
    assert given.records == compare_probes(x[:60], y[:60], seeds=2, shots=(2,), **options).records
    assert "0 fits" in repr(ProbeComparison(()))
