"""FastICA: against scikit-learn, a plain loop and closed forms; its edges; its evidence."""

from __future__ import annotations

import math
import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import kstest, ortho_group
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.decomposition import FastICA as SklearnFastICA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from tutorials_lib import _ica_solver, _ica_whitening, _progress
from tutorials_lib._ica_solver import decorrelate, expectations, fixed_point
from tutorials_lib._ica_whitening import Rows, apply_whitening, whiten
from tutorials_lib.ica import (
    FastICA,
    PCAFastICA,
    center_by,
    group_means,
    negentropy,
    negentropy_null_level,
    recommend_pipeline,
    stability,
)

CPU = torch.device("cpu")


def sources(n: int, k: int, seed: int = 0) -> np.ndarray:
    """Return heavy-tailed, light-tailed, skewed and two-valued variables in turn, shape (n, k)."""
    rng = np.random.default_rng(seed)
    draws = (
        lambda: rng.laplace(size=n),
        lambda: rng.uniform(-1, 1, size=n),
        lambda: rng.exponential(size=n),
        lambda: rng.choice([-1, 1], size=n) + 0.3 * rng.normal(size=n),
    )
    s = np.stack([draws[j % 4]() for j in range(k)], axis=1)
    return (s - s.mean(axis=0)) / s.std(axis=0)


def mixtures(n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed + 1)
    s = sources(n, k, seed)
    return s @ rng.normal(size=(k, k)) + rng.normal(size=k), s


def matched(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the absolute correlations of columns of ``a`` with their partners in ``b``."""
    table = np.abs(np.corrcoef(a.T, b.T)[: a.shape[1], a.shape[1] :])
    return table[linear_sum_assignment(table, maximize=True)]


def on_sphere(n: int, d: int, seed: int) -> np.ndarray:
    points = np.random.default_rng(seed).normal(size=(n, d))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


# --- the contract of scikit-learn


@parametrize_with_checks([FastICA(progress=False), PCAFastICA(progress=False)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_contract(estimator, check, monkeypatch):
    # One check asks for this before it runs.
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


def test_names_of_features_pandas_free_output_and_pickling():
    x, _ = mixtures(500, 3)
    ica = FastICA(random_state=0).fit(x)
    np.testing.assert_array_equal(ica.get_feature_names_out(), ["fastica0", "fastica1", "fastica2"])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ica)).transform(x), ica.transform(x))
    piped = make_pipeline(PCA(), clone(ica)).fit_transform(x)
    assert matched(piped, ica.transform(x)).min() > 0.999


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fun": "tanh"}, "fun must be one of 'logcosh', 'exp', 'cube', got 'tanh'"),
        ({"algorithm": "symmetric"}, "algorithm"),
        ({"whiten": "arbitrary-variance"}, "whiten"),
        ({"whiten": 0}, "whiten"),
        ({"dtype": "float16"}, "dtype"),
        ({"tol": 0}, "tol"),
        ({"max_iter": 0}, "max_iter"),
        ({"batch_size": 0}, "batch_size"),
        ({"n_components": 0}, "n_components"),
        ({"device": "tpu"}, "device"),
    ],
)
def test_options_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        FastICA(**options).fit(mixtures(50, 2)[0])


def test_random_state_follows_scikit_learn():
    x = np.random.default_rng(0).normal(size=(300, 4))  # nothing to find: starts differ
    fits = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name, state in (("int", 3), ("state", np.random.RandomState(3)), ("other", 4)):
            fits[name] = FastICA(random_state=state, max_iter=3).fit(x).components_
        np.random.seed(3)  # noqa: NPY002 -- None means the global state, as in scikit-learn
        fits["global"] = FastICA(max_iter=3).fit(x).components_
    np.testing.assert_array_equal(fits["int"], fits["state"])
    np.testing.assert_array_equal(fits["int"], fits["global"])
    assert np.abs(fits["int"] - fits["other"]).max() > 0.1


# --- against references


@pytest.mark.parametrize("fun", ["logcosh", "exp", "cube"])
@pytest.mark.parametrize("algorithm", ["parallel", "deflation"])
def test_sources_are_those_of_scikit_learn(fun, algorithm):
    x, s = mixtures(4000, 4)
    ours = FastICA(fun=fun, algorithm=algorithm, random_state=0).fit_transform(x)
    theirs = SklearnFastICA(
        fun=fun, algorithm=algorithm, whiten="unit-variance", random_state=0
    ).fit_transform(x)
    # Deflation in another order passes errors of the first sources to other ones.
    assert matched(ours, theirs).min() > (0.999 if algorithm == "parallel" else 0.99)
    assert matched(ours, s).min() > 0.98


@pytest.mark.parametrize("fun", ["logcosh", "exp", "cube"])
@pytest.mark.parametrize("kept", [True, False])
def test_one_step_is_the_formula_written_as_a_loop(fun, kept, monkeypatch):
    """In float64, with the whitened data kept and with the whitening folded in."""
    g, slope = {
        "logcosh": (math.tanh, lambda y: 1 - math.tanh(y) ** 2),
        "exp": (
            lambda y: y * math.exp(-(y**2) / 2),
            lambda y: (1 - y**2) * math.exp(-(y**2) / 2),
        ),
        "cube": (lambda y: y**3, lambda y: 3 * y**2),
    }[fun]
    if not kept:
        monkeypatch.setattr(_ica_whitening, "WHITENED_BYTES", 0)
    x, _ = mixtures(60, 3)
    rows = Rows(x, CPU, 17)
    data = apply_whitening(rows, whiten(rows, torch.float64), torch.float64)
    assert (data.basis is None) == kept
    start = ortho_group.rvs(3, random_state=0)

    centred = x - x.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / 60)
    signs = np.sign(np.sum(whiten(rows, torch.float64).matrix * vectors.T[::-1], axis=1))
    z = centred @ (vectors[:, ::-1] * signs / np.sqrt(values[::-1]))
    expected = np.zeros((3, 3))
    for i, w in enumerate(start):
        for row in z:
            expected[i] += (row * g(w @ row) - slope(w @ row) * w) / 60
    moment, slopes = expectations(data, start, fun)
    np.testing.assert_allclose(moment - slopes[:, None] * start, expected, atol=1e-12)

    left, singular, right = np.linalg.svd(expected)
    assert singular.min() > 0
    step = fixed_point(data, start, fun=fun, tol=1e-4, max_iter=1).w
    np.testing.assert_allclose(step, left @ right, atol=1e-10)


def test_decorrelation_survives_a_singular_matrix():
    singular = np.outer([1.0, 2.0, 3.0], [1.0, 0.0, 1.0])
    np.testing.assert_allclose(
        decorrelate(singular) @ decorrelate(singular).T, np.eye(3), atol=1e-9
    )


@pytest.mark.parametrize("smallest", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8])
def test_decorrelation_is_orthonormal_however_uneven_the_rows(smallest):
    """And the nearest orthogonal matrix: with w = left · scales · right it is left · right."""
    left, right = (ortho_group.rvs(5, random_state=seed) for seed in (0, 1))
    result = decorrelate((left * np.geomspace(1, smallest, 5)) @ right)
    np.testing.assert_allclose(result @ result.T, np.eye(5), atol=1e-10)
    np.testing.assert_allclose(result, left @ right, atol=1e-15 / smallest + 1e-10)


def test_a_rotation_of_two_uniform_sources_is_found_to_the_root_of_n():
    """The error of the angle falls like n^{-1/2}.

    It has standard deviation 0.94/√n (over 60 and 200 samples of the two sizes), so the bound at
    n = 40,000 is over four of them. That of the ratio of 16 runs each is a quarter of its value 4.
    """
    angle, errors = 0.4, {}
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    for n in (2_500, 40_000):
        errors[n] = []
        for seed in range(16):
            s = np.random.default_rng(seed).uniform(-math.sqrt(3), math.sqrt(3), size=(n, 2))
            w = FastICA(random_state=seed, tol=1e-8).fit(s @ turn.T).components_ @ turn
            w = w[np.argmax(np.abs(w), axis=0)]
            errors[n].append(np.abs(w - np.diag(np.diag(w))).max())
    assert max(errors[40_000]) < 0.02
    ratio = np.sqrt(np.mean(np.square(errors[2_500])) / np.mean(np.square(errors[40_000])))
    assert 2 < ratio < 8


def test_sources_do_not_change_under_rotations_of_the_input_or_the_order_of_rows():
    x, _ = mixtures(9000, 5)
    s = FastICA(random_state=0, tol=1e-8).fit_transform(x)
    rotation = ortho_group.rvs(5, random_state=1)
    order = np.random.default_rng(2).permutation(len(x))
    rotated = FastICA(random_state=5, tol=1e-8).fit_transform(x @ rotation)
    permuted = FastICA(random_state=6, tol=1e-8).fit_transform(x[order])
    assert matched(rotated, s).min() > 1 - 1e-9
    assert matched(permuted, s[order]).min() > 1 - 1e-9
    # Sign and order are canonical: with the same features, the same components.
    np.testing.assert_allclose(permuted, s[order], atol=1e-4)


def test_units_of_the_columns_do_not_matter():
    """Neither for the rank nor for the sources, over eight orders of magnitude."""
    x, s = mixtures(3000, 4)
    for scale in (np.array([1e-4, 1.0, 1e4, 1e3]), 1e150, 1e-150):
        found = FastICA(random_state=0).fit_transform(x * scale)
        assert matched(found, s).min() > 0.98
        assert np.abs(found.std(axis=0) - 1).max() < 1e-6


def test_a_far_mean_does_not_cost_precision():
    x, _ = mixtures(3000, 3)
    near, far = FastICA(random_state=0).fit(x), FastICA(random_state=0).fit(x + 1e7)
    np.testing.assert_allclose(far.components_, near.components_, atol=1e-5)


# --- cases


def test_case_09_rank_is_detected_and_more_components_are_refused():
    rng = np.random.default_rng(0)
    base = sources(400, 3)
    degenerate = {
        "constant column": (np.hstack([base, np.full((400, 1), 1e6 + 0.1)]), 3),
        "duplicated column": (np.hstack([base, base[:, :1]]), 3),
        "sum of columns": (np.hstack([base, base[:, :2].sum(axis=1, keepdims=True)]), 3),
        "fewer samples than features": (rng.laplace(size=(6, 20)), 5),
        "two rows": (rng.normal(size=(2, 3)), 1),
    }
    for dtype in (np.float64, np.float32):
        for name, (x, rank) in degenerate.items():
            x = x.astype(dtype)
            with pytest.raises(ValueError, match=rf"n_components={rank + 1} .* in {rank} of"):
                FastICA(rank + 1).fit(x)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                ica = FastICA(random_state=0).fit(x)
            assert ica.components_.shape == (rank, x.shape[1]), name
            assert np.isfinite(ica.components_).all() and np.isfinite(ica.transform(x)).all(), name
            np.testing.assert_allclose(
                ica.inverse_transform(ica.transform(x)), x, rtol=1e-5, atol=1e-4, err_msg=name
            )
    with pytest.raises(ValueError, match="rank 0: its rows are equal"):
        FastICA().fit(np.ones((3, 4)) * 0.1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [None, 3])
def test_case_10_unit_variance_identity_covariance_and_the_two_maps(dtype, k):
    x = mixtures(5000, 6)[0].astype(dtype)
    ica = FastICA(k, random_state=0).fit(x)
    s = ica.transform(x)
    assert s.dtype == dtype
    precision = 1e-5 if dtype == np.float32 else 1e-10
    np.testing.assert_allclose(s.std(axis=0, dtype=float), 1, atol=precision)
    np.testing.assert_allclose(np.cov(s.T, bias=True), np.eye(s.shape[1]), atol=precision)
    np.testing.assert_allclose(s, (x - ica.mean_) @ ica.components_.T, atol=precision)
    np.testing.assert_allclose(ica.components_ @ ica.mixing_, np.eye(s.shape[1]), atol=1e-10)
    np.testing.assert_allclose(ica.mixing_, np.linalg.pinv(ica.components_), atol=1e-9)
    if k is None:
        np.testing.assert_allclose(ica.inverse_transform(s), x, atol=50 * precision)


def test_case_11_stability_is_high_on_sources_and_low_where_there_are_none():
    """Although the fixed point may well converge on the sphere.

    The score of nothing has mean 0 and, here, standard deviation 0.12 (over 20 samples): the bound
    is three of them.
    """
    with_sources = stability(mixtures(4000, 6)[0], seeds=3)
    assert with_sources.score > 0.95 and with_sources.per_component.min() > 0.9
    assert with_sources.n_beyond_null == 6
    normal = stability(np.random.default_rng(0).normal(size=(4000, 6)), seeds=3, max_iter=50)
    assert normal.score < 0.35
    assert normal.n_beyond_null == 0  # by chance one is: probability 0.05 or less
    sphere = stability(on_sphere(4000, 6, seed=1), seeds=3, max_iter=50)
    assert sphere.score < 0.35
    assert sphere.n_converged > 0
    assert "chance" in repr(sphere)


def test_case_11_different_seeds_agree_on_one_normal_sample_which_is_why_halves_are_used():
    """Two dimensions have one optimum of the sample; every start finds it."""
    x = np.random.default_rng(3).normal(size=(200, 2))
    fits = [FastICA(random_state=seed, tol=1e-8).fit_transform(x) for seed in range(4)]
    assert min(matched(fits[0], other).min() for other in fits[1:]) > 0.999
    assert stability(x, seeds=20).score < 0.5


def test_case_11_stability_names_single_components():
    """Three sources among three normal variables: three are found again."""
    x = np.hstack([sources(6000, 3), np.random.default_rng(9).normal(size=(6000, 3))])
    result = stability(x @ ortho_group.rvs(6, random_state=0), seeds=3, max_iter=50)
    np.testing.assert_array_equal(np.sort(result.per_component) > 0.9, [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(result.negentropy > result.null_level, result.per_component > 0.9)
    # Sorted by how far from normal they are, so the sources come first.
    assert result.per_component[:3].min() > 0.9


def test_case_12_float32_and_float64_find_the_same_components_with_sign_and_order():
    x, _ = mixtures(6000, 8)
    scale = np.geomspace(1, 1e-3, 8)  # a spectrum as that of embeddings
    x = (x @ ortho_group.rvs(8, random_state=0)) * scale + 1
    double = FastICA(random_state=0).fit(x)
    single = FastICA(random_state=0).fit(x.astype(np.float32))
    s, t = double.transform(x), single.transform(x)
    np.testing.assert_allclose(s, t, atol=5e-3)
    forced = FastICA(random_state=0, dtype="float32").fit(x)
    np.testing.assert_allclose(forced.transform(x), s, atol=5e-3)


def test_case_12_sign_and_order_are_as_documented_and_survive_a_perturbation():
    x, _ = mixtures(5000, 6)
    ica = FastICA(random_state=0).fit(x)
    weights = np.linspace(1, 0.5, 6)[:, None]
    assert ((weights * ica.mixing_**3).sum(axis=0) > 0).all()
    assert (np.diff(np.abs(ica.nongaussianity_)) <= 0).all()
    s = ica.transform(x)
    tanh = np.tanh(s)
    gap = (s * tanh).mean(axis=0) - (1 - tanh**2).mean(axis=0)
    np.testing.assert_allclose(ica.nongaussianity_, gap, atol=1e-3)
    noise = 1e-7 * np.random.default_rng(1).normal(size=x.shape)
    np.testing.assert_allclose(FastICA(random_state=0).fit(x + noise).transform(x), s, atol=1e-3)
    # A tie of large entries, as in a rotation by 45 degrees, is broken by the earlier one.
    turn = np.array([[1, -1], [1, 1]]) / math.sqrt(2)
    square = np.random.default_rng(0).uniform(-1, 1, size=(5000, 2)) @ turn.T
    for seed in range(4):
        mixing = FastICA(random_state=seed).fit(square).mixing_
        assert (mixing[0] > 0).all()


def test_case_13_modality_is_a_source_of_stacked_embeddings_until_each_is_centred():
    rng = np.random.default_rng(0)
    shared = rng.laplace(size=(2000, 8))
    images, texts = shared, shared + 0.3 * rng.normal(size=shared.shape)
    mix = rng.normal(size=(8, 8))
    x = np.vstack([images @ mix, texts @ mix + 4 * rng.normal(size=8)])
    modality = np.repeat(["image", "text"], 2000)
    is_text = modality == "text"

    def with_modality(values):
        s = FastICA(random_state=0).fit_transform(values)
        return np.abs(np.corrcoef(s.T, is_text)[-1, :-1]).max()

    assert with_modality(x) > 0.9
    centred = center_by(x, modality)
    assert with_modality(centred) < 1e-8
    np.testing.assert_allclose(centred[is_text].mean(axis=0), 0, atol=1e-12)
    advice = recommend_pipeline(x, modality=modality)
    assert advice.pipeline == "FastICA"
    assert advice.measured["modality_correlation"] > 0.9
    assert any("center_by" in reason for reason in advice.reasons)


def test_case_14_extra_memory_does_not_grow_with_the_rows(monkeypatch):
    """What is allocated beside X, 8 and 16 MB here, once whitened data are too many to be kept."""
    monkeypatch.setattr(_ica_whitening, "WHITENED_BYTES", 2**18)
    monkeypatch.setattr(_ica_solver, "PART_BYTES", 2**18)
    monkeypatch.setitem(_ica_whitening.CHUNK_BYTES, "cpu", 2**16)
    x = np.random.default_rng(0).laplace(size=(512_000, 8)).astype(np.float32)
    for rows in (x[:256_000], x):
        tracemalloc.start()
        ica = FastICA(random_state=0, max_iter=20, progress=False).fit(rows)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert ica.converged_
        assert peak < 4e6


def test_case_14_folded_and_kept_whitening_agree(monkeypatch):
    x, _ = mixtures(9000, 5)
    kept = {k: FastICA(k, random_state=0, tol=1e-8).fit(x) for k in (5, 3)}
    monkeypatch.setattr(_ica_whitening, "WHITENED_BYTES", 0)
    for k, ica in kept.items():
        folded = FastICA(k, random_state=0, tol=1e-8, batch_size=100).fit(x)
        np.testing.assert_allclose(folded.transform(x), ica.transform(x), atol=1e-4)


def test_case_14_an_interrupt_leaves_an_unfitted_estimator_that_can_be_fitted(monkeypatch):
    x, _ = mixtures(3000, 3)
    ica = FastICA(random_state=0).fit(x)
    before = ica.components_
    calls = []

    def interrupt(*args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return expectations(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(_ica_solver, "expectations", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ica.fit(x)
    with pytest.raises(NotFittedError):
        ica.transform(x)
    assert not hasattr(ica, "components_")
    np.testing.assert_array_equal(ica.fit(x).components_, before)


def test_case_14_progress_appears_in_long_fits_and_can_be_switched_off(monkeypatch, capsys):
    x, _ = mixtures(500, 3)
    FastICA(random_state=0).fit(x)
    assert "FastICA" not in capsys.readouterr().err  # a short fit stays silent
    monkeypatch.setattr(_progress, "DELAY", 0)
    FastICA(random_state=0).fit(x)
    shown = capsys.readouterr().err
    assert "pass" in shown and "change" in shown
    FastICA(random_state=0, progress=False).fit(x)
    assert capsys.readouterr().err == ""


# --- other promises


def test_the_warm_start_saves_passes_over_all_rows_and_ends_at_their_fixed_point(monkeypatch):
    x, _ = mixtures(40_000, 8)
    warm = FastICA(random_state=0, tol=1e-8).fit(x)
    monkeypatch.setattr(_ica_solver, "FEWEST_ROWS", 10**9)
    cold = FastICA(random_state=0, tol=1e-8).fit(x)
    assert warm.n_iter_ < cold.n_iter_
    np.testing.assert_allclose(warm.transform(x), cold.transform(x), atol=1e-4)


def test_the_warning_says_what_still_moves():
    x = np.random.default_rng(0).normal(size=(1000, 5))
    with pytest.warns(ConvergenceWarning, match=r"max_iter=3 passes.*of 5 components"):
        ica = FastICA(random_state=0, max_iter=3).fit(x)
    assert not ica.converged_ and ica.n_iter_ == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        good = FastICA(random_state=0).fit(mixtures(2000, 3)[0])
    assert good.converged_ and good.n_iter_ < 200


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_give_tensors(dtype):
    x = mixtures(2000, 3)[0]
    tensor = torch.from_numpy(x).to(dtype).requires_grad_(True)
    ica = FastICA(random_state=0).fit(tensor)
    s = ica.transform(tensor)
    expected = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    assert isinstance(s, torch.Tensor) and s.dtype == expected and not s.requires_grad
    assert isinstance(ica.inverse_transform(s), torch.Tensor)
    reference = ica.transform(tensor.detach().to(torch.float64).numpy())
    np.testing.assert_allclose(s.numpy(), reference, atol=1e-5)
    half = x.astype(np.float16)
    assert FastICA(random_state=0).fit_transform(half).dtype == np.float32


def test_rows_on_a_device_are_read_as_rows_of_an_array_are():
    """The path of tensors that are not on the CPU, run on the CPU."""
    x, _ = mixtures(700, 4)
    array, tensor = Rows(x, CPU, 100), Rows(torch.from_numpy(x), CPU, 100)
    first, second = whiten(array, torch.float64), whiten(tensor, torch.float64)
    np.testing.assert_allclose(first.matrix, second.matrix, atol=1e-12)
    w = ortho_group.rvs(4, random_state=0)
    for data in (array, tensor):
        values = apply_whitening(data, first, torch.float64)
        moment, _ = expectations(values, w, "logcosh")
        sample = values.sample(np.array([5, 2]), torch.float64)
        if data is array:
            expected, chosen = moment, sample
    np.testing.assert_allclose(moment, expected, atol=1e-12)
    np.testing.assert_allclose(sample, chosen, atol=1e-12)


def test_white_data_need_no_whitening_and_others_are_refused():
    x, _ = mixtures(3000, 3)
    white = FastICA(random_state=0).fit(x)
    z = (x - white.mean_) @ white.whitening_.T
    ica = FastICA(whiten=False, random_state=1).fit(z)
    assert matched(ica.transform(z), white.transform(x)).min() > 0.999
    np.testing.assert_allclose(ica.components_ @ ica.components_.T, np.eye(3), atol=1e-10)
    with pytest.raises(ValueError, match="identity"):
        FastICA(whiten=False).fit(x)
    with pytest.raises(ValueError, match="leaves all 3 dimensions"):
        FastICA(2, whiten=False).fit(z)


def test_wrong_data_are_refused():
    ica = FastICA(random_state=0).fit(mixtures(200, 3)[0])
    with pytest.raises(ValueError, match="features"):
        ica.transform(torch.zeros(4, 2))
    with pytest.raises(ValueError, match=r"shape \(n, 3\)"):
        ica.inverse_transform(np.zeros((4, 2)))
    with pytest.raises(ValueError, match=r"NaN|infinite"):
        FastICA().fit(torch.full((5, 2), torch.nan))


# --- PCA first


def test_pca_then_fastica_is_fastica_on_the_leading_components():
    """The identity that the docstring states, also for scikit-learn's PCA, whitened or not."""
    x, _ = mixtures(5000, 6)
    one = FastICA(3, random_state=0, tol=1e-8).fit(x)
    two = PCAFastICA(3, random_state=0, tol=1e-8).fit(x)
    np.testing.assert_array_equal(two.components_, one.components_)
    for whitened in (False, True):
        scores = PCA(3, whiten=whitened).fit_transform(x)
        steps = FastICA(random_state=0, tol=1e-8).fit_transform(scores)
        assert matched(steps, two.transform(x)).min() > 1 - 1e-9


def test_pca_share_of_variance_is_scikit_learns():
    x, _ = mixtures(2000, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours = PCAFastICA(0.9, random_state=0).fit(x)
    theirs = PCA(0.9).fit(x)
    assert ours.n_components_ == theirs.n_components_
    np.testing.assert_allclose(
        ours.explained_variance_ratio_, theirs.explained_variance_ratio_, atol=1e-10
    )
    for wrong in (1.5, 0.0, None):
        with pytest.raises(ValueError, match="n_components"):
            PCAFastICA(wrong).fit(x)


# --- evidence


def test_negentropy_of_normal_variables_is_exponential_with_mean_one_over_n():
    """n·J of 2,000 samples against Exp(1) (Kolmogorov–Smirnov, error probability 1e-3)."""
    n = 2000
    values = negentropy(np.random.default_rng(0).normal(size=(n, 2000)))
    assert kstest(n * values, "expon").pvalue > 1e-3
    level = negentropy_null_level(n, alpha=0.05)
    assert (values > level).mean() == pytest.approx(0.05, abs=0.02)
    assert negentropy_null_level(n, 10) == pytest.approx(math.log(200) / n)


def test_negentropy_in_closed_form_and_invariant():
    """For signs ±1 both moments are known; scale, sign and mean do not matter."""
    signs = np.array([1.0, -1.0] * 500)
    even = 24 / (16 * math.sqrt(3) - 27) * (math.exp(-0.5) - math.sqrt(0.5)) ** 2
    assert negentropy(signs)[0] == pytest.approx(even)
    skewed = np.random.default_rng(0).exponential(size=(1000, 1))
    assert negentropy(5 - 3e4 * skewed) == pytest.approx(negentropy(skewed))
    assert negentropy(np.ones(10))[0] == 0


def test_means_of_groups_can_be_those_of_other_rows_and_tensors_stay_tensors():
    x = torch.tensor([[1.0, 0.0], [3.0, 2.0], [10.0, 10.0]])
    labels = [0, 0, 1]
    means = group_means(x, labels)
    np.testing.assert_array_equal(means[0], [2, 1])
    new = center_by(x[:1], [1], means=means)
    assert isinstance(new, torch.Tensor)
    np.testing.assert_array_equal(new, [[-9, -10]])
    with pytest.raises(ValueError, match="no entry for the label 2"):
        center_by(x[:1], [2], means=means)
    with pytest.raises(ValueError, match="one label a row"):
        center_by(x, [0, 1])


def test_recommendation_for_each_kind_of_embeddings():
    rng = np.random.default_rng(0)
    all_dimensions = recommend_pipeline(mixtures(4000, 5)[0])
    assert (all_dimensions.pipeline, all_dimensions.k) == ("FastICA", 5)
    assert all_dimensions.measured["radial_ratio"] == pytest.approx(1, abs=0.2)

    few = sources(4000, 5) @ rng.normal(size=(5, 20)) + 0.05 * rng.normal(size=(4000, 20))
    leading = recommend_pipeline(few, max_iter=40)
    assert (leading.pipeline, leading.k) == ("PCA+FastICA", 5)
    assert leading.measured["beyond_noise"] == 5

    sphere = recommend_pipeline(on_sphere(4000, 6, seed=3), max_iter=40)
    assert (sphere.pipeline, sphere.k) == ("neither", None)
    assert sphere.measured["norm_cv"] < 1e-6 and sphere.measured["radial_ratio"] < 0.05
    assert "sphere" in repr(sphere)
    with pytest.raises(ValueError, match="two different labels"):
        recommend_pipeline(few, modality=np.zeros(4000))


def test_too_few_rows_to_halve_are_named():
    with pytest.raises(ValueError, match="halves of 20 rows"):
        stability(np.random.default_rng(0).normal(size=(20, 15)), max_iter=5)
    with pytest.raises(ValueError, match="at least 4 rows"):
        stability(np.zeros((3, 2)))


# --- Units, however extreme


@pytest.mark.parametrize("decades", [4, 8, 12, 20])
def test_case_10_sources_are_white_whatever_the_units_of_the_columns(decades):
    """Columns that differ by up to 40 orders of magnitude, as units do that nobody has chosen."""
    x, s = mixtures(3000, 4)
    y = x * 10.0 ** np.array([decades, -decades, 0, decades / 2])
    ica = FastICA(random_state=0, progress=False).fit(y)
    found = ica.transform(y)
    assert ica.converged_
    np.testing.assert_allclose(np.cov(found.T, bias=True), np.eye(4), atol=1e-9)
    assert matched(found, s).min() > 0.98
    np.testing.assert_allclose((ica.inverse_transform(found) - y) / y.std(axis=0), 0, atol=1e-9)


@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_no_unit_is_too_large_or_too_small(scale):
    x, s = mixtures(3000, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ica = PCAFastICA(0.9999, random_state=0, progress=False).fit(x * scale)
        plain = PCAFastICA(0.9999, random_state=0, progress=False).fit(x)
        np.testing.assert_allclose(
            ica.explained_variance_ratio_, plain.explained_variance_ratio_, rtol=1e-9
        )
        np.testing.assert_allclose(negentropy(s * scale), negentropy(s), rtol=1e-9)
        tested = recommend_pipeline(x * scale, seeds=1, progress=False)
    usual = recommend_pipeline(x, seeds=1, progress=False)
    assert (tested.pipeline, tested.k) == (usual.pipeline, usual.k)
    for name, value in usual.measured.items():
        assert tested.measured[name] == pytest.approx(value, rel=1e-3), name


def test_negentropy_of_a_column_that_only_rounding_varies_is_zero():
    columns = np.stack([np.full(n_rows := 1001, value) for value in (0.1, 1e9 + 0.1, 0.0)], 1)
    columns[: n_rows // 2] *= 1 + 2e-16
    np.testing.assert_array_equal(negentropy(columns), 0)


# --- What users pass


def test_rows_may_be_lists():
    x, _ = mixtures(200, 3)
    labels = ["a", "b"] * 100
    by_list, by_array = group_means(x.tolist(), labels), group_means(x, labels)
    for label, mean in by_array.items():
        np.testing.assert_array_equal(by_list[label], mean)
    given = recommend_pipeline(x.tolist(), seeds=1, progress=False)
    assert given.measured == recommend_pipeline(x, seeds=1, progress=False).measured


def test_labels_that_name_no_groups_are_refused():
    x, _ = mixtures(6, 2)
    with pytest.raises(TypeError, match="of one type, got NoneType, str"):
        center_by(x, [None, "a"] * 3)
    with pytest.raises(ValueError, match="must not be NaN, got 3"):
        center_by(x, [np.nan, 1.0] * 3)
    with pytest.raises(ValueError, match=r"means\['a'\] must have shape \(2,\)"):
        center_by(x, ["a"] * 6, means={"a": np.zeros(3)})
    with pytest.raises(ValueError, match=r"no entry for the label 'a'; it has \['b', 1\]"):
        center_by(x, ["a"] * 6, means={"b": 0.0, 1: 1.0})


def test_a_modality_that_no_row_is_left_of_is_named():
    x, _ = mixtures(500, 2)
    labels = ["text"] * 499 + ["image"]
    with pytest.raises(ValueError, match="of the modality 'text'; raise max_rows"):
        recommend_pipeline(x, modality=labels, max_rows=4, seeds=1, progress=False)


def test_imaginary_parts_are_not_dropped():
    x, _ = mixtures(100, 2)
    ica = FastICA(random_state=0, progress=False, max_iter=1000).fit(x)
    for sources in (x + 1j, torch.tensor(x) + 1j):
        with pytest.raises(ValueError, match="Complex data not supported"):
            ica.inverse_transform(sources)


@pytest.mark.parametrize("alpha", [1.0, 2.0, 0.0])
def test_a_level_has_a_probability(alpha):
    with pytest.raises(ValueError, match="alpha"):
        negentropy_null_level(100, alpha=alpha)
