"""Time the renderer of scenes and the writing and reading of captions.

Run as ``python -m tutorials_lib.bench_scenes``. Wall time is of the best of several rounds, as
other work on the machine can only slow a round; processor time is of the same round.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable

import torch

from tutorials_lib import scenes

__all__ = ["main"]


def best_of(rounds: int, work: Callable[[], object]) -> tuple[float, float]:
    """Return wall and processor seconds of the fastest of some rounds, after one to warm up."""
    work()
    times = []
    for _ in range(rounds):
        wall, processor = time.perf_counter(), time.process_time()
        work()
        times.append((time.perf_counter() - wall, time.process_time() - processor))
    return min(times)


def main(arguments: list[str] | None = None) -> None:
    """Print one table, things per second."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=512, help="in one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    n = options.scenes
    print(
        f"python {platform.python_version()}, torch {torch.__version__}, "
        f"threads {torch.get_num_threads()}"
    )
    print(f"{'':44}{'per second':>12}{'per CPU s':>12}")
    jobs: list[tuple[str, Callable[[], object]]] = []
    for domain in scenes.DOMAINS:
        batch = scenes.sample_scenes(n, domain=domain, seed=0)
        jobs.append(
            (f"images of 48 x 48 pixels, {domain}", lambda batch=batch: scenes.render(batch))
        )
    plain = scenes.sample_scenes(n, seed=0)
    few = plain[: max(1, n // 16)]
    captions = scenes.caption_scenes(plain, seed=0)
    jobs += [
        ("captions written", lambda: scenes.caption_scenes(plain, seed=0)),
        ("captions read", lambda: [scenes.parse_caption(caption) for caption in captions]),
    ]
    for label, work in jobs:
        wall, processor = best_of(options.rounds, work)
        print(f"{label:44}{n / wall:>12,.0f}{n / processor:>12,.0f}", flush=True)
    wall, processor = best_of(options.rounds, lambda: scenes.render(few, size=224))
    print(
        f"{'images of 224 x 224 pixels, photo':44}{len(few) / wall:>12,.0f}"
        f"{len(few) / processor:>12,.0f}"
    )


if __name__ == "__main__":
    main()
