"""Probes whose free choice is made on validation rows; `probes` exports them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from tutorials_lib._probing import ValidatedProbe, several
from tutorials_lib._validation import check_integer, check_positive

__all__ = ["CentroidProbe", "ForestProbe", "LinearProbe"]

# From far too strong a penalty to hardly any, for features of unit norm and of unit variance alike;
# an L1 fit takes long where the penalty hardly acts, and gains nothing there.
_CS = {"l2": np.logspace(-4, 6, 11), "l1": np.logspace(-2, 4, 7)}
# scikit-learn 1.8 replaced `penalty` by `l1_ratio`.
_PENALTY = inspect.signature(LogisticRegression).parameters.get("penalty")
_BY_RATIO = _PENALTY is None or _PENALTY.default == "deprecated"


def _expect_few_shots() -> None:
    """Keep scikit-learn from taking the labels of one shot for a regression's targets."""
    warnings.filterwarnings("ignore", message="The number of unique classes")


@dataclass(frozen=True, eq=False)
class _Linear:
    coef: np.ndarray
    intercept: np.ndarray
    converged: bool

    def scores(self, rows: np.ndarray) -> np.ndarray:
        return rows @ self.coef.T + self.intercept


class LinearProbe(ValidatedProbe):
    """Multinomial logistic regression whose penalty is chosen on validation rows.

    Features are not standardised. Scaling the columns depends on the axes, and would take from
    the L2 probe the rotation invariance that makes its results easy to read; whitening, as a
    feature, says what scaling does. The intercept is not penalised.

    Parameters
    ----------
    penalty
        ``"l2"``, which is rotation invariant, or ``"l1"``, which is not: it prefers predictors
        that need few features.
    Cs
        Inverse strengths of the penalty to choose from; ``None`` for 11 powers of ten from 1e-4
        to 1e6 with L2, and 7 from 1e-2 to 1e4 with L1.
    tol
        Tolerance of the solver on the gradient (L2) or on the change of the weights (L1).
    max_iter
        Iterations of the solver for each strength.
    seed
        Order of the rows in the L1 solver.

    Attributes
    ----------
    chosen
        ``{"C": …}``.
    coef_, intercept_
        Of the chosen fit, shapes (n_classes, d) and (n_classes,).
    converged
        Whether the chosen fit met the tolerance; if not, a ConvergenceWarning said so.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(40) % 2
    >>> X = y[:, None] + 0.1 * rng.normal(size=(40, 3))
    >>> LinearProbe().fit(X[:10], y[:10], X[10:20], y[10:20]).score(X[20:], y[20:])
    1.0
    """

    _has_log_loss = True

    def __init__(
        self,
        penalty: Literal["l2", "l1"] = "l2",
        *,
        Cs: Sequence[float] | None = None,
        tol: float | None = None,
        max_iter: int = 2000,
        seed: int = 0,
    ) -> None:
        self.penalty = penalty
        self.Cs = Cs
        self.tol = tol
        self.max_iter = max_iter
        self.seed = seed

    def fit(self, X: Any, y: Any, X_val: Any, y_val: Any) -> LinearProbe:
        """Fit on training rows and choose C on validation rows; see `ValidatedProbe.fit`."""
        super().fit(X, y, X_val, y_val)
        self.coef_, self.intercept_ = self._scorer.coef, self._scorer.intercept
        self.converged = self._scorer.converged
        if not self.converged:
            warnings.warn(
                f"the chosen fit, C={self.chosen['C']:g}, has not converged in {self.max_iter} "
                "iterations; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _fits(
        self, rows: np.ndarray, positions: np.ndarray, n_classes: int
    ) -> Iterator[tuple[dict[str, float], _Linear]]:
        if self.penalty not in _CS:
            raise ValueError(f"penalty must be 'l2' or 'l1', got {self.penalty!r}")
        given = _CS[self.penalty] if self.Cs is None else self.Cs
        strengths = sorted(check_positive("Cs", C) for C in several("Cs", given))
        ratio = float(self.penalty == "l1")
        tol = self.tol if self.tol is not None else (1e-3 if ratio else 1e-6)
        model = LogisticRegression(
            **({"l1_ratio": ratio} if _BY_RATIO else {"penalty": self.penalty}),
            solver="saga" if ratio else "lbfgs",
            tol=check_positive("tol", tol),
            max_iter=check_integer("max_iter", self.max_iter, 1),
            random_state=self.seed,
            # Each strength starts at the solution of the one before.
            warm_start=True,
        )
        rows = rows.astype(np.float64)
        for C in strengths:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                _expect_few_shots()
                model.set_params(C=C).fit(rows, positions)
            # Only the fit that is chosen in the end has to have converged.
            unfinished = [w for w in caught if issubclass(w.category, ConvergenceWarning)]
            for warning in caught:
                if warning not in unfinished:
                    warnings.warn_explicit(
                        warning.message, warning.category, warning.filename, warning.lineno
                    )
            coef, intercept = model.coef_.copy(), model.intercept_.copy()
            if n_classes == 2:
                # One row of weights for the second class against the first.
                coef = np.concatenate([-coef, coef]) / 2
                intercept = np.concatenate([-intercept, intercept]) / 2
            yield {"C": C}, _Linear(coef, intercept, not unfinished)


@dataclass(frozen=True, eq=False)
class _Forest:
    forest: RandomForestClassifier
    exponents: np.ndarray

    def scores(self, rows: np.ndarray) -> np.ndarray:
        scaled = np.ldexp(rows.astype(np.float64), -self.exponents)
        # Rows far beyond those fitted on stay within float32.
        return self.forest.predict_proba(np.clip(scaled, -1e30, 1e30))


class ForestProbe(ValidatedProbe):
    """A random forest whose depth is chosen on validation rows; it sees the axes.

    Each split asks about one feature, so features that carry one factor each need shallow trees,
    and rotated ones deep trees.

    Parameters
    ----------
    depths
        Largest depths to choose from; equal choices go to the shallower forest.
    n_trees
        Number of trees.
    seed
        Of bootstrap and features.

    Attributes
    ----------
    chosen
        ``{"depth": …}``.
    """

    def __init__(
        self, *, depths: Sequence[int] = (2, 4, 8, 16), n_trees: int = 100, seed: int = 0
    ) -> None:
        self.depths = depths
        self.n_trees = n_trees
        self.seed = seed

    def _fits(
        self, rows: np.ndarray, positions: np.ndarray, n_classes: int
    ) -> Iterator[tuple[dict[str, float], _Forest]]:
        # Trees are grown in float32, on differences of at least 1e-7. They see only the order of
        # a column's entries, which a power of two keeps.
        exponents = np.frexp(np.abs(rows).max(axis=0))[1]
        rows = np.ldexp(rows.astype(np.float64), -exponents)
        depths = several("depths", self.depths)
        for depth in sorted(check_integer("depths", depth, 1) for depth in depths):
            forest = RandomForestClassifier(
                check_integer("n_trees", self.n_trees, 1), max_depth=depth, random_state=self.seed
            )
            with warnings.catch_warnings():
                _expect_few_shots()
                forest.fit(rows, positions)
            yield {"depth": depth}, _Forest(forest, exponents)


@dataclass(frozen=True, eq=False)
class _Centroids:
    centroids: np.ndarray
    columns: np.ndarray

    def scores(self, rows: np.ndarray) -> np.ndarray:
        x = rows[:, self.columns].astype(np.float64)
        # −½‖x − c‖² without ½‖x‖², which all classes share.
        return x @ self.centroids.T - 0.5 * (self.centroids**2).sum(axis=1)


class CentroidProbe(ValidatedProbe):
    """Nearest class mean on the few components that tell the classes apart; it sees the axes.

    Components are ranked by the training rows: by the variance of the class means less what the
    scatter within the classes adds to it, within-variance / shots. With one shot the scatter is
    not known and nothing is taken off. How many of the best components are kept is chosen on
    validation rows; with all of them the probe is rotation invariant again.

    Parameters
    ----------
    n_kept
        Numbers of components to choose from; ``None`` for powers of two and all. Numbers above
        the number of features are left out; equal choices go to fewer components.

    Attributes
    ----------
    chosen
        ``{"components": …}``.
    columns_
        The components kept, best first.
    """

    def __init__(self, *, n_kept: Sequence[int] | None = None) -> None:
        self.n_kept = n_kept

    def fit(self, X: Any, y: Any, X_val: Any, y_val: Any) -> CentroidProbe:
        """Fit on training rows and choose the number of components on validation rows."""
        super().fit(X, y, X_val, y_val)
        self.columns_ = self._scorer.columns
        return self

    def _fits(
        self, rows: np.ndarray, positions: np.ndarray, n_classes: int
    ) -> Iterator[tuple[dict[str, float], _Centroids]]:
        d = rows.shape[1]
        numbers = (
            [2**i for i in range(d.bit_length())] + [d]
            if self.n_kept is None
            else several("n_kept", self.n_kept)
        )
        numbers = sorted({check_integer("n_kept", number, 1) for number in numbers})
        numbers = [number for number in numbers if number <= d]
        if not numbers:
            raise ValueError(f"n_kept holds no number up to {d}, the number of features")
        counts = np.bincount(positions, minlength=n_classes)[:, None]
        means = np.zeros((n_classes, d))
        np.add.at(means, positions, rows)
        means /= counts
        squares = np.zeros((n_classes, d))
        np.add.at(squares, positions, (rows - means[positions]) ** 2)
        # Unbiased variance of a class mean; 0 where one row says nothing about it.
        noise = squares / np.maximum(counts - 1, 1) / counts
        signal = means.var(axis=0, ddof=1) - noise.mean(axis=0)
        order = np.argsort(-signal, kind="stable")
        for number in numbers:
            columns = order[:number]
            yield {"components": number}, _Centroids(means[:, columns], columns)
