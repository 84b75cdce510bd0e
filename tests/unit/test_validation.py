"""The shared argument checks say what was given and what is allowed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tutorials_lib._validation import (
    as_generator,
    check_finite,
    check_integer,
    check_positive,
    resolve_device,
)


@pytest.mark.parametrize("make", [np.array, torch.tensor, list])
def test_non_finite_entries_are_counted(make):
    check_finite("x", make([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"x must be finite, got 2 .* out of 3"):
        check_finite("x", make([1.0, float("nan"), float("inf")]))


def test_text_is_not_a_number():
    with pytest.raises(TypeError, match="x must hold numbers"):
        check_finite("x", ["a"])


@pytest.mark.parametrize("value", [1, 1.5, np.float32(1.5), torch.tensor(1.5), np.array(2)])
def test_positive_numbers_come_back_as_floats(value):
    result = check_positive("tau", value)
    assert type(result) is float
    assert result == float(value)


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf")])
def test_non_positive_numbers_are_refused(value):
    with pytest.raises(ValueError, match="tau must be a finite number > 0, got"):
        check_positive("tau", value)


def test_zero_is_allowed_on_request():
    assert check_positive("tau", 0, allow_zero=True) == 0.0
    with pytest.raises(ValueError, match=">= 0, got -1"):
        check_positive("tau", -1, allow_zero=True)


@pytest.mark.parametrize("value", [True, None, "1", [1.0], torch.ones(2)])
def test_positive_refuses_what_is_not_a_number(value):
    with pytest.raises(TypeError, match="tau must be a real number"):
        check_positive("tau", value)


@pytest.mark.parametrize("value", [True, 1.0, None, "3"])
def test_integer_refuses_other_types(value):
    with pytest.raises(TypeError, match="n must be an integer"):
        check_integer("n", value, 0)


def test_integer_bounds():
    assert check_integer("n", np.int32(3), 3) == 3
    with pytest.raises(ValueError, match="n must be an integer >= 3, got 2"):
        check_integer("n", 2, 3)


def test_generator_leaves_global_state_alone_and_is_passed_through():
    before = torch.get_rng_state()
    first, second = as_generator(7), as_generator(7)
    assert torch.equal(torch.rand(3, generator=first), torch.rand(3, generator=second))
    assert as_generator(first) is first
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("seed", [None, True, 1.0, "0"])
def test_generator_refuses_other_seeds(seed):
    with pytest.raises(TypeError, match=r"seed must be an integer or a torch\.Generator"):
        as_generator(seed)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_generator_refuses_seeds_out_of_range(seed):
    with pytest.raises(ValueError, match="seed must lie between"):
        as_generator(seed)


def _machine(monkeypatch, *, cuda: int, mps: bool) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cuda", "mps", "best"), [(2, True, "cuda"), (0, True, "mps"), (0, False, "cpu")]
)
def test_case_06_none_picks_the_best_device(monkeypatch, cuda, mps, best):
    _machine(monkeypatch, cuda=cuda, mps=mps)
    assert resolve_device(None) == torch.device(best)


def test_case_06_upper_case_names_work(monkeypatch):
    _machine(monkeypatch, cuda=2, mps=False)
    assert resolve_device("CUDA") == torch.device("cuda")
    assert resolve_device("Cuda:1") == torch.device("cuda:1")
    assert resolve_device("CPU") == torch.device("cpu")
    assert resolve_device(torch.device("cpu")) == torch.device("cpu")


def test_case_06_missing_devices_are_named_with_what_there_is(monkeypatch):
    _machine(monkeypatch, cuda=0, mps=False)
    for name in ("cuda", "CUDA:1", "mps"):
        with pytest.raises(RuntimeError, match="not available on this machine; available: cpu"):
            resolve_device(name)
    _machine(monkeypatch, cuda=1, mps=False)
    with pytest.raises(RuntimeError, match="available: cuda:0, cpu"):
        resolve_device("cuda:1")


def test_unknown_devices_are_refused():
    for name in ("gpu", "meta", ""):
        with pytest.raises(ValueError, match="device must be 'cpu'"):
            resolve_device(name)
    with pytest.raises(TypeError, match="device must be a string"):
        resolve_device(3)
