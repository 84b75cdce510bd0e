"""DCI: whether each code serves one factor, and each factor rests on one code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import entr
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.linear_model import LassoCV, LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score

from tutorials_lib._arrays import as_numpy_generator
from tutorials_lib._measuring import (
    FactorKind,
    check_option,
    check_rows,
    constant_on_either,
    describe_excluded,
    describe_scores,
    mean_of_kept,
    rescale,
    resolve_kinds,
    split,
    standardise,
)
from tutorials_lib._progress import progress_bar

__all__ = ["DCIResult", "dci", "scores_from_importance"]

TREES = 50
FOLDS = 5


@dataclass(frozen=True, eq=False, repr=False)
class DCIResult:
    """Disentanglement, completeness and informativeness.

    Attributes
    ----------
    disentanglement
        Mean of ``per_code``, weighted by the share of each code in all importance. 1 if each code
        serves one factor; 0 if all serve all factors alike, or if no code serves any.
    completeness
        Mean of ``per_factor``. 1 if each factor rests on one code; 0 if all rest on all alike.
    informativeness
        Mean of ``informativeness_per_factor``. Both means leave out the excluded factors.
    importance
        Share of each code in the prediction of each factor, shape (n_codes, n_factors). Columns
        sum to 1, or to 0 where no code helps; NaN for excluded factors.
    per_code
        Disentanglement of each code, shape (n_codes,); NaN for codes of no importance.
    per_factor
        Completeness of each factor, shape (n_factors,); 0 where no code helps, NaN if excluded.
    informativeness_per_factor
        On rows held out: R² of continuous factors, accuracy of discrete ones; NaN if excluded.
    baseline
        What predicting the same for all rows gives, shape (n_factors,): 0 for continuous factors,
        the share of the class most frequent on the rows fitted on, counted on those held out, for
        discrete ones; NaN if excluded.
    excluded
        Why each excluded factor has no scores, by its index.
    undefined
        Why a score is NaN for all codes or factors, by its name: with one single code there is
        no completeness, with one single factor no disentanglement.
    factor_kinds
        ``"continuous"`` or ``"discrete"``, one for each factor.
    estimator
        ``"trees"`` or ``"lasso"``.
    n_train, n_test
        Numbers of rows that the estimator was fitted and measured on.
    """

    disentanglement: float
    completeness: float
    informativeness: float
    importance: np.ndarray
    per_code: np.ndarray
    per_factor: np.ndarray
    informativeness_per_factor: np.ndarray
    baseline: np.ndarray
    excluded: dict[int, str]
    undefined: dict[str, str]
    factor_kinds: tuple[FactorKind, ...]
    estimator: str
    n_train: int
    n_test: int

    def __repr__(self) -> str:
        scores = describe_scores(self.factor_kinds, self.excluded, "accuracy")
        excluded = describe_excluded(self.excluded, len(self.per_factor))
        undefined = "".join(f", no {name}: {reason}" for name, reason in self.undefined.items())
        return (
            f"DCI disentanglement {self.disentanglement:.3f}, completeness "
            f"{self.completeness:.3f}, informativeness {self.informativeness:.3f} "
            f"({self.estimator}, {scores}, fitted on {self.n_train} rows, measured on "
            f"{self.n_test} others{excluded}{undefined})"
        )


def dci(
    latents: Any,
    representation: Any,
    *,
    estimator: Literal["trees", "lasso"] = "trees",
    factor_kinds: FactorKind | Sequence[FactorKind] | None = None,
    test_fraction: float = 0.5,
    seed: int | np.random.Generator = 0,
    progress: bool = True,
) -> DCIResult:
    """Compute disentanglement, completeness and informativeness of a representation.

    Each factor is predicted from all codes, and the prediction says how important each code was.
    Let P_i be the importances of code i over the K factors, made to sum to 1, P̃_j those of factor
    j over the D codes, and ρ_i the share of code i in all importance. Disentanglement is
    Σ_i ρ_i (1 − H_K(P_i)) and completeness the mean of 1 − H_D(P̃_j), with entropies to the bases
    K and D. Informativeness is how well the factors are predicted on rows held out.

    Importances of a factor are shares: they sum to 1 even if the factor is hardly predicted. So
    look at the informativeness first; where it is near ``baseline``, the other two say little: a
    single code that is one factor has disentanglement near 0 with ``"trees"`` if it knows nothing
    of the others, and noise on which the lasso keeps a weight for one factor only has 1. The
    scores of latents whose rows were shuffled show what chance gives.

    Parameters
    ----------
    latents
        True factors, shape (n, n_factors).
    representation
        Codes, shape (n, n_codes).
    estimator
        ``"trees"``: 50 extremely randomised trees, all codes tried at each split, 5 rows or more
        in a leaf (a tenth of the rows, if there are fewer than 50 to fit); importance is the
        decrease of variance or of Gini impurity. ``"lasso"``: linear, with an L1 penalty chosen
        by five-fold cross-validation among the rows fitted on; least squares for continuous
        factors, multinomial logistic regression for discrete ones; importance is the absolute
        weight of the standardised code, summed over classes. Needs ten rows to fit, and five a
        class.
    factor_kinds
        ``"continuous"`` or ``"discrete"``, for all factors or one for each. If ``None``, a factor
        is discrete if its entries are whole numbers with at most 50 values and at least two rows
        a value on average.
    test_fraction
        Share of the rows that is held out, strictly between 0 and 1.
    seed
        Integer or NumPy generator; decides which rows are held out and how the trees grow.
    progress
        Whether to show a progress bar if the fits take over five seconds.

    Returns
    -------
    DCIResult
        A factor that is constant on the rows seen or on those held out has NaN and a reason, and
        is left out of all three scores.

    Raises
    ------
    TypeError, ValueError
        If the numbers of rows differ, if there are NaN or infinite entries, if an option is
        unknown, or if there are too few rows for the estimator.

    References
    ----------
    Eastwood and Williams (2018), "A framework for the quantitative evaluation of disentangled
    representations", ICLR. There informativeness is an error, so that 0 is best.
    """
    check_option("estimator", estimator, ("trees", "lasso"))
    z, codes = check_rows("latents", latents, "representation", representation)
    kinds = resolve_kinds(z, factor_kinds)
    z, codes = rescale(z), rescale(codes)
    rng = as_numpy_generator(seed)
    train, test = split(len(z), test_fraction, rng)
    excluded, kept = constant_on_either(z, train, test)
    scale = standardise(codes[train])
    fit_codes, new_codes = scale(codes[train]), scale(codes[test])

    importance = np.full((codes.shape[1], z.shape[1]), np.nan)
    informativeness = np.full(z.shape[1], np.nan)
    baseline = np.full(z.shape[1], np.nan)
    for k in progress_bar(kept, show=progress, desc="DCI"):
        fit_z, new_z = z[train, k], z[test, k]
        state = int(rng.integers(2**31))
        if kinds[k] == "continuous":
            target = (fit_z - fit_z.mean()) / fit_z.std()
            truth = (new_z - fit_z.mean()) / fit_z.std()
            model, weights = _fit_regression(estimator, fit_codes, target, state)
            spread = ((truth - truth.mean()) ** 2).sum()
            informativeness[k] = 1 - ((truth - model.predict(new_codes)) ** 2).sum() / spread
            baseline[k] = 0.0
        else:
            classes, labels = np.unique(fit_z, return_inverse=True)
            model, weights = _fit_classifier(estimator, fit_codes, labels, int(k), state)
            informativeness[k] = np.mean(classes[model.predict(new_codes)] == new_z)
            baseline[k] = np.mean(new_z == classes[np.bincount(labels).argmax()])
        total = weights.sum()
        importance[:, k] = weights / total if total > 0 else 0.0

    per_code, per_factor = np.full(codes.shape[1], np.nan), np.full(z.shape[1], np.nan)
    disentanglement, per_code[:], per_factor[kept] = scores_from_importance(importance[:, kept])
    undefined = {}
    if len(kept) == 1:
        undefined["disentanglement"] = "one single factor"
    if codes.shape[1] == 1:
        undefined["completeness"] = "one single code"
    return DCIResult(
        disentanglement=disentanglement,
        completeness=mean_of_kept(per_factor),
        informativeness=mean_of_kept(informativeness),
        importance=importance,
        per_code=per_code,
        per_factor=per_factor,
        informativeness_per_factor=informativeness,
        baseline=baseline,
        excluded=excluded,
        undefined=undefined,
        factor_kinds=kinds,
        estimator=estimator,
        n_train=len(train),
        n_test=len(test),
    )


def scores_from_importance(importance: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Turn importances into disentanglement and completeness.

    Parameters
    ----------
    importance
        Non-negative, shape (n_codes, n_factors).

    Returns
    -------
    disentanglement : float
        Σ_i ρ_i (1 − H_K(P_i)); 0 if nothing has importance, NaN with fewer than two factors.
    per_code : numpy.ndarray
        1 − H_K(P_i), shape (n_codes,); NaN for codes of no importance.
    per_factor : numpy.ndarray
        1 − H_D(P̃_j), shape (n_factors,); 0 for factors for which no code has importance, NaN
        with fewer than two codes.
    """
    n_codes, n_factors = importance.shape
    per_code = np.full(n_codes, np.nan)
    per_factor = np.full(n_factors, np.nan)
    of_codes, of_factors = importance.sum(axis=1), importance.sum(axis=0)
    disentanglement = float("nan")
    if n_factors > 1:
        used = of_codes > 0
        shares = importance[used] / of_codes[used, None]
        per_code[used] = 1 - entr(shares).sum(axis=1) / np.log(n_factors)
        weights = of_codes[used] / of_codes.sum() if used.any() else 0.0
        disentanglement = float(np.sum(weights * per_code[used]))
    if n_codes > 1:
        predicted = of_factors > 0
        shares = importance[:, predicted] / of_factors[predicted]
        per_factor[predicted] = 1 - entr(shares).sum(axis=0) / np.log(n_codes)
        per_factor[~predicted] = 0.0
    return disentanglement, per_code, per_factor


def _fit_regression(
    estimator: str, codes: np.ndarray, target: np.ndarray, state: int
) -> tuple[Any, np.ndarray]:
    if estimator == "trees":
        trees = ExtraTreesRegressor(**_tree_settings(len(codes)), random_state=state)
        trees.fit(codes, target)
        return trees, trees.feature_importances_
    _check_fit_rows(len(codes))
    lasso = LassoCV(cv=FOLDS, max_iter=10_000).fit(codes, target)
    return lasso, np.abs(lasso.coef_)


def _fit_classifier(
    estimator: str, codes: np.ndarray, labels: np.ndarray, factor: int, state: int
) -> tuple[Any, np.ndarray]:
    if estimator == "trees":
        trees = ExtraTreesClassifier(**_tree_settings(len(codes)), random_state=state)
        trees.fit(codes, labels)
        return trees, trees.feature_importances_
    _check_fit_rows(len(codes))
    smallest = np.bincount(labels).min()
    if smallest < FOLDS:
        raise ValueError(
            f"estimator 'lasso' needs at least {FOLDS} rows of each class to fit, got {smallest} "
            f"of one class of factor {factor}; use estimator='trees', more rows or fewer classes"
        )
    # From the least penalty that leaves no code in, downwards, as in a lasso path; bounded below
    # for codes that are constant or have exactly equal means in all classes.
    indicators = labels[:, None] == np.arange(labels.max() + 1)
    highest = np.abs(codes.T @ (indicators - indicators.mean(axis=0))).max()
    highest = max(highest, 1e-3 * len(codes))
    folds = StratifiedKFold(FOLDS)
    candidates = [_l1_logistic(1 / (highest * ratio), state) for ratio in np.logspace(0, -2, 5)]
    losses = [
        -cross_val_score(model, codes, labels, cv=folds, scoring="neg_log_loss").mean()
        for model in candidates
    ]
    model = candidates[int(np.argmin(losses))].fit(codes, labels)
    return model, np.abs(model.coef_).sum(axis=0)


def _l1_logistic(inverse_penalty: float, state: int) -> LogisticRegression:
    # scikit-learn 1.8 gave the L1 penalty another name; before, no ratio was the default.
    has_old_name = LogisticRegression().l1_ratio is None
    penalty = {"penalty": "l1"} if has_old_name else {"l1_ratio": 1.0}
    return LogisticRegression(
        **penalty, C=inverse_penalty, solver="saga", tol=1e-3, max_iter=2000, random_state=state
    )


def _tree_settings(n_rows: int) -> dict[str, Any]:
    # All codes are tried at each split: with a random choice among them, codes that know nothing
    # would be split on where the right one is not on offer, and gain importance.
    leaf = min(5, max(1, n_rows // 10))
    return {"n_estimators": TREES, "max_features": None, "min_samples_leaf": leaf}


def _check_fit_rows(n_rows: int) -> None:
    if n_rows < 2 * FOLDS:
        raise ValueError(
            f"estimator 'lasso' needs at least {2 * FOLDS} rows to fit, got {n_rows}; "
            "use estimator='trees' or more rows"
        )
