"""The library's one kind of progress bar."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

__all__ = ["DELAY", "progress_bar"]

DELAY = 5.0  # seconds of work that pass without a bar


def progress_bar(iterable: Iterable[Any] | None = None, *, show: bool, **options: Any) -> tqdm:
    """Return a bar of text that appears once the work has taken five seconds.

    Not tqdm.auto: in a notebook that makes widgets, with some ten messages to the front end, for
    every bar, also for one that is over before it is seen. A cell that embeds a few images a
    thousand times then overruns the kernel's queue of messages, and loses its own output.

    Parameters
    ----------
    iterable
        What to go through; None to call ``update`` by hand.
    show
        False for no bar at all.
    **options
        Other options of `tqdm.tqdm`.
    """
    return tqdm(iterable, delay=DELAY, disable=not show, **options)
