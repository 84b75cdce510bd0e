"""What all probes share: checks of their data, accuracies that count ties, choices on validation.

A probe is fitted on few shots, and what it leaves open (a penalty, a depth) is chosen on validation
rows. `ValidatedProbe.fit` sees these two sets only, and the test rows come later, in `score`, which
changes nothing: no choice can have seen them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from scipy.special import log_softmax
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from tutorials_lib._validation import check_finite

__all__ = [
    "Candidate",
    "Scorer",
    "ValidatedProbe",
    "as_labels",
    "as_rows",
    "hits",
    "positions_of",
    "scaled_rows",
    "several",
]

# Rows scored at a time, so that the scores of a large test set are never held at once.
CHUNK_ROWS = 4096
# Log losses that differ by less, in nats, count as equal.
LOSS_MARGIN = 0.01


class Scorer(Protocol):
    """Anything that gives each row a score for each class."""

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """Return scores of shape (N, n_classes) for rows of shape (N, d)."""


@dataclass(frozen=True)
class Candidate:
    """One fit among those that validation chooses from.

    Attributes
    ----------
    options
        What distinguishes it, by name.
    accuracy
        On the validation rows, ties counted as 1/k.
    log_loss
        On the validation rows, in nats; NaN where the scores are not logarithms of probabilities.
    """

    options: dict[str, float]
    accuracy: float
    log_loss: float


def as_rows(name: str, array: Any) -> np.ndarray:
    """Check embeddings and return them as a NumPy array of float32 or float64, not copied if so.

    Raises
    ------
    TypeError
        If the entries are not real numbers.
    ValueError
        If the shape is not (N, d) with N and d at least 1, or an entry is NaN or infinite.
    """
    if isinstance(array, torch.Tensor):
        array = array.detach().cpu()
        array = (array.float() if array.dtype in (torch.float16, torch.bfloat16) else array).numpy()
    rows = np.asarray(array)
    if np.iscomplexobj(rows) or not np.issubdtype(rows.dtype, np.number):
        raise TypeError(f"{name} must hold real numbers, got entries of dtype {rows.dtype}")
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"{name} must have shape (N, d), one embedding a row, got {rows.shape}")
    check_finite(name, rows)
    return rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float64)


def as_labels(name: str, labels: Any, rows: int | None = None) -> np.ndarray:
    """Check labels and return them as an array of shape (N,).

    Raises
    ------
    TypeError
        If the labels are neither integers nor strings.
    ValueError
        If the shape is not (N,), or N is not the number of rows asked for.
    """
    if isinstance(labels, torch.Tensor):
        labels = labels.detach().cpu().numpy()
    values = np.asarray(labels)
    if values.dtype == object and values.ndim == 1 and len(values):
        # As pandas keeps strings.
        for kinds in ((str,), (int, np.integer)):
            if all(isinstance(v, kinds) and not isinstance(v, bool) for v in values):
                values = np.array(values.tolist())
                break
    if values.ndim != 1 or not len(values):
        raise ValueError(f"{name} must have shape (N,) with N >= 1, got {values.shape}")
    if values.dtype.kind not in "iuU":
        raise TypeError(f"{name} must be integers or strings, got entries of dtype {values.dtype}")
    if rows is not None and len(values) != rows:
        raise ValueError(f"{name} must hold one label for each of {rows} rows, got {len(values)}")
    return values


def several(name: str, values: Any) -> list[Any]:
    """Return what validation is to choose from as a list: one number or several, but not none.

    Raises
    ------
    ValueError
        If there is none.
    """
    values = [values] if np.ndim(values) == 0 else list(values)
    if not values:
        raise ValueError(f"{name} must be a number or several to choose from, got none")
    return values


def scaled_rows(name: str, rows: np.ndarray) -> np.ndarray:
    """Scale rows to unit norm, in float64.

    Raises
    ------
    ValueError
        If a row is zero.
    """
    rows = rows.astype(np.float64)
    # By powers of two first: squares of very large or small entries leave the range of floats.
    rows = np.ldexp(rows, -np.frexp(np.abs(rows).max(axis=1, keepdims=True))[1])
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if not norms.all():
        raise ValueError(f"{name} holds {int((norms == 0).sum())} zero vectors, without direction")
    return rows / norms


def positions_of(
    name: str,
    labels: np.ndarray,
    classes: np.ndarray,
    of_classes: str = "that the probe was not fitted on",
) -> np.ndarray:
    """Return where each label stands among the sorted classes.

    Raises
    ------
    ValueError
        If a label is none of the classes.
    """
    unknown = np.setdiff1d(labels, classes)
    if len(unknown):
        some = ", ".join(map(str, unknown[:5]))
        raise ValueError(f"{name} holds {len(unknown)} classes {of_classes}: {some}")
    return np.searchsorted(classes, labels)


def hits(scores: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Say for each row whether the right class has the highest score; a tie of k counts 1/k.

    Parameters
    ----------
    scores
        Shape (N, n_classes).
    positions
        Column of the right class, shape (N,).

    Returns
    -------
    numpy.ndarray
        Shape (N,), each entry 0, 1 or 1/k.
    """
    highest = scores == scores.max(axis=1, keepdims=True)
    return highest[np.arange(len(scores)), positions] / highest.sum(axis=1)


class ValidatedProbe(BaseEstimator):
    """A classifier of embeddings whose free choice is made on validation rows.

    Attributes
    ----------
    classes_
        Sorted labels of the training rows, shape (n_classes,).
    chosen
        What validation has chosen, by name.
    validation_accuracy
        Of the chosen fit. It is the highest of several, so it flatters; report `score`.
    candidates
        All that validation could choose from, in the order in which they were tried.
    """

    # Whether scores are logits or log-probabilities, so that a log loss can settle ties.
    _has_log_loss = False

    def _fits(
        self, rows: np.ndarray, positions: np.ndarray, n_classes: int
    ) -> Iterator[tuple[dict[str, float], Scorer]]:
        """Fit all candidates, the simplest first."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any, X_val: Any, y_val: Any) -> ValidatedProbe:
        """Fit all candidates on the training rows and keep the one that validation prefers.

        The highest accuracy on the validation rows wins. Few rows tie often: then the lowest log
        loss wins where there is one, and among those within 0.01 nat of it the candidate that was
        tried first, the simplest. Without that margin, rows that are told apart perfectly would
        ask for ever weaker penalties.

        Parameters
        ----------
        X, y
            Training embeddings of shape (N, d), and N labels.
        X_val, y_val
            Validation embeddings and labels; every label must occur in ``y``.

        Returns
        -------
        ValidatedProbe
            Itself.

        Raises
        ------
        TypeError, ValueError
            If shapes, types or labels do not fit, or there are fewer than two classes.
        FloatingPointError
            If scores leave the range of floats.
        """
        X, X_val = as_rows("X", X), as_rows("X_val", X_val)
        y, y_val = as_labels("y", y, len(X)), as_labels("y_val", y_val, len(X_val))
        if X.shape[1] != X_val.shape[1]:
            raise ValueError(
                f"X has {X.shape[1]} columns and X_val has {X_val.shape[1]}; "
                "transform both in the same way"
            )
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(f"a probe needs at least two classes, y holds {len(classes)}")
        right = positions_of("y_val", y_val, classes)
        # What an earlier fit has found must not mix with what one finds that fails half way.
        for name in ("chosen", "candidates", "validation_accuracy", "_scorer"):
            vars(self).pop(name, None)
        self.classes_, self.n_features_in_ = classes, X.shape[1]
        candidates: list[Candidate] = []
        scorers = []
        for options, scorer in self._fits(X, np.searchsorted(classes, y), len(classes)):
            scores = _finite(scorer.scores(X_val))
            accuracy, loss = float(hits(scores, right).mean()), float("nan")
            if self._has_log_loss:
                loss = -float(log_softmax(scores, axis=1)[np.arange(len(right)), right].mean())
            candidates.append(Candidate(options, accuracy, loss))
            scorers.append(scorer)
        position = _preferred(candidates)
        self.candidates, self._scorer = candidates, scorers[position]
        self.validation_accuracy = candidates[position].accuracy
        self.chosen = candidates[position].options
        return self

    def scores(self, X: Any) -> np.ndarray:
        """Return a score for each class, shape (N, n_classes), in the order of ``classes_``."""
        rows = self._rows(X)
        return np.concatenate([_finite(self._scorer.scores(part)) for part in _chunks(rows)])

    def predict(self, X: Any) -> np.ndarray:
        """Return the label with the highest score, shape (N,); the first of those that tie."""
        return self.classes_[self.scores(X).argmax(axis=1)]

    def score(self, X: Any, y: Any, *, among: Sequence[Any] | np.ndarray | None = None) -> float:
        """Return the accuracy on test rows; a tie of k classes counts 1/k.

        Parameters
        ----------
        X, y
            Test embeddings of shape (N, d), and N labels.
        among
            Labels that a row can have at all: the others are left out of the choice, as is usual
            for test sets that hold some of the classes, such as ImageNet-R. ``None`` for all.

        Returns
        -------
        float
            From 0 to 1.

        Raises
        ------
        TypeError, ValueError
            If shapes or types do not fit, or a label is none of the classes.
        """
        rows = self._rows(X)
        classes, columns = self.classes_, slice(None)
        if among is not None:
            classes = np.unique(as_labels("among", among))
            columns = positions_of("among", classes, self.classes_)
        labels = as_labels("y", y, len(rows))
        positions_of("y", labels, self.classes_)
        right = positions_of("y", labels, classes, "that are not in among")
        total, start = 0.0, 0
        for part in _chunks(rows):
            scores = _finite(self._scorer.scores(part))[:, columns]
            total += hits(scores, right[start : start + len(part)]).sum()
            start += len(part)
        return float(total / len(rows))

    def _rows(self, X: Any) -> np.ndarray:
        if not hasattr(self, "chosen"):
            raise NotFittedError(f"fit this {type(self).__name__} before it is used")
        rows = as_rows("X", X)
        if rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"the probe was fitted on {self.n_features_in_} columns, X has {rows.shape[1]}"
            )
        return rows


def _finite(scores: np.ndarray) -> np.ndarray:
    # NaN is no highest score: every row would count as wrong, or as nothing.
    if not np.isfinite(scores).all():
        raise FloatingPointError(
            "the scores of the probe are not finite: the embeddings are too large or too small "
            "for it; bring them to unit norm or unit variance first"
        )
    return scores


def _preferred(candidates: list[Candidate]) -> int:
    """Position of the candidate that validation prefers; see `ValidatedProbe.fit`."""
    highest = max(fit.accuracy for fit in candidates)
    tied = [i for i, fit in enumerate(candidates) if fit.accuracy == highest]
    # NaN, where there is no log loss, leaves all that tie.
    lowest = min(candidates[i].log_loss for i in tied)
    return next(i for i in tied if not candidates[i].log_loss > lowest + LOSS_MARGIN)


def _chunks(rows: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), CHUNK_ROWS):
        yield rows[start : start + CHUNK_ROWS]
