"""Choices between a right and a wrong caption: reports, and scores that see no image.

`tutorials_lib.captions` is where to import all of it from.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tutorials_lib._caption_edits import Edit
from tutorials_lib._sugarcrepe import HardNegative
from tutorials_lib.scene_scores import choice_accuracy

__all__ = ["ChoiceReport", "blind_baselines", "choice_report"]


@dataclass(frozen=True)
class ChoiceReport:
    """How often the right caption was chosen.

    Attributes
    ----------
    n
        Number of choices.
    accuracy
        Share of right choices; a tie of the right caption with others for the best score counts
        1/k among k.
    ties
        Number of choices in which the right caption ties for the best score.
    interval
        Wilson's interval for the accuracy. It takes the choices as independent, and ties as whole
        successes or failures, which only makes it wider.
    chance
        Expected accuracy without any knowledge.
    blind
        The same for scores that see no image, by name; empty where no captions were given.
    """

    n: int
    accuracy: float
    ties: int
    interval: tuple[float, float]
    chance: float
    blind: Mapping[str, ChoiceReport] = field(default_factory=dict)

    @property
    def above_chance(self) -> bool:
        """Whether the interval lies above chance."""
        return self.interval[0] > self.chance


Pair = HardNegative | Edit | tuple[str, str]


def choice_report(
    right: torch.Tensor | Sequence[float],
    wrong: torch.Tensor | Sequence[Any],
    *,
    pairs: Sequence[Pair] | None = None,
    level: float = 0.95,
) -> ChoiceReport:
    """Report how often the right caption has the highest score, beside what blind scores reach.

    Parameters
    ----------
    right
        Scores of the right captions, shape (N,).
    wrong
        Scores of the wrong ones, shape (N,) or (N, k).
    pairs
        The captions, N of them, for `blind_baselines`. None for no baselines.
    level
        Of the interval.

    Returns
    -------
    ChoiceReport
        A constant score is at chance, 1/(k+1), with N ties.

    Raises
    ------
    ValueError
        If the shapes do not go together, there is no choice, or a score is not a number.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}")
    mine, others = (torch.as_tensor(scores).detach().cpu() for scores in (right, wrong))
    if mine.ndim != 1 or others.ndim not in (1, 2) or len(mine) != len(others) or not len(mine):
        raise ValueError(
            f"right must have the shape (N,) and wrong (N,) or (N, k) with N > 0, got "
            f"{tuple(mine.shape)} and {tuple(others.shape)}"
        )
    others = others.reshape(len(mine), -1)
    if others.shape[1] == 0:
        raise ValueError("wrong must have at least one score for each choice, got none")
    if mine.isnan().any() or others.isnan().any():
        raise ValueError("scores must be numbers, got NaN; a choice with NaN has no winner")
    if pairs is not None and len(pairs) != len(mine):
        raise ValueError(f"there must be a pair for each of {len(mine)} choices, got {len(pairs)}")
    credit = choice_accuracy(mine, others)
    ties = int(((credit > 0) & (credit < 1)).sum())
    accuracy = float(credit.mean())
    blind = {} if pairs is None else blind_baselines(pairs, level=level)
    interval = _wilson(accuracy, len(mine), level)
    return ChoiceReport(len(mine), accuracy, ties, interval, 1 / (others.shape[1] + 1), blind)


def blind_baselines(
    pairs: Sequence[Pair], *, counts: Mapping[str, int] | None = None, level: float = 0.95
) -> dict[str, ChoiceReport]:
    """Score captions without any image; a good set of hard negatives leaves these at chance.

    "shortest" and "longest" prefer the caption with fewer and more words. "capital and full stop"
    prefers one that begins with a capital and ends with a full stop, as people's captions do more
    often than those of programs. "common words" prefers the higher mean logarithm of word counts.

    Parameters
    ----------
    pairs
        `HardNegative`, `Edit` (whose ``before`` is right), or two captions, the right one first.
    counts
        Word, in lower case, to how often it occurs in some corpus. None counts in all captions of
        the pairs, right and wrong alike, which tells nothing of which is which.
    level
        Of the intervals.

    Returns
    -------
    dict of str to ChoiceReport
        Chance is 1/2. Where SWAP keeps the words, all but "capital and full stop" tie by
        construction, and that ties where both captions are written alike. On pairs made by ADD
        "shortest" is always right, so a result on them says little without it.

    Raises
    ------
    ValueError
        If there are no pairs.
    """
    texts = [_texts(pair) for pair in pairs]
    if not texts:
        raise ValueError("pairs must not be empty")
    if counts is None:
        counts = Counter(word for pair in texts for text in pair for word in _words(text))
    known = counts

    def commonness(text: str) -> float:
        # fsum rounds once, so that captions with the same words tie whatever their order.
        logarithms = [math.log1p(known.get(word, 0)) for word in _words(text)]
        return math.fsum(logarithms) / max(len(logarithms), 1)

    scores: dict[str, Callable[[str], float]] = {
        "shortest": lambda text: -float(len(_words(text))),
        "longest": lambda text: float(len(_words(text))),
        "capital and full stop": _formality,
        "common words": commonness,
    }
    reports = {}
    for name, score in scores.items():
        right, wrong = zip(
            *((score(caption), score(other)) for caption, other in texts), strict=True
        )
        reports[name] = choice_report(
            torch.tensor(right, dtype=torch.float64),
            torch.tensor(wrong, dtype=torch.float64),
            level=level,
        )
    return reports


def _texts(pair: Pair) -> tuple[str, str]:
    if isinstance(pair, HardNegative):
        return pair.caption, pair.negative
    if isinstance(pair, Edit):
        return pair.before, pair.after
    caption, other = pair
    return caption, other


def _words(text: str) -> list[str]:
    """Split into words; "an" counts as "a", because which of them stands is no choice."""
    found = re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", text.lower())
    return ["a" if word == "an" else word for word in found]


def _formality(text: str) -> float:
    text = text.strip()
    return float(text[:1].isupper()) + float(text.endswith("."))


def _wilson(share: float, n: int, level: float) -> tuple[float, float]:
    """Return Wilson's interval (1927) for a share of n."""
    z = statistics.NormalDist().inv_cdf((1 + level) / 2)
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(0.0, middle - half), min(1.0, middle + half)
