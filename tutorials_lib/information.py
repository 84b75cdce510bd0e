"""Information on finite joint laws: PMI, mutual information and what the loss splits into.

A joint law of an image x with ``a`` values and a caption t with ``b`` values is an array of shape
(a, b) that is non-negative and sums to 1. Everything is float64, logarithms are natural, and
information is in nats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from tutorials_lib._arrays import as_float64, as_numpy_generator
from tutorials_lib._forgetting_price import (
    BatchPrice,
    ForgettingPrice,
    batch_price,
    price_of_forgetting,
)
from tutorials_lib._joint_laws import check_joint, check_law, relative_entropy
from tutorials_lib._validation import check_integer, check_positive

__all__ = [
    "BatchPrice",
    "ForgettingPrice",
    "LossDecomposition",
    "batch_price",
    "check_joint",
    "entropy",
    "kl_divergence",
    "loss_decomposition",
    "mutual_information",
    "pmi",
    "price_of_forgetting",
    "random_joint",
    "softmax_posteriors",
]


@dataclass(frozen=True)
class LossDecomposition:
    """The population loss of a critic, split into what it can lose and what it cannot.

    Attributes
    ----------
    kl_text
        E_x KL(p(t|x) ‖ q(t|x)), in nats: what retrieving captions by the critic loses.
    kl_image
        E_t KL(p(x|t) ‖ q(x|t)), in nats: the same for retrieving images.
    mutual_information
        I(x;t), in nats.
    loss
        L∞ = −2 E[s] + E_x log E_t e^s + E_t log E_x e^s, computed from that definition. It equals
        ``kl_text + kl_image - 2 * mutual_information`` up to rounding.
    """

    kl_text: float
    kl_image: float
    mutual_information: float
    loss: float

    def __str__(self) -> str:
        return (
            f"loss {self.loss:.4f} = KL text {self.kl_text:.4f} + KL image {self.kl_image:.4f} "
            f"− 2 × mutual information {self.mutual_information:.4f} (nats)"
        )


def pmi(joint: Any) -> np.ndarray:
    """Compute the pointwise mutual information log p(x,t) − log p(x) − log p(t).

    Parameters
    ----------
    joint
        Joint law of shape (a, b); see `check_joint`.

    Returns
    -------
    numpy.ndarray
        Shape (a, b), in nats; −inf where the joint is 0.

    Raises
    ------
    TypeError, ValueError
        If ``joint`` is not a joint law.
    """
    p = check_joint(joint)
    result = np.full(p.shape, -np.inf)
    rows, columns = np.nonzero(p)
    result[rows, columns] = (
        np.log(p[rows, columns]) - np.log(p.sum(1)[rows]) - np.log(p.sum(0)[columns])
    )
    return result


def mutual_information(joint: Any) -> float:
    """Compute I(x;t) = E[PMI].

    Parameters
    ----------
    joint
        Joint law of shape (a, b); see `check_joint`.

    Returns
    -------
    float
        The mutual information, in nats; at least 0.

    Raises
    ------
    TypeError, ValueError
        If ``joint`` is not a joint law.
    """
    p = check_joint(joint)
    # Logarithm by logarithm: a product of two marginals may be smaller than the smallest float.
    occurs = p > 0
    return max(0.0, float(np.sum(p[occurs] * pmi(p)[occurs])))


def entropy(p: Any) -> float:
    """Compute the Shannon entropy −Σ p log p.

    Parameters
    ----------
    p
        A law of any shape: non-negative, with sum 1.

    Returns
    -------
    float
        The entropy, in nats.

    Raises
    ------
    TypeError, ValueError
        If ``p`` is not a law.
    """
    p = check_law("p", p)
    return float(-np.sum(p * np.log(p, where=p > 0, out=np.zeros_like(p))))


def kl_divergence(p: Any, q: Any) -> float:
    """Compute KL(p ‖ q) = Σ p log(p/q).

    Parameters
    ----------
    p, q
        Two laws of the same shape: non-negative, each with sum 1.

    Returns
    -------
    float
        The divergence, in nats; at least 0, and inf where q forbids what p allows.

    Raises
    ------
    TypeError, ValueError
        If either is not a law, or if the shapes differ.
    """
    p, q = check_law("p", p), check_law("q", q)
    if p.shape != q.shape:
        raise ValueError(f"p and q must have the same shape, got {p.shape} and {q.shape}")
    return relative_entropy(p, q)


def softmax_posteriors(joint: Any, scores: Any) -> tuple[np.ndarray, np.ndarray]:
    """Compute the two conditional laws that a critic stands for.

    They are q(t|x) ∝ p(t) e^{s(x,t)} and q(x|t) ∝ p(x) e^{s(x,t)}.

    Parameters
    ----------
    joint
        Joint law of shape (a, b); only its marginals are used.
    scores
        Critic s(x, t) of shape (a, b). −inf is allowed: it forbids a pair.

    Returns
    -------
    q_t_given_x : numpy.ndarray
        Shape (a, b); each row sums to 1.
    q_x_given_t : numpy.ndarray
        Shape (a, b); each column sums to 1.

    Raises
    ------
    TypeError, ValueError
        If ``joint`` is not a joint law, if the shapes differ, if a score is NaN or +inf, or if a
        whole row or column is forbidden, so that there is no law to speak of.
    """
    log_text, log_image = _log_posteriors(*_joint_and_scores(joint, scores))
    return np.exp(log_text), np.exp(log_image)


def loss_decomposition(joint: Any, scores: Any) -> LossDecomposition:
    """Split the population loss of a critic into two divergences and mutual information.

    L∞(s) = E_x KL(p(t|x) ‖ q(t|x)) + E_t KL(p(x|t) ‖ q(x|t)) − 2 I(x;t), with q from
    `softmax_posteriors`. Both divergences vanish, and the loss is least, exactly where s = PMI up
    to one constant.

    Parameters
    ----------
    joint
        Joint law of shape (a, b); see `check_joint`.
    scores
        Critic s(x, t) of shape (a, b). −inf is allowed: it forbids a pair.

    Returns
    -------
    LossDecomposition
        The loss, computed from its definition, and its three parts. A critic that forbids a pair
        which occurs has an infinite loss.

    Raises
    ------
    TypeError, ValueError
        As in `softmax_posteriors`.

    References
    ----------
    The population form of the bound of van den Oord, Li and Vinyals (2018), "Representation
    learning with contrastive predictive coding", arXiv:1807.03748, for the symmetric loss.
    """
    p, s = _joint_and_scores(joint, scores)
    log_text, log_image = _log_posteriors(p, s)
    p_x, p_t = p.sum(1), p.sum(0)
    rows, columns = np.nonzero(p)
    mass = p[rows, columns]
    log_mass = np.log(mass)

    def expected(values: np.ndarray) -> float:
        return float(np.sum(mass * values))

    # In logarithms, since a posterior may be smaller than the smallest float.
    kl_text = expected(log_mass - np.log(p_x[rows]) - log_text[rows, columns])
    kl_image = expected(log_mass - np.log(p_t[columns]) - log_image[rows, columns])

    keep_x, keep_t = p_x > 0, p_t > 0
    log_mean_t = logsumexp(s[keep_x], axis=1, b=p_t)
    log_mean_x = logsumexp(s[:, keep_t], axis=0, b=p_x[:, None])
    loss = (
        -2.0 * expected(s[rows, columns])
        + float(p_x[keep_x] @ log_mean_t)
        + float(p_t[keep_t] @ log_mean_x)
    )
    return LossDecomposition(
        # Rounding leaves about −1e-16 where a divergence is 0.
        kl_text=max(0.0, kl_text),
        kl_image=max(0.0, kl_image),
        mutual_information=mutual_information(p),
        loss=loss,
    )


def random_joint(
    rows: int, columns: int, *, concentration: float = 1.0, seed: int | np.random.Generator
) -> np.ndarray:
    """Draw a joint law from a symmetric Dirichlet law.

    Parameters
    ----------
    rows, columns
        Numbers of values of x and of t.
    concentration
        Parameter of the Dirichlet law: 1 is uniform over all joints, a large value is close to
        the uniform joint (hardly any information), a small value puts the mass on few pairs.
    seed
        Integer or NumPy generator.

    Returns
    -------
    numpy.ndarray
        Shape (rows, columns).

    Raises
    ------
    TypeError, ValueError
        If a size is not a positive integer or ``concentration`` is not a positive number.
    """
    rows = check_integer("rows", rows, 1)
    columns = check_integer("columns", columns, 1)
    concentration = check_positive("concentration", concentration)
    draw = as_numpy_generator(seed).dirichlet(np.full(rows * columns, concentration))
    return draw.reshape(rows, columns)


def _joint_and_scores(joint: Any, scores: Any) -> tuple[np.ndarray, np.ndarray]:
    p = check_joint(joint)
    s = as_float64("scores", scores, finite=False)
    if s.shape != p.shape:
        raise ValueError(f"scores must have the shape of the joint, got {s.shape} and {p.shape}")
    bad = int((np.isnan(s) | np.isposinf(s)).sum())
    if bad:
        raise ValueError(
            f"scores must be finite or −inf, got {bad} NaN or +inf entries out of {s.size}"
        )
    return p, s


def _log_posteriors(p: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(divide="ignore"):
        log_p_x, log_p_t = np.log(p.sum(1)), np.log(p.sum(0))
    results = []
    for name, axis, log_weights in (("row", 1, log_p_t[None, :]), ("column", 0, log_p_x[:, None])):
        logits = s + log_weights
        empty = np.flatnonzero(np.all(np.isneginf(logits), axis=axis))
        if empty.size:
            raise ValueError(
                f"scores must leave each {name} at least one pair of positive marginal mass, but "
                f"{empty.size} have none (the first is {name} {empty[0]}); drop values that "
                "never occur from the joint, or give the pairs finite scores"
            )
        results.append(logits - logsumexp(logits, axis=axis, keepdims=True))
    return results[0], results[1]
