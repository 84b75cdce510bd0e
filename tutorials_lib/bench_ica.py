"""Time FastICA beside scikit-learn's and Picard: ``python -m tutorials_lib.bench_ica``.

All three get the same data, dtype, contrast, tolerance and number of threads, and take turns in
one process, so that what else the machine does falls on all alike. Whitening counts. On a busy
machine the processor time is the one to trust, with one thread. The sources are compared too: a
fast wrong answer is none.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import platform
import sys
import threading
import time
import warnings
from collections.abc import Callable

import numpy as np
import sklearn
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import FastICA as SklearnFastICA
from threadpoolctl import threadpool_limits

from tutorials_lib import ica

TOL, MAX_ITER = 1e-4, 200
SIZES = ((20_000, 128), (50_000, 256))
MILLION = (1_000_000, 512)
# Idle threads of one library keep spinning for a moment and would slow down the next.
PAUSE = 0.3

Found = tuple[np.ndarray, int]


def mixtures(n: int, k: int, dtype: type, seed: int) -> np.ndarray:
    """Draw independent sources, of four laws in turn, and mix them in blocks of rows.

    Parameters
    ----------
    n, k
        Numbers of rows and of sources.
    dtype
        ``numpy.float32`` or ``numpy.float64``.
    seed
        Of the generator.

    Returns
    -------
    numpy.ndarray
        Shape (n, k).
    """
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(k, k)).astype(dtype) / np.sqrt(k)
    x = np.empty((n, k), dtype=dtype)
    for start in range(0, n, 8192):
        rows = min(8192, n - start)
        s = np.empty((rows, k))
        s[:, 0::4] = rng.laplace(size=s[:, 0::4].shape)
        s[:, 1::4] = rng.uniform(-2, 2, size=s[:, 1::4].shape)
        s[:, 2::4] = rng.exponential(size=s[:, 2::4].shape)
        s[:, 3::4] = np.sign(rng.normal(size=s[:, 3::4].shape))
        x[start : start + rows] = s.astype(dtype) @ mixing
    return x


def fit_ours(x: np.ndarray, seed: int) -> Found:
    """Fit `tutorials_lib.ica.FastICA`; return components and passes."""
    fitted = ica.FastICA(tol=TOL, max_iter=MAX_ITER, random_state=seed, progress=False).fit(x)
    return fitted.components_, fitted.n_iter_


def fit_sklearn(x: np.ndarray, seed: int) -> Found:
    """Fit scikit-learn's FastICA; return components and iterations."""
    fitted = SklearnFastICA(
        whiten="unit-variance", tol=TOL, max_iter=MAX_ITER, random_state=seed
    ).fit(x)
    return fitted.components_, fitted.n_iter_


def fit_picard(x: np.ndarray, seed: int) -> Found:
    """Fit Picard-O with the same contrast; return components and iterations."""
    picard = importlib.import_module("picard")
    whitening, w, _, n_iter = picard.picard(
        np.ascontiguousarray(x.T),
        ortho=True,
        fun="tanh",
        tol=TOL,
        max_iter=MAX_ITER,
        random_state=seed,
        return_n_iter=True,
    )
    return w @ whitening, n_iter


def worst_match(first: np.ndarray, second: np.ndarray, covariance: np.ndarray) -> float:
    """Return the smallest absolute correlation of matched sources."""
    units = []
    for w in (first, second):
        scale = np.sqrt(np.einsum("ij,jk,ik->i", w, covariance, w))
        units.append(w / scale[:, None])
    table = np.abs(units[0] @ covariance @ units[1].T)
    return float(table[linear_sum_assignment(table, maximize=True)].min())


def compare(n: int, k: int, dtype: type, rounds: int) -> None:
    """Time the solvers in turns on one data set and print a table."""
    solvers: dict[str, Callable[[np.ndarray, int], Found]] = {
        "ours": fit_ours,
        "scikit-learn": fit_sklearn,
    }
    if importlib.util.find_spec("picard"):
        solvers["picard"] = fit_picard
    else:
        print(
            "picard is not installed: pip install --target DIR python-picard, "
            "then PYTHONPATH=DIR python -m tutorials_lib.bench_ica"
        )
    x = mixtures(n, k, dtype, seed=0)
    covariance = np.cov(x.T.astype(np.float64)) if n * k < 2e8 else np.cov(x[:200_000].T)
    seconds: dict[str, list[float]] = {name: [] for name in solvers}
    processor: dict[str, list[float]] = {name: [] for name in solvers}
    for round_ in range(rounds):
        found = {}
        for name, solver in solvers.items():
            time.sleep(PAUSE)
            started, used = time.perf_counter(), time.process_time()
            found[name] = solver(x, round_)
            seconds[name].append(time.perf_counter() - started)
            processor[name].append(time.process_time() - used)
        for name, (components, n_iter) in found.items():
            match = worst_match(found["ours"][0], components, covariance)
            print(
                f"{n:>9,} x {k:<4}{np.dtype(dtype).name:<8} round {round_}  {name:<13}"
                f"{seconds[name][-1]:8.2f} s (processor {processor[name][-1]:.2f} s)  "
                f"{n_iter:>3} passes  "
                f"worst |corr| with ours {match:.5f}",
                flush=True,
            )
    for name in solvers:
        ratios = [np.median(np.divide(t["ours"], t[name])) for t in (seconds, processor)]
        print(
            f"{n:>9,} x {k:<4}{np.dtype(dtype).name:<8} median   {name:<13}"
            f"{np.median(seconds[name]):8.2f} s  ours/this {ratios[0]:.2f} (processor "
            f"{ratios[1]:.2f})",
            flush=True,
        )


def resident_bytes() -> int | None:
    """Return the memory that this process holds now, where /proc tells."""
    try:
        with open("/proc/self/status", encoding="utf-8") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
    except OSError:
        return None
    return int(line.split()[1]) * 1024


def million(n: int, k: int) -> None:
    """Fit float32 data of 2 GB and print time, passes and the largest resident memory."""
    x = mixtures(n, k, np.float32, seed=0)
    peak, done = [resident_bytes() or 0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], resident_bytes() or 0)

    before = peak[0]
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    started = time.perf_counter()
    fitted = ica.FastICA(tol=TOL, max_iter=MAX_ITER, random_state=0).fit(x)
    seconds = time.perf_counter() - started
    done.set()
    thread.join()
    memory = (
        f"resident {before / 1e9:.2f} GB before, {peak[0] / 1e9:.2f} GB at most"
        if before
        else "resident memory is not told on this system"
    )
    print(
        f"{n:>9,} x {k:<4}float32  ours {seconds:.0f} s, {fitted.n_iter_} passes over all rows, "
        f"converged: {fitted.converged_}; X {x.nbytes / 1e9:.2f} GB, {memory}"
    )


def main(arguments: list[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="times every solver is run")
    parser.add_argument("--threads", type=int, default=2, help="threads for every solver")
    parser.add_argument(
        "--dtype", choices=("float32", "float64", "both"), default="both", help="of the data"
    )
    parser.add_argument("--million", action="store_true", help="fit 1,000,000 x 512 instead")
    parser.add_argument(
        "--size", type=int, nargs=2, metavar=("ROWS", "COLUMNS"), help="instead of the sizes set"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    print(
        f"python {platform.python_version()}, torch {torch.__version__}, scikit-learn "
        f"{sklearn.__version__}, numpy {np.__version__}, {options.threads} threads, tol {TOL:g}"
    )
    names = ("float32", "float64") if options.dtype == "both" else (options.dtype,)
    with threadpool_limits(options.threads), warnings.catch_warnings():
        warnings.simplefilter("once")
        if options.million:
            million(*(options.size or MILLION))
            return
        for n, k in [options.size] if options.size else SIZES:
            for name in names:
                compare(n, k, getattr(np, name), options.rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
