"""Execute the book's notebooks in parallel, into a cache that knows what they import.

jupyter-cache recognises a notebook by its code cells alone. A change in the library, in a script or
table beside a chapter, or in the list of dependencies would leave it serving outputs that the code
no longer gives, so the cache carries a fingerprint of all of these and is emptied when it differs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
from tqdm import tqdm


class NotebookError(Exception):
    """A notebook that did not run to its end."""


def fingerprint(root: Path) -> str:
    """Hash everything that a chapter's outputs depend on beside its own cells."""
    files = [root / "requirements.txt"]
    files += (path for path in (root / "tutorials_lib").rglob("*") if path.is_file())
    files += (
        path for suffix in ("py", "csv", "json") for path in (root / "book").rglob(f"*.{suffix}")
    )
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(set(files)):
        name = path.relative_to(root)
        # No chapter reads the tools or the homework.
        if {"__pycache__", ".ipynb_checkpoints", "tools", "assignments"} & set(name.parts):
            continue
        digest.update(name.as_posix().encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def empty_stale_cache(root: Path, cache_path: Path) -> bool:
    """Empty the cache if it was filled by another state of the code; say whether it was."""
    mark = cache_path / "fingerprint"
    now = fingerprint(root)
    stale = not mark.is_file() or mark.read_text(encoding="utf-8") != now
    if stale:
        shutil.rmtree(cache_path, ignore_errors=True)
        cache_path.mkdir(parents=True)
        mark.write_text(now, encoding="utf-8")
    return stale


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables, which kernels inherit, and put the old ones back."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def execute(
    notebooks: list[Path], cache_path: Path, *, timeout: int, cores: int
) -> dict[str, float]:
    """Run the notebooks that the cache does not hold yet.

    Parameters
    ----------
    notebooks : list of Path
        Files to execute, each in its own folder.
    cache_path : Path
        The folder of a jupyter-cache.
    timeout : int
        Longest time in seconds that one cell may take.
    cores : int
        How many notebooks run at once; each gets ``cpu_count // cores`` threads, at least one.

    Returns
    -------
    dict
        Seconds by file name, for the notebooks that ran.

    Raises
    ------
    NotebookError
        With the notebooks and tracebacks of all that failed.
    """
    cache = get_cache(str(cache_path))
    waiting = []
    for path in notebooks:
        notebook = nbformat.read(path, as_version=4)
        try:
            cache.match_cache_notebook(notebook)
        except KeyError:
            waiting.append((path, notebook))
    if not waiting:
        return {}

    threads = str(max(1, (os.cpu_count() or 1) // min(cores, len(waiting))))
    seconds, failures = {}, []
    with (
        environment(OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads),
        ThreadPoolExecutor(cores) as pool,
        tqdm(total=len(waiting), unit="notebook") as bar,
    ):
        runs = {
            pool.submit(
                single_nb_execution,
                notebook,
                cwd=str(path.parent),
                timeout=timeout,
                allow_errors=False,
            ): path
            for path, notebook in waiting
        }
        for run in as_completed(runs):
            path = runs[run]
            bar.update()
            if run.exception() is not None:  # the kernel itself failed, not a cell
                failures.append(f"{path}\n{run.exception()!r}")
                continue
            result = run.result()
            if result.err is not None:
                failures.append(f"{path}\n{result.exc_string}")
                continue
            seconds[path.name] = result.time
            tqdm.write(f"executed {path.name} in {result.time:.0f} s")
            data = {"execution_seconds": result.time}
            bundle = CacheBundleIn(result.nb, str(path), data=data)
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    if failures:
        raise NotebookError("\n\n".join(["Notebooks failed:", *failures]))
    return seconds
