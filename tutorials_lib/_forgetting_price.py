"""What it costs a critic to see captions through a map that forgets something.

`tutorials_lib.information` is where to import all of it from.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import rel_entr, xlogy

from tutorials_lib._arrays import as_float64, as_numpy_generator
from tutorials_lib._joint_laws import check_joint, relative_entropy
from tutorials_lib._validation import check_integer, check_positive

__all__ = ["BatchPrice", "ForgettingPrice", "batch_price", "price_of_forgetting"]


@dataclass(frozen=True, eq=False)
class ForgettingPrice:
    """The least losses of two kinds of critics and what lies between them, in nats.

    Attributes
    ----------
    image_side
        Price in the direction in which an image chooses among captions.
    text_side
        Price in the direction in which a caption chooses among images: I(x; t | ρ(t)).
    choice
        Price in the choices between a caption and its own hard negative, weighted.
    total
        Sum of the three.
    least_loss
        Least loss over all critics.
    least_loss_blind
        Least loss over critics that see ρ(t) only.
    critic, blind_critic
        Critics s(x, t) of shape (a, b) that attain the two. ``critic`` is −inf where a pair never
        occurs; ``blind_critic`` has equal columns for captions of one class.
    """

    image_side: float
    text_side: float
    choice: float
    total: float
    least_loss: float
    least_loss_blind: float
    critic: np.ndarray
    blind_critic: np.ndarray

    def __str__(self) -> str:
        return (
            f"price {self.total:.4f} = image side {self.image_side:.4f} + text side "
            f"{self.text_side:.4f} + choice {self.choice:.4f} (nats)"
        )


@dataclass(frozen=True)
class BatchPrice:
    """An estimate of the price in batches of one size.

    Attributes
    ----------
    price
        Mean over the batches, in nats.
    standard_error
        Of that mean, in nats.
    batch_size, n_batches
        How it was estimated.
    """

    price: float
    standard_error: float
    batch_size: int
    n_batches: int


def price_of_forgetting(
    joint: Any,
    forget: Sequence[Hashable],
    *,
    hard_negatives: Any = None,
    own_weight: float = 0.0,
) -> ForgettingPrice:
    """Compute by how much the least loss grows when the critic sees ρ(t) in the place of t.

    Without hard negatives the loss is L∞(s) = −2 E[s] + E_x log E_t e^s + E_t log E_x e^s, and the
    price is 2 I(x; t | ρ(t)).

    Hard negatives are further captions in the denominators of every image. A batch of B pairs then
    has captions of the law r = (p + q)/(1 + h), where q(t') = Σ_t p(t) Q(t, t') and h = Σ q. The
    price is E_x KL(p(t | x, ρ) ‖ r(t | ρ)) on the image side, by the chain rule of the relative
    entropy, and I(x; t | ρ(t)) on the text side, where negatives take no part. The choice between
    a caption and its own negative, −log σ(s(x, t) − s(x, t')) in the mean over the negatives, costs
    a critic that sees ρ only log 2, because both captions look the same to it, and costs nothing
    where s(x, t') = −∞.

    Parameters
    ----------
    joint
        Joint law of shape (a, b); see `check_joint`. A caption that never occurs, but is a hard
        negative, has a column of zeros.
    forget
        ρ: the class of each of the b captions, any hashable values.
    hard_negatives
        Q of shape (b, b): ``Q[t, u]`` is the probability that the negative of caption t is u. A row
        sums to 1, or is zero where no negative exists. None for none.
    own_weight
        Weight of the choices between a caption and its own negative; 0 leaves them out.

    Returns
    -------
    ForgettingPrice
        The price and its parts, both least losses, and critics that attain them.

    Raises
    ------
    TypeError, ValueError
        If ``joint`` is not a joint law; if ``forget`` or ``hard_negatives`` do not fit it; if
        choices have a weight, but a negative has another ρ than its caption or is true of an image
        together with it, for then the least loss has no closed form.

    References
    ----------
    Derived for this book; the chapter *The price of forgetting* has the proof.
    """
    p = check_joint(joint)
    classes = _classes(forget, p.shape[1])
    own_weight = own_weight and check_positive("own_weight", own_weight)
    p_x, p_t = p.sum(1), p.sum(0)
    r, choices = p_t, 0.0
    if hard_negatives is not None:
        negatives = _check_negatives(hard_negatives, p.shape[1])
        q = p_t @ negatives
        r = (p_t + q) / (1 + q.sum())
        choices = float(q.sum() > 0)
        if own_weight:
            _check_choices(p, negatives, classes)
    elif own_weight:
        raise ValueError(f"own_weight is {own_weight}, but there are no hard_negatives to choose")

    blind_p, blind_r = _pool(p, classes), _pool(r[None], classes)[0]
    text_full = relative_entropy(p, np.outer(p_x, p_t))
    text_blind = relative_entropy(blind_p, np.outer(p_x, blind_p.sum(0)))
    image_full = relative_entropy(p, np.outer(p_x, r))
    image_blind = relative_entropy(blind_p, np.outer(p_x, blind_r))
    image_side = _conditional_entropy(p, blind_p, r, blind_r, classes)
    text_side = _conditional_entropy(p, blind_p, p_t, blind_p.sum(0), classes)
    choice = own_weight * choices * math.log(2)
    return ForgettingPrice(
        image_side=image_side,
        text_side=text_side,
        choice=choice,
        total=image_side + text_side + choice,
        least_loss=-text_full - image_full,
        least_loss_blind=-text_blind - image_blind + choice,
        critic=_log_ratio(p, p_x, r),
        blind_critic=_log_ratio(blind_p, p_x, blind_r)[:, classes],
    )


def batch_price(
    joint: Any,
    forget: Sequence[Hashable],
    *,
    batch_size: int,
    n_batches: int = 2000,
    seed: int | np.random.Generator,
) -> BatchPrice:
    """Estimate the price of forgetting in batches of a finite size.

    PMI(x, t) minimises the symmetric InfoNCE loss of every batch size in the mean, and
    PMI(x, ρ(t)) does so among critics that see ρ(t) only. The price is the mean difference of the
    two losses on the same batches; it tends to `price_of_forgetting` as batches grow.

    Parameters
    ----------
    joint
        Joint law of shape (a, b); see `check_joint`.
    forget
        ρ: the class of each of the b captions.
    batch_size
        Pairs in a batch, at least 2.
    n_batches
        Batches to draw, at least 2.
    seed
        Integer or NumPy generator.

    Returns
    -------
    BatchPrice
        Mean and standard error.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of that.
    """
    p = check_joint(joint)
    classes = _classes(forget, p.shape[1])
    size = check_integer("batch_size", batch_size, 2)
    n_batches = check_integer("n_batches", n_batches, 2)
    generator = as_numpy_generator(seed)
    p_x = p.sum(1)
    blind_p = _pool(p, classes)[:, classes]
    ratio = _ratio(p, p_x, p.sum(0))
    blind_ratio = _ratio(blind_p, p_x, _pool(p, classes).sum(0)[classes])
    # A batch enters the loss through how often each pair occurs in it.
    counts = generator.multinomial(size, p.ravel(), size=n_batches).reshape(-1, *p.shape)
    prices = _batch_losses(counts, blind_ratio) - _batch_losses(counts, ratio)
    return BatchPrice(
        price=float(prices.mean()),
        standard_error=float(prices.std(ddof=1) / math.sqrt(n_batches)),
        batch_size=size,
        n_batches=n_batches,
    )


def _batch_losses(counts: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Symmetric InfoNCE, sum of both directions, of batches given by counts (batches, a, b)."""
    of_x, of_t = counts.sum(2), counts.sum(1)
    with np.errstate(divide="ignore"):
        sums = xlogy(of_x, of_t @ kernel.T).sum(1) + xlogy(of_t, of_x @ kernel).sum(1)
    return (sums - 2 * xlogy(counts, kernel).sum((1, 2))) / of_x.sum(1)


def _classes(forget: Sequence[Hashable], n: int) -> np.ndarray:
    values = list(forget)
    if len(values) != n:
        raise ValueError(
            f"forget needs the class of each of the {n} captions, got {len(values)} classes"
        )
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values])


def _check_negatives(hard_negatives: Any, n: int) -> np.ndarray:
    values = as_float64("hard_negatives", hard_negatives)
    if values.shape != (n, n):
        raise ValueError(f"hard_negatives must have shape ({n}, {n}), got {values.shape}")
    sums = values.sum(1)
    fits = np.isclose(sums, 1, rtol=0, atol=1e-8) | (sums == 0)
    if (values < 0).any() or not fits.all():
        wrong = int(np.flatnonzero((values < 0).any(1) | ~fits)[0])
        raise ValueError(
            "each row of hard_negatives must be non-negative and sum to 1, or be zero where no "
            f"negative exists; row {wrong} sums to {sums[wrong]:.6g}"
        )
    return values


def _check_choices(p: np.ndarray, negatives: np.ndarray, classes: np.ndarray) -> None:
    used = (negatives > 0) & (p.sum(0) > 0)[:, None]
    if (used & (classes[:, None] != classes)).any():
        t, u = np.argwhere(used & (classes[:, None] != classes))[0]
        raise ValueError(
            f"with own_weight, a hard negative must have the class of its caption; negative {u} of "
            f"caption {t} has another. Leave own_weight at 0, or drop these negatives"
        )
    both = ((p > 0).T.astype(float) @ (p > 0)) > 0
    if (used & both).any():
        t, u = np.argwhere(used & both)[0]
        raise ValueError(
            f"with own_weight, a hard negative must never be true where its caption is; captions "
            f"{t} and {u} share an image. Leave own_weight at 0, or drop these negatives"
        )


def _pool(p: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Sum columns of one class."""
    pooled = np.zeros((len(p), classes.max() + 1))
    np.add.at(pooled.T, classes, p.T)
    return pooled


def _conditional_entropy(
    p: np.ndarray, blind_p: np.ndarray, r: np.ndarray, blind_r: np.ndarray, classes: np.ndarray
) -> float:
    """E_x KL(p(t | x, ρ) ‖ r(t | ρ)), from the conditional laws."""
    inside = np.divide(r, blind_r[classes], out=np.zeros_like(r), where=r > 0)
    return max(0.0, float(rel_entr(p, blind_p[:, classes] * inside).sum()))


def _ratio(p: np.ndarray, p_x: np.ndarray, r: np.ndarray) -> np.ndarray:
    product = np.outer(p_x, r)
    return np.divide(p, product, out=np.zeros_like(p), where=product > 0)


def _log_ratio(p: np.ndarray, p_x: np.ndarray, r: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(_ratio(p, p_x, r))
