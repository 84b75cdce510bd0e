"""Few-shot classifiers on frozen embeddings, and what they can say about independence.

A linear probe with an L2 penalty is rotation invariant: for an orthogonal Q, the loss at weights W
on features z equals the loss at WQᵀ on features Qz, penalty included, so both have the same
minimiser up to that map and make the same predictions. PCA+FastICA features are a rotation of
PCA-whitened features. Whatever such a probe gains from them over raw features is therefore a gain
of whitening, and PCA-whitening has to be in the comparison. To see independence itself, take probes
that are not rotation invariant: an L1 penalty, a forest, nearest centroids on few components.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student_t
from sklearn.base import BaseEstimator, clone

from tutorials_lib._probe_classifiers import CentroidProbe, ForestProbe, LinearProbe
from tutorials_lib._probe_features import FEATURES, PCAFeatures, features, few_shot_split
from tutorials_lib._probing import (
    ValidatedProbe,
    as_labels,
    as_rows,
    hits,
    scaled_rows,
    several,
)
from tutorials_lib._progress import progress_bar
from tutorials_lib._tip_adapter import TipAdapter, TipAdapterF
from tutorials_lib._validation import check_integer

__all__ = [
    "FEATURES",
    "CentroidProbe",
    "ForestProbe",
    "Labelled",
    "LinearProbe",
    "PCAFeatures",
    "ProbeComparison",
    "ProbeRecord",
    "ProbeSummary",
    "TipAdapter",
    "TipAdapterF",
    "ValidatedProbe",
    "compare_probes",
    "features",
    "few_shot_split",
    "probe_records",
    "zero_shot_accuracy",
]

# What a probe is called, and how it is made for a seed.
_PROBES = {
    "l2": lambda seed: LinearProbe("l2"),
    "l1": lambda seed: LinearProbe("l1", seed=seed),
    "forest": lambda seed: ForestProbe(seed=seed),
    "centroid": lambda seed: CentroidProbe(),
}


class Labelled(NamedTuple):
    """Embeddings to be tested on.

    Attributes
    ----------
    vectors
        Shape (N, d).
    labels
        N labels.
    among
        Labels that compete, for sets that hold some of the classes only; ``None`` for all.
    """

    vectors: Any
    labels: Any
    among: Any = None


@dataclass(frozen=True)
class ProbeRecord:
    """One probe, fitted once.

    Attributes
    ----------
    probe, features, shots, seed
        What was fitted, on which features, on how many rows of each class, chosen by which seed.
    n_features
        Number of columns that the probe saw.
    accuracy
        By test set, from 0 to 1: ``"source"``, each shift, and with several shifts
        ``"shift average"``, their mean.
    validation_accuracy
        Of the chosen fit.
    chosen
        What validation chose.
    """

    probe: str
    features: str
    shots: int
    seed: int
    n_features: int
    accuracy: dict[str, float]
    validation_accuracy: float
    chosen: dict[str, float]


@dataclass(frozen=True)
class ProbeSummary:
    """Accuracies of one probe on one test set over seeds.

    Attributes
    ----------
    probe, features, shots, test
        What was fitted, and on what it was tested.
    n_seeds
        Number of draws of the shots.
    mean, sd
        Of the accuracies; ``sd`` with n − 1, NaN for one seed.
    low, high
        Interval for the mean by Student's t: mean ± t · sd / √n. It covers draws of the shots; the
        test rows and the features' pool are the same throughout.
    difference, difference_low, difference_high
        Mean of the differences to the baseline with the same shots, seed by seed, and its
        interval. Pairing takes out what all features find hard in a draw.
    """

    probe: str
    features: str
    shots: int
    test: str
    n_seeds: int
    mean: float
    sd: float
    low: float
    high: float
    difference: float
    difference_low: float
    difference_high: float


@dataclass(frozen=True, eq=False, repr=False)
class ProbeComparison:
    """All fits of a comparison.

    Attributes
    ----------
    records
        One for each fit.
    """

    records: tuple[ProbeRecord, ...]

    def summary(
        self, *, baseline: str = "raw", confidence: float = 0.95
    ) -> tuple[ProbeSummary, ...]:
        """Summarise over seeds.

        Parameters
        ----------
        baseline
            Features that the others are compared with.
        confidence
            Of the intervals, between 0 and 1.

        Returns
        -------
        tuple of ProbeSummary
            In the order of the records, one for each test set.

        Raises
        ------
        ValueError
            If the baseline lacks a fit that it would be paired with.
        """
        if not 0 < confidence < 1:
            raise ValueError(f"confidence must lie between 0 and 1, got {confidence!r}")
        table: dict[tuple[str, str, int, str], dict[int, float]] = {}
        for record in self.records:
            for test, accuracy in record.accuracy.items():
                key = (record.probe, record.features, record.shots, test)
                table.setdefault(key, {})[record.seed] = accuracy
        rows = []
        for (probe, name, shots, test), by_seed in table.items():
            base = table.get((probe, baseline, shots, test), {})
            missing = sorted(set(by_seed) - set(base))
            if missing:
                raise ValueError(
                    f"no fit of {probe} on {baseline!r} with {shots} shots and seeds {missing[:5]} "
                    f"to compare {name!r} with; choose another baseline or run it"
                )
            values = np.array(list(by_seed.values()))
            differences = values - np.array([base[seed] for seed in by_seed])
            mean, sd, low, high = _interval(values, confidence)
            gain, _, gain_low, gain_high = _interval(differences, confidence)
            rows.append(
                ProbeSummary(
                    probe,
                    name,
                    shots,
                    test,
                    len(values),
                    mean,
                    sd,
                    low,
                    high,
                    gain,
                    gain_low,
                    gain_high,
                )
            )
        return tuple(rows)

    def __repr__(self) -> str:
        lines = [f"{len(self.records)} fits; mean accuracy in %, ± half a 95 % interval over seeds"]
        if not self.records:
            return lines[0]
        names = {record.features for record in self.records}
        baseline = "raw" if "raw" in names else self.records[0].features

        def number(mean: float, high: float, sign: str = "") -> str:
            half = f" ± {100 * (high - mean):5.2f}" if math.isfinite(high) else " " * 8
            return f"{100 * mean:{sign}7.2f}{half}"

        for row in self.summary(baseline=baseline):
            line = f"{row.probe:9} {row.features:14} {row.shots:3} shots  {row.test:14}"
            line += number(row.mean, row.high)
            if row.features != baseline:
                line += number(row.difference, row.difference_high, "+") + f" against {baseline}"
            lines.append(line.rstrip())
        return "\n".join(lines)


def probe_records(
    train: Any,
    labels: Any,
    *,
    source: Labelled | tuple[Any, Any],
    shifts: Mapping[str, Labelled | tuple[Any, Any]] | None = None,
    shots: Sequence[int] = (2,),
    seeds: int | Sequence[int] = 10,
    features: Sequence[str] | Mapping[str, BaseEstimator] = (
        "raw",
        "whitening",
        "FastICA",
        "PCA-whitening",
        "PCA+FastICA",
    ),
    n_components: int | None = None,
    probe: str | ValidatedProbe | Mapping[str, ValidatedProbe] = "l2",
    validation_shots: int | None = None,
    pool: Any = "train",
    done: Any = (),
    progress: bool = True,
) -> Iterator[ProbeRecord]:
    """Fit probes one by one, and yield a record of each; see `compare_probes`.

    Parameters
    ----------
    train, labels, source, shifts, shots, seeds, features, n_components, probe, validation_shots, \
pool, progress
        As in `compare_probes`.
    done
        Fits to leave out, as (probe, features, shots, seed), so that a run can be taken up again.

    Yields
    ------
    ProbeRecord
        Features by features, then by shots, seed and probe.

    Raises
    ------
    TypeError, ValueError
        As in `compare_probes`.
    """
    train = as_rows("train", train)
    labels = as_labels("labels", labels, len(train))
    tests = {"source": _labelled("source", source)}
    tests |= {name: _labelled(name, test) for name, test in (shifts or {}).items()}
    reserved = {"source", "shift average"} & set(shifts or {})
    if reserved:
        raise ValueError(f"a shift cannot be called {reserved.pop()!r}, choose another name")
    tests = {
        name: Labelled(as_rows(name, test.vectors), test.labels, test.among)
        for name, test in tests.items()
    }
    if np.ndim(seeds) == 0:
        seeds = range(check_integer("seeds", seeds, 1))
    seeds, shots = _distinct("seeds", seeds, 0), _distinct("shots", shots, 1)
    if validation_shots is not None:
        # Without validation rows nothing could be chosen.
        check_integer("validation_shots", validation_shots, 1)
    transformers = _named_transformers(features, n_components, progress)
    makers = _named_probes(probe)
    on_shots = isinstance(pool, str) and pool == "shots"
    if isinstance(pool, str):
        if pool not in ("train", "shots"):
            raise ValueError(f"pool must be 'train', 'shots' or embeddings, got {pool!r}")
        pool = train
    done = set(done)
    jobs = [
        (name, number, seed)
        for name in transformers
        for number in shots
        for seed in seeds
        if any((kind, name, number, seed) not in done for kind in makers)
    ]
    current: str | None = None
    for name, number, seed in progress_bar(jobs, show=progress, desc="probes"):
        rows, validation = few_shot_split(
            labels, shots=number, validation_shots=validation_shots, seed=seed
        )
        if name != current or on_shots:
            transformer = clone(transformers[name]).fit(train[rows] if on_shots else pool)
            moved = {
                test: part._replace(vectors=transformer.transform(part.vectors))
                for test, part in tests.items()
            }
            current = name
        for kind, make in makers.items():
            if (kind, name, number, seed) in done:
                continue
            fitted = make(seed)
            own = "transform" in fitted.get_params(deep=False)
            if own:
                # An adapter transforms its cache only, and needs the embeddings as they are.
                fitted.set_params(transform=transformer)
            X, X_val = train[rows], train[validation]
            if not own:
                X, X_val = transformer.transform(X), transformer.transform(X_val)
            fitted.fit(X, labels[rows], X_val, labels[validation])
            accuracy = {
                test: fitted.score(part.vectors, part.labels, among=part.among)
                for test, part in (tests if own else moved).items()
            }
            if len(tests) > 2:
                accuracy["shift average"] = float(
                    np.mean([value for test, value in accuracy.items() if test != "source"])
                )
            yield ProbeRecord(
                kind,
                name,
                number,
                seed,
                int(moved["source"].vectors.shape[1]),
                accuracy,
                fitted.validation_accuracy,
                dict(fitted.chosen),
            )


def compare_probes(
    train: Any,
    labels: Any,
    *,
    source: Labelled | tuple[Any, Any],
    shifts: Mapping[str, Labelled | tuple[Any, Any]] | None = None,
    shots: Sequence[int] = (2,),
    seeds: int | Sequence[int] = 10,
    features: Sequence[str] | Mapping[str, BaseEstimator] = (
        "raw",
        "whitening",
        "FastICA",
        "PCA-whitening",
        "PCA+FastICA",
    ),
    n_components: int | None = None,
    probe: str | ValidatedProbe | Mapping[str, ValidatedProbe] = "l2",
    validation_shots: int | None = None,
    pool: Any = "train",
    progress: bool = True,
) -> ProbeComparison:
    """Compare features by few-shot probes, over many draws of the shots.

    In the paper whose protocol this is (Liu et al. 2026, "Beyond DAGs: A latent partial causal
    model for multimodal learning") a linear classifier is trained on the shots of ImageNet, on
    frozen embeddings ① as they are, ② after FastICA, ③ after PCA and FastICA, and tested on
    ImageNet and on four shifted test sets. The whitening controls are added here: see `features`.

    Parameters
    ----------
    train, labels
        Embeddings of shape (N, d) and N labels, which the shots are drawn from.
    source
        Test embeddings and labels of the training domain, ``(vectors, labels)`` or a `Labelled`.
    shifts
        The same for shifted domains, by name.
    shots
        Numbers of training rows of each class, or one number.
    seeds
        Number of draws, or the seeds themselves, each once.
    features
        Names for `features`, or transformers by name; FastICA starts from one fixed seed.
    n_components
        Number of principal directions, for the names that begin with PCA.
    probe
        ``"l2"``, ``"l1"``, ``"forest"``, ``"centroid"``, or several of these; a probe, or probes by
        name. A `TipAdapter` gets the features as its ``transform``.
    validation_shots
        Rows of each class that the choices are made on, at least 1; see `few_shot_split`.
    pool
        What the transformers are fitted on, without labels: ``"train"``, all training rows, which
        is right where unlabelled images are at hand; ``"shots"``, the training shots alone, which
        needs more shots than components; or other embeddings. The test rows are never used.
    progress
        Whether to show a progress bar.

    Returns
    -------
    ProbeComparison
        One record a fit; ``summary()`` has means, intervals, and paired differences.

    Raises
    ------
    TypeError, ValueError
        If shapes, types or names do not fit, or a class has too few rows.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(90) % 3
    >>> X = np.eye(3)[y] + 0.5 * rng.normal(size=(90, 3))
    >>> compared = compare_probes(
    ...     X[:60], y[:60], source=(X[60:], y[60:]), features=("raw", "whitening"), progress=False
    ... )
    >>> [row.n_seeds for row in compared.summary()]
    [10, 10]
    """
    records = probe_records(
        train,
        labels,
        source=source,
        shifts=shifts,
        shots=shots,
        seeds=seeds,
        features=features,
        n_components=n_components,
        probe=probe,
        validation_shots=validation_shots,
        pool=pool,
        progress=progress,
    )
    return ProbeComparison(tuple(records))


def _labelled(name: str, test: Any) -> Labelled:
    if not isinstance(test, tuple | list) or len(test) not in (2, 3):
        raise TypeError(
            f"{name} must be a pair (vectors, labels) or a Labelled, got {type(test).__name__}"
        )
    return Labelled(*test)


def _distinct(name: str, numbers: Any, minimum: int) -> list[int]:
    """Check whole numbers, of which none may occur twice: pairing goes by them."""
    checked = [check_integer(name, number, minimum) for number in several(name, numbers)]
    if len(set(checked)) < len(checked):
        raise ValueError(f"{name} must be distinct, got {checked}")
    return checked


def _named_transformers(
    names: Sequence[str] | Mapping[str, BaseEstimator], n_components: int | None, progress: bool
) -> dict[str, BaseEstimator]:
    if isinstance(names, Mapping):
        return dict(names)
    names = (names,) if isinstance(names, str) else tuple(names)
    if not names:
        raise ValueError(f"features must name at least one of {', '.join(FEATURES)}")
    return {name: features(name, n_components, progress=progress) for name in names}


def _named_probes(probe: Any) -> dict[str, Any]:
    if isinstance(probe, str):
        probe = (probe,)
    if isinstance(probe, ValidatedProbe):
        probe = {type(probe).__name__: probe}
    if isinstance(probe, Mapping):
        return {name: _maker(each) for name, each in probe.items()}
    if isinstance(probe, type) or not isinstance(probe, Iterable):
        raise TypeError(
            f"probe must be among {', '.join(_PROBES)}, or a probe such as LinearProbe(), got "
            f"{probe!r}"
        )
    unknown = [name for name in probe if name not in _PROBES]
    if unknown:
        raise ValueError(
            f"probe must be among {', '.join(_PROBES)}, or a probe, got {unknown[0]!r}"
        )
    return {name: _PROBES[name] for name in probe}


def _maker(probe: ValidatedProbe) -> Any:
    def make(seed: int) -> ValidatedProbe:
        made = clone(probe)
        return made.set_params(seed=seed) if "seed" in made.get_params(deep=False) else made

    return make


def _interval(values: np.ndarray, confidence: float) -> tuple[float, float, float, float]:
    """Mean, standard deviation, and Student's interval of the mean."""
    n, mean = len(values), float(values.mean())
    if n < 2:
        return mean, math.nan, math.nan, math.nan
    sd = float(values.std(ddof=1))
    half = float(student_t.ppf((1 + confidence) / 2, n - 1)) * sd / math.sqrt(n)
    return mean, sd, mean - half, mean + half


def zero_shot_accuracy(
    images: Any, classes: Any, labels: Any, *, among: Sequence[int] | np.ndarray | None = None
) -> float:
    """Measure how often an image's own class has the highest cosine; a tie of k counts 1/k.

    Parameters
    ----------
    images
        Embeddings, shape (N, d); scaled to unit norm here.
    classes
        Zero-shot weights, one row for each class, shape (C, d); scaled to unit norm here.
    labels
        Row of ``classes`` that each image belongs to, N integers.
    among
        Rows of ``classes`` that compete; ``None`` for all.

    Returns
    -------
    float
        From 0 to 1; classes that know nothing get 1/C.

    Raises
    ------
    TypeError, ValueError
        If shapes or types do not fit, a vector is zero, or a label is no row of ``classes``.
    """
    images, classes = as_rows("images", images), as_rows("classes", classes)
    labels = as_labels("labels", labels, len(images))
    if images.shape[1] != classes.shape[1]:
        raise ValueError(
            f"images have {images.shape[1]} columns and classes {classes.shape[1]}; "
            "embed both with one model"
        )
    kept = np.arange(len(classes)) if among is None else np.unique(as_labels("among", among))
    wrong = np.setdiff1d(labels, kept)
    if not np.isin(kept, np.arange(len(classes))).all() or len(wrong):
        raise ValueError(
            f"labels and among must be rows of classes, 0 to {len(classes) - 1}, and labels among "
            f"those that compete; got labels {wrong[:5].tolist()} and among {kept[:5].tolist()}…"
        )
    return float(
        hits(
            scaled_rows("images", images) @ scaled_rows("classes", classes)[kept].T,
            np.searchsorted(kept, labels),
        ).mean()
    )
