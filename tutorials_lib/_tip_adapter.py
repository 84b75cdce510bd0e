"""Tip-Adapter: a zero-shot classifier, corrected by what is near in a cache of few shots."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tutorials_lib._probing import ValidatedProbe, as_labels, as_rows, hits, several
from tutorials_lib._progress import progress_bar
from tutorials_lib._validation import (
    as_generator,
    check_integer,
    check_positive,
    resolve_device,
)

__all__ = ["ALPHAS", "BETAS", "TipAdapter", "TipAdapterF"]

# Grids that span those which the authors search (α up to 3 or more, β up to 7 and beyond), with
# α = 0, the zero-shot classifier itself, first.
ALPHAS = (0.0, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)
BETAS = (0.5, 1.0, 2.0, 3.0, 5.5, 8.0, 12.0)


@dataclass(frozen=True, eq=False)
class _Cache:
    """Keys (N, k), one-hot values (N, C), zero-shot weights (C, d), and how they combine."""

    keys: torch.Tensor
    values: torch.Tensor
    weights: torch.Tensor
    scale: float
    alpha: float
    beta: float
    transform: Any

    def scores(self, rows: np.ndarray) -> np.ndarray:
        clip = self.zero_shot(rows)
        near = _near(self.embed(rows), self.keys, self.beta) @ self.values
        return (clip + self.alpha * near).cpu().numpy()

    def zero_shot(self, rows: np.ndarray) -> torch.Tensor:
        return self.scale * _unit(rows, self.weights.device) @ self.weights.T

    def embed(self, rows: np.ndarray) -> torch.Tensor:
        moved = rows if self.transform is None else self.transform.transform(rows)
        return _unit(moved, self.weights.device)


class TipAdapter(ValidatedProbe):
    """Training-free adapter of a zero-shot classifier.

    For an image embedding f of unit norm, the class scores are

        s · f Wᵀ + α · exp(−β (1 − f Kᵀ)) L,

    with the zero-shot weights W, the embeddings K of the training rows and their labels L,
    one-hot. With ``transform`` the second term is computed from transformed embeddings, scaled to
    unit norm again; the first term stays as it is, since texts live in the embedding's own space.

    Cosines do not change under a rotation, so PCA+FastICA and PCA-whitening of one dimension give
    this classifier the same scores. A gain that both show is due to whitening.

    Parameters
    ----------
    weights
        Zero-shot weights of the classes in sorted order of their labels, shape (C, d).
    alpha, beta
        A number, or several for validation to choose from. With α = 0 among them, the choice is
        no worse than zero-shot on the validation rows.
    scale
        s, the inverse temperature of the zero-shot logits; 100 for CLIP.
    transform
        A fitted transformer, see `features`; ``None`` for the embeddings as they are.
    device
        Where to compute, in float32; ``None`` for the best there is.

    References
    ----------
    Zhang et al. (2022), "Tip-Adapter: Training-free adaption of CLIP for few-shot classification",
    ECCV, arXiv:2207.09519, equations 5 and 6. α, β are chosen on validation rows here.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> weights, y = np.eye(3), np.arange(12) % 3
    >>> X = weights[y] + 0.1 * rng.normal(size=(12, 3))
    >>> TipAdapter(weights, device="cpu").fit(X[:6], y[:6], X[6:], y[6:]).score(X, y)
    1.0
    """

    _has_log_loss = True

    def __init__(
        self,
        weights: Any,
        *,
        alpha: float | Sequence[float] = ALPHAS,
        beta: float | Sequence[float] = BETAS,
        scale: float = 100.0,
        transform: Any = None,
        device: str | torch.device | None = None,
    ) -> None:
        self.weights = weights
        self.alpha = alpha
        self.beta = beta
        self.scale = scale
        self.transform = transform
        self.device = device

    def _fits(
        self, rows: np.ndarray, positions: np.ndarray, n_classes: int
    ) -> Iterator[tuple[dict[str, float], _Cache]]:
        empty = self._empty_cache(rows, n_classes)
        keys, values = empty.embed(rows), self._values(positions, n_classes)
        yield from self._grid(empty, keys, values)

    def _empty_cache(self, rows: np.ndarray, n_classes: int) -> _Cache:
        weights = as_rows("weights", self.weights)
        if weights.shape != (n_classes, rows.shape[1]):
            raise ValueError(
                f"weights must have shape ({n_classes}, {rows.shape[1]}), one row for each class "
                f"of y, got {weights.shape}"
            )
        device = resolve_device(self.device)
        self._alphas = _grid_of("alpha", self.alpha)
        self._betas = _grid_of("beta", self.beta)
        nothing = torch.empty(0, device=device)
        scale = check_positive("scale", self.scale)
        unit = _unit(weights, device)
        return _Cache(nothing, nothing, unit, scale, 0.0, 1.0, self.transform)

    def _values(self, positions: np.ndarray, n_classes: int) -> torch.Tensor:
        labels = torch.from_numpy(positions).to(resolve_device(self.device))
        return functional.one_hot(labels, n_classes).float()

    def _grid(
        self, empty: _Cache, keys: torch.Tensor, values: torch.Tensor, **also: float
    ) -> Iterator[tuple[dict[str, float], _Cache]]:
        for alpha, beta in itertools.product(self._alphas, self._betas):
            cache = _Cache(keys, values, empty.weights, empty.scale, alpha, beta, empty.transform)
            yield {"alpha": alpha, "beta": beta, **also}, cache


class TipAdapterF(TipAdapter):
    """Tip-Adapter whose keys are then trained.

    The keys start at the training embeddings and are moved by AdamW, with a cosine schedule, to
    lower the cross-entropy of the same scores on the training rows. α and β are chosen on
    validation rows for the untrained keys, the number of epochs for these, and α and β once more
    for the trained keys. ``chosen["epoch"]`` is 0 where training did not help.

    The embeddings are fixed, so images are not augmented between epochs as in the authors' code.
    Adam treats each coordinate for itself: unlike `TipAdapter`, this one sees rotations.

    Parameters
    ----------
    weights, alpha, beta, scale, transform, device
        As in `TipAdapter`.
    learning_rate
        Of AdamW, at the start.
    epochs
        How often the training rows are seen.
    choose_epoch
        Whether validation chooses among the epochs; if not, the last one is taken.
    batch_size
        Rows in a step.
    seed
        Integer or generator; decides the order of the rows.
    progress
        Whether to show a progress bar.

    References
    ----------
    Zhang et al. (2022), arXiv:2207.09519, section 3.2.
    """

    def __init__(
        self,
        weights: Any,
        *,
        alpha: float | Sequence[float] = ALPHAS,
        beta: float | Sequence[float] = BETAS,
        scale: float = 100.0,
        transform: Any = None,
        device: str | torch.device | None = None,
        learning_rate: float = 1e-3,
        epochs: int = 20,
        choose_epoch: bool = True,
        batch_size: int = 256,
        seed: int | torch.Generator = 0,
        progress: bool = False,
    ) -> None:
        super().__init__(
            weights, alpha=alpha, beta=beta, scale=scale, transform=transform, device=device
        )
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.choose_epoch = choose_epoch
        self.batch_size = batch_size
        self.seed = seed
        self.progress = progress

    def fit(self, X: Any, y: Any, X_val: Any, y_val: Any) -> TipAdapterF:
        """Train the keys and choose α, β and the epoch; see `TipAdapter.fit`."""
        start = TipAdapter(
            self.weights,
            alpha=self.alpha,
            beta=self.beta,
            scale=self.scale,
            transform=self.transform,
            device=self.device,
        ).fit(X, y, X_val, y_val)
        # Without a weight on the cache nothing would reach the keys.
        with_cache = [fit for fit in start.candidates if fit.options["alpha"] > 0]
        if not with_cache:
            raise ValueError("alpha = 0 leaves the cache out; the keys cannot be trained with it")
        self._start = max(with_cache, key=lambda fit: (fit.accuracy, -fit.log_loss)).options
        right = np.searchsorted(start.classes_, as_labels("y_val", y_val))
        self._validation = (as_rows("X_val", X_val), right)
        try:
            super().fit(X, y, X_val, y_val)
        finally:
            del self._start, self._validation
        return self

    def _fits(
        self, rows: np.ndarray, positions: np.ndarray, n_classes: int
    ) -> Iterator[tuple[dict[str, float], _Cache]]:
        empty = self._empty_cache(rows, n_classes)
        values = self._values(positions, n_classes)
        keys, epoch = self._train(empty, rows, torch.from_numpy(positions), values)
        yield from self._grid(empty, keys, values, epoch=epoch)

    def _train(
        self, empty: _Cache, rows: np.ndarray, positions: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, int]:
        epochs = check_integer("epochs", self.epochs, 1)
        batch_size = check_integer("batch_size", self.batch_size, 1)
        rate = check_positive("learning_rate", self.learning_rate)
        generator = as_generator(self.seed)
        alpha, beta = self._start["alpha"], self._start["beta"]
        device = values.device
        labels = positions.to(device)
        clip, embedded = empty.zero_shot(rows), empty.embed(rows)
        X_val, right = self._validation
        clip_val, embedded_val = empty.zero_shot(X_val), empty.embed(X_val)

        keys = embedded.clone().requires_grad_(True)
        optimiser = torch.optim.AdamW([keys], lr=rate, eps=1e-4)
        steps = epochs * -(-len(rows) // batch_size)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)

        def measured(epoch: int) -> tuple[float, float]:
            with torch.no_grad():
                scores = clip_val + alpha * _near(embedded_val, keys, beta) @ values
            if not torch.isfinite(scores).all():
                raise FloatingPointError(
                    f"the scores of Tip-Adapter-F are not finite after epoch {epoch}; "
                    "lower learning_rate or beta"
                )
            loss = functional.cross_entropy(scores, torch.from_numpy(right).to(device))
            return float(hits(scores.cpu().numpy(), right).mean()), -float(loss)

        best, best_epoch, best_keys = measured(0), 0, keys.detach().clone()
        for epoch in progress_bar(range(1, epochs + 1), show=self.progress, desc="Tip-Adapter-F"):
            for batch in torch.randperm(len(rows), generator=generator).split(batch_size):
                batch = batch.to(device)
                near = _near(embedded[batch], keys, beta) @ values
                loss = functional.cross_entropy(clip[batch] + alpha * near, labels[batch])
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                schedule.step()
            now = measured(epoch)
            if now > best or not self.choose_epoch:
                best, best_epoch, best_keys = now, epoch, keys.detach().clone()
        return best_keys, best_epoch


def _near(embedded: torch.Tensor, keys: torch.Tensor, beta: float) -> torch.Tensor:
    return torch.exp(-beta * (1 - embedded @ keys.T))


def _unit(rows: np.ndarray, device: torch.device) -> torch.Tensor:
    # Brought near one by a power of two, which rounds nothing: squares of very large or small
    # entries leave the range of float32.
    exponents = np.frexp(np.abs(rows).max(axis=1, keepdims=True))[1]
    near_one = np.ldexp(rows, -exponents).astype(np.float32)
    return functional.normalize(torch.from_numpy(np.ascontiguousarray(near_one)).to(device), dim=1)


def _grid_of(name: str, value: float | Sequence[float]) -> tuple[float, ...]:
    return tuple(check_positive(name, number, allow_zero=True) for number in several(name, value))
