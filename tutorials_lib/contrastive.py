"""The symmetric contrastive loss, what it tends to, and a small trainer for a pair of encoders.

Throughout, ``x`` and ``t`` are embeddings of images and texts, one row each, row i of one paired
with row i of the other. A critic turns them into scores s(x, t); the loss asks each image to find
its text among all texts of the batch, and each text its image.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tutorials_lib._training import Encoder, History, train
from tutorials_lib._validation import as_generator, check_finite, check_integer, check_positive

__all__ = [
    "ContrastiveLoss",
    "Encoder",
    "History",
    "bias_constant",
    "critic",
    "info_nce",
    "info_nce_from_scores",
    "population_loss",
    "population_loss_monte_carlo",
    "sample_batch_losses",
    "train",
]

Kind = str | float
Ids = torch.Tensor | np.ndarray | Sequence[int]

# Index draws held in memory at a time.
_INDICES_PER_DRAW = 2**22
# Above this order, l_p distances are computed from scaled differences.
_LARGE_ORDER = 8


# --- critic and loss ------------------------------------------------------------------------------


def critic(
    x: torch.Tensor,
    t: torch.Tensor,
    *,
    kind: Kind = "cosine",
    temperature: float | torch.Tensor,
) -> torch.Tensor:
    """Score every row of ``x`` against every row of ``t``.

    Parameters
    ----------
    x, t
        Embeddings, shapes (N, d) and (M, d), of one floating dtype.
    kind
        ``"cosine"``: the dot product of the rows scaled to unit length; ``"dot"``: the dot product;
        ``"l1"``, ``"l2"`` or a number p >= 1 (``math.inf`` too): minus the l_p distance.
    temperature
        τ > 0, a number or a tensor with one entry; the scores are divided by it.

    Returns
    -------
    torch.Tensor
        Scores of shape (N, M).

    Raises
    ------
    TypeError
        If the embeddings are not floating-point tensors of one dtype.
    ValueError
        If the shapes do not match, an entry is NaN or infinite, ``kind`` or ``temperature`` is not
        allowed, or a row is zero where the cosine needs its direction.
    """
    _check_embeddings(x, t)
    _check_temperature(temperature)
    if kind == "cosine":
        return _unit_rows("x", x) @ _unit_rows("t", t).T / temperature
    if kind == "dot":
        return x @ t.T / temperature
    return -_distances(x, t, _norm_order(kind)) / temperature


def info_nce(
    x: torch.Tensor,
    t: torch.Tensor,
    *,
    temperature: float | torch.Tensor,
    kind: Kind = "cosine",
    ids: Ids | None = None,
    chunk_size: int | None = None,
) -> torch.Tensor:
    """Symmetric InfoNCE of N pairs: the sum of both directions, each a mean over the rows.

    The loss is L_N = −(1/N) Σ_i log softmax_j(s_ij)[i] − (1/N) Σ_i log softmax_j(s_ji)[i] with
    s = ``critic(x, t)``. It is at least 0. ``open_clip.loss.ClipLoss`` and the original CLIP report
    the average of the two directions, which is half of this sum.

    Parameters
    ----------
    x, t
        Embeddings of the N >= 2 pairs, both of shape (N, d).
    temperature, kind
        As for `critic`.
    ids
        One integer per pair; pairs with equal ids mean the same and count as positives of one
        another. The numerator then sums over all of them: −log Σ_{p ∈ P(i)} softmax(s_i)[p].
        Without ids a caption that occurs twice is its own negative, and its rows cannot fall below
        log 2 per direction.
    chunk_size
        Score this many rows at a time and recompute them in the backward pass, so that memory
        grows with ``chunk_size * N`` and not N². Value and gradient stay the same up to rounding.

    Returns
    -------
    torch.Tensor
        A scalar, in nats.

    Raises
    ------
    TypeError, ValueError
        As for `critic`; also if there are fewer than two pairs, the numbers of rows differ, or
        ``ids`` does not hold one integer per pair.

    References
    ----------
    van den Oord, Li, Vinyals (2018), "Representation learning with contrastive predictive coding";
    Radford et al. (2021), "Learning transferable visual models from natural language supervision";
    several positives inside the logarithm: Khosla et al. (2020), "Supervised contrastive learning",
    equation 3.
    """
    _check_embeddings(x, t)
    _check_pair_count(len(x), len(t))
    if chunk_size is None:
        return info_nce_from_scores(critic(x, t, kind=kind, temperature=temperature), ids)

    chunk_size = check_integer("chunk_size", chunk_size, 1)
    ids = torch.arange(len(x), device=x.device) if ids is None else _check_ids(ids, len(x), x)
    text_terms, image_sums, image_positive_sums = [], [], []
    for start in range(0, len(x), chunk_size):
        rows = slice(start, start + chunk_size)
        total, positive, column_total, column_positive = checkpoint(
            _chunk_sums, x[rows], t, temperature, kind, ids[rows], ids, use_reentrant=False
        )
        text_terms.append(total - positive)
        image_sums.append(column_total)
        image_positive_sums.append(column_positive)
    image_terms = torch.stack(image_sums).logsumexp(0) - torch.stack(image_positive_sums).logsumexp(
        0
    )
    return torch.cat(text_terms).mean() + image_terms.mean()


def info_nce_from_scores(scores: torch.Tensor, ids: Ids | None = None) -> torch.Tensor:
    """Symmetric InfoNCE from the scores themselves; `info_nce` says what it is.

    Parameters
    ----------
    scores
        Shape (N, N), N >= 2; entry (i, j) scores image i against text j, so positives lie on the
        diagonal.
    ids
        As for `info_nce`.

    Returns
    -------
    torch.Tensor
        A scalar, in nats: the sum of both directions.

    Raises
    ------
    TypeError, ValueError
        If ``scores`` is not a finite square floating-point matrix with at least two rows, or
        ``ids`` does not hold one integer per pair.
    """
    _check_matrix("scores", scores)
    _check_pair_count(*scores.shape)
    if ids is None:
        positives_of_images = positives_of_texts = scores.diagonal()
    else:
        ids = _check_ids(ids, len(scores), scores)
        positives = scores.masked_fill(ids[:, None] != ids, -math.inf)
        positives_of_images = positives.logsumexp(1)
        positives_of_texts = positives.logsumexp(0)
    image_to_text = scores.logsumexp(1) - positives_of_images
    text_to_image = scores.logsumexp(0) - positives_of_texts
    return image_to_text.mean() + text_to_image.mean()


class ContrastiveLoss(nn.Module):
    """`info_nce` with a temperature that can be learned.

    What is stored, as in CLIP, is ``log_scale`` = log(1/τ). It is clamped so that the scale 1/τ
    never exceeds ``max_scale``: the parameter itself is moved back to the bound at each use, so its
    gradient does not vanish there and it can come back.

    Parameters
    ----------
    kind
        The critic, as for `critic`.
    init_temperature
        τ to start from; CLIP's is 0.07. A sharp start can fold the representation, see the chapter
        on the sphere; 1.0 is safe.
    learn_temperature
        Whether τ is a parameter or stays as it is.
    max_scale
        Upper bound of 1/τ; CLIP's is 100.
    chunk_size
        As for `info_nce`.

    Raises
    ------
    ValueError
        If ``kind`` is unknown, a number is not positive, or 1/``init_temperature`` exceeds
        ``max_scale``.
    """

    def __init__(
        self,
        kind: Kind = "cosine",
        *,
        init_temperature: float = 0.07,
        learn_temperature: bool = True,
        max_scale: float = 100.0,
        chunk_size: int | None = None,
    ) -> None:
        super().__init__()
        if kind not in ("cosine", "dot"):
            _norm_order(kind)
        init_temperature = check_positive("init_temperature", init_temperature)
        self.kind = kind
        self.max_scale = check_positive("max_scale", max_scale)
        self.chunk_size = chunk_size
        if 1 / init_temperature > self.max_scale * (1 + 1e-12):
            raise ValueError(
                f"init_temperature must be at least 1/max_scale = {1 / self.max_scale:g}, got "
                f"{init_temperature:g}; raise max_scale for a sharper start"
            )
        log_scale = torch.tensor(-math.log(init_temperature))
        if learn_temperature:
            self.log_scale = nn.Parameter(log_scale)
        else:
            self.register_buffer("log_scale", log_scale)

    @property
    def temperature(self) -> float:
        """The temperature τ in use."""
        return math.exp(-min(self.log_scale.item(), math.log(self.max_scale)))

    def forward(self, x: torch.Tensor, t: torch.Tensor, ids: Ids | None = None) -> torch.Tensor:
        """Return the loss of the pairs (x, t), shapes (N, d); see `info_nce`."""
        with torch.no_grad():
            self.log_scale.clamp_(max=math.log(self.max_scale))
        return info_nce(
            x,
            t,
            temperature=torch.exp(-self.log_scale).to(x.dtype),
            kind=self.kind,
            ids=ids,
            chunk_size=self.chunk_size,
        )


# --- the limit of the loss ------------------------------------------------------------------------


def population_loss(joint: Any, scores: Any) -> torch.Tensor:
    """Limit of L_N − 2 log N as N grows, on a discrete joint distribution.

    L∞ = −2 E[s] + E_x log E_t e^s + E_t log E_x e^s. Its minimum over all scores is −2 I(x; t), and
    is attained where s = PMI + constant.

    Parameters
    ----------
    joint
        p(x, t), shape (a, b), non-negative, summing to one; array-like or tensor.
    scores
        s(x, t), shape (a, b); −inf is allowed (and harmless where the joint is zero). The result is
        differentiable in it.

    Returns
    -------
    torch.Tensor
        A scalar, in nats, float64.

    Raises
    ------
    ValueError
        If ``joint`` is not a distribution, or ``scores`` has another shape, NaN, +inf, or a row or
        column that occurs but is −inf throughout.

    References
    ----------
    Theorem 3.1 of "Beyond DAGs: a latent partial causal model for multimodal learning".
    """
    joint, scores = _check_joint_and_scores(joint, scores)
    p_x, p_t = joint.sum(1), joint.sum(0)
    # Where the joint is zero the score is not weighed, even if it is −inf; masking inside and
    # outside keeps the gradient free of 0 · inf.
    occurs = joint > 0
    matched = torch.where(occurs, joint * torch.where(occurs, scores, 0.0), 0.0).sum()
    over_texts = (scores + p_t.log()).logsumexp(1)
    over_images = (scores + p_x.log()[:, None]).logsumexp(0)
    return -2 * matched + p_x @ over_texts + p_t @ over_images


def bias_constant(joint: Any, scores: Any) -> float:
    """Leading constant c of the bias: E[L_N] − 2 log N = L∞ + c/N + O(N⁻²).

    c = E_pairs[k/μ_x − 1] + E_pairs[k/μ_t − 1] − ½ E_x[Var_t k/μ_x²] − ½ E_t[Var_x k/μ_t²] with
    k = e^s, μ_x = E_t k(x, ·) and μ_t = E_x k(·, t): the positive pair sits in its own denominator,
    which lifts the loss, and the logarithm of an average is too small on average, which lowers it.

    Parameters
    ----------
    joint, scores
        As for `population_loss`.

    Returns
    -------
    float
        c, in nats.

    Raises
    ------
    ValueError
        As for `population_loss`.

    References
    ----------
    Derived in the chapter on loss asymptotics (second-order expansion of the logarithm).
    """
    joint, scores = _check_joint_and_scores(joint, scores)
    p_x, p_t = joint.sum(1), joint.sum(0)
    # k/μ from logarithms: no scale is common to rows whose scores differ by hundreds.
    over_texts = (scores - (scores + p_t.log()).logsumexp(1, keepdim=True)).exp()
    over_images = (scores - (scores + p_x.log()[:, None]).logsumexp(0)).exp()
    positive = (joint * (over_texts - 1)).sum() + (joint * (over_images - 1)).sum()
    variance_over_texts = (over_texts - 1).square() @ p_t
    variance_over_images = p_x @ (over_images - 1).square()
    return float(positive - (p_x @ variance_over_texts + p_t @ variance_over_images) / 2)


def sample_batch_losses(
    joint: Any,
    scores: Any,
    *,
    batch_size: int,
    batches: int,
    seed: int | torch.Generator,
) -> torch.Tensor:
    """Draw batches of pairs from a discrete joint and return L_N − 2 log N of each.

    On a discrete joint the loss sees only how often each cell was drawn, so a batch costs a·b
    operations after its N draws, not N².

    Parameters
    ----------
    joint, scores
        As for `population_loss`.
    batch_size
        N >= 2, pairs per batch.
    batches
        How many independent batches to draw.
    seed
        An integer or a generator.

    Returns
    -------
    torch.Tensor
        Shape (batches,), float64, in nats; +inf for a batch with a pair whose score is −inf.

    Raises
    ------
    ValueError
        As for `population_loss`, or if a count is too small.
    """
    joint, scores = _check_joint_and_scores(joint, scores)
    scores = scores.detach()
    batch_size = check_integer("batch_size", batch_size, 2)
    batches = check_integer("batches", batches, 1)
    generator = as_generator(seed)
    cells = joint.flatten()
    losses = []
    group = max(1, _INDICES_PER_DRAW // batch_size)
    for start in range(0, batches, group):
        size = min(group, batches - start)
        drawn = torch.multinomial(
            cells, size * batch_size, replacement=True, generator=generator
        ).view(size, batch_size)
        counts = torch.zeros(size, cells.numel(), dtype=torch.float64)
        counts.scatter_add_(1, drawn, torch.ones(drawn.shape, dtype=torch.float64))
        shares = counts.view(size, *joint.shape) / batch_size
        share_x, share_t = shares.sum(2), shares.sum(1)
        # A cell that was not drawn weighs nothing, even if its score is −inf.
        matched = torch.where(shares > 0, shares * scores, 0.0).sum((1, 2))
        over_texts = (scores + share_t.log()[:, None, :]).logsumexp(2)
        over_images = (scores + share_x.log()[:, :, None]).logsumexp(1)
        # A row or column that was not drawn weighs nothing, whatever its sum.
        text_part = torch.where(share_x > 0, share_x * over_texts, 0.0).sum(1)
        image_part = torch.where(share_t > 0, share_t * over_images, 0.0).sum(1)
        # A drawn pair that is forbidden has no probability, even where no other text was drawn.
        losses.append(
            torch.where(matched == -math.inf, math.inf, text_part + image_part - 2 * matched)
        )
    return torch.cat(losses)


@torch.no_grad()
def population_loss_monte_carlo(
    x: torch.Tensor,
    t: torch.Tensor,
    *,
    temperature: float | torch.Tensor,
    kind: Kind = "cosine",
    chunk_size: int = 1024,
) -> float:
    """Estimate L∞ of `population_loss` from N encoded pairs.

    Row i's denominator averages e^s over the other N − 1 texts only. Leaving the positive out
    removes the first two terms of `bias_constant`; what stays is the bias of the logarithm of an
    average, −(1/2N) (E_x[Var_t k/μ_x²] + E_t[Var_x k/μ_t²]) + O(N⁻²), always downwards. At a sharp
    temperature the relative variances are large: take N large against them.

    Parameters
    ----------
    x, t
        Embeddings of the N >= 2 pairs, both of shape (N, d).
    temperature, kind
        As for `critic`.
    chunk_size
        Rows scored at a time; memory grows with ``chunk_size * N``.

    Returns
    -------
    float
        The estimate, in nats.

    Raises
    ------
    TypeError, ValueError
        As for `info_nce`.
    """
    _check_embeddings(x, t)
    size = len(x)
    _check_pair_count(size, len(t))
    chunk_size = check_integer("chunk_size", chunk_size, 1)
    matched, over_texts, over_images = [], [], []
    for start in range(0, size, chunk_size):
        scores = critic(x[start : start + chunk_size], t, kind=kind, temperature=temperature)
        check_finite("scores", scores)
        row = torch.arange(len(scores), device=x.device)
        matched.append(scores[row, row + start].double())
        scores[row, row + start] = -math.inf
        over_texts.append(scores.double().logsumexp(1))
        over_images.append(scores.double().logsumexp(0))
    log_others = math.log(size - 1)
    mean_over_texts = torch.cat(over_texts).mean() - log_others
    mean_over_images = torch.stack(over_images).logsumexp(0).mean() - log_others
    return float(mean_over_texts + mean_over_images - 2 * torch.cat(matched).mean())


# --- private parts --------------------------------------------------------------------------------


def _check_embeddings(x: torch.Tensor, t: torch.Tensor) -> None:
    _check_matrix("x", x)
    _check_matrix("t", t)
    if x.dtype != t.dtype:
        raise TypeError(f"x and t must have one dtype, got {x.dtype} and {t.dtype}")
    if x.shape[1] != t.shape[1]:
        raise ValueError(
            f"x and t must have the same number of columns, got shapes {tuple(x.shape)} and "
            f"{tuple(t.shape)}; encode both into one space first"
        )


def _check_matrix(name: str, matrix: torch.Tensor) -> None:
    if not isinstance(matrix, torch.Tensor) or not matrix.is_floating_point():
        found = getattr(matrix, "dtype", type(matrix).__name__)
        raise TypeError(f"{name} must be a floating-point tensor, got {found}")
    if matrix.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, got shape {tuple(matrix.shape)}")
    check_finite(name, matrix)


def _check_pair_count(rows: int, columns: int) -> None:
    if rows != columns:
        raise ValueError(f"pairs need as many images as texts, got {rows} and {columns}")
    if rows < 2:
        raise ValueError(
            f"the loss compares pairs and needs at least 2, got {rows}; with a single pair it is 0 "
            "whatever the encoders do, so enlarge the batch (drop_last=True drops a short one)"
        )


def _check_temperature(temperature: float | torch.Tensor) -> None:
    if isinstance(temperature, torch.Tensor):
        if temperature.numel() != 1:
            raise ValueError(
                f"temperature must have one entry, got shape {tuple(temperature.shape)}"
            )
        temperature = temperature.item()
    check_positive("temperature", temperature)


def _check_ids(ids: Ids, size: int, like: torch.Tensor) -> torch.Tensor:
    ids = torch.as_tensor(ids, device=like.device)
    if ids.is_floating_point() or ids.is_complex():
        raise TypeError(f"ids must be integers, got {ids.dtype}")
    if ids.shape != (size,):
        raise ValueError(
            f"ids must hold one integer per pair, shape ({size},), got shape {tuple(ids.shape)}"
        )
    return ids


def _norm_order(kind: Kind) -> float:
    named = {"l1": 1.0, "l2": 2.0}
    if isinstance(kind, str) and kind in named:
        return named[kind]
    if isinstance(kind, bool) or not isinstance(kind, numbers.Real) or not kind >= 1:
        raise ValueError(
            f"kind must be 'cosine', 'dot', 'l1', 'l2' or a number p >= 1, got {kind!r}"
        )
    return float(kind)


def _unit_rows(name: str, rows: torch.Tensor) -> torch.Tensor:
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    zero = int((norms == 0).sum())
    if zero:
        raise ValueError(
            f"{name} must have no zero row for the cosine, got {zero} of {len(rows)}; a zero row "
            "has no direction, so drop it or use kind='dot'"
        )
    too_long = int(norms.isinf().sum())
    if too_long:
        raise ValueError(
            f"{name} must have rows whose norm {rows.dtype} can hold, got {too_long} of "
            f"{len(rows)} that overflow; scale the rows down or use float64"
        )
    return rows / norms


def _distances(x: torch.Tensor, t: torch.Tensor, p: float) -> torch.Tensor:
    if _LARGE_ORDER < p < math.inf:
        # Powers of small differences leave the range of floats, so each pair is scaled first.
        differences = x[:, None] - t
        smallest = torch.finfo(x.dtype).tiny
        peak = differences.detach().abs().amax(2, keepdim=True).clamp(min=smallest)
        return torch.linalg.vector_norm(differences / peak, p, dim=2) * peak[..., 0]
    # The shortcut ‖x‖² + ‖t‖² − 2x·t loses half the digits where a pair nearly matches, which is
    # where training ends; the direct sum does not.
    return torch.cdist(x, t, p=p, compute_mode="donot_use_mm_for_euclid_dist")


def _chunk_sums(
    x: torch.Tensor,
    t: torch.Tensor,
    temperature: float | torch.Tensor,
    kind: Kind,
    row_ids: torch.Tensor,
    ids: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Log-sums over all and over positive scores, of some rows and of their part of the columns."""
    scores = critic(x, t, kind=kind, temperature=temperature)
    check_finite("scores", scores)
    positives = scores.masked_fill(row_ids[:, None] != ids, -math.inf)
    return (
        scores.logsumexp(1),
        positives.logsumexp(1),
        scores.logsumexp(0),
        positives.logsumexp(0),
    )


def _check_joint_and_scores(joint: Any, scores: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both as float64 tensors, without rows and columns that never occur."""
    joint = torch.as_tensor(joint, dtype=torch.float64)
    scores = torch.as_tensor(scores, dtype=torch.float64)
    if joint.ndim != 2 or joint.shape != scores.shape or joint.numel() == 0:
        raise ValueError(
            "joint and scores must be matrices of one shape and not empty, got "
            f"{tuple(joint.shape)} and {tuple(scores.shape)}"
        )
    check_finite("joint", joint)
    total = float(joint.sum())
    if bool((joint < 0).any()) or abs(total - 1) > 1e-8:
        raise ValueError(
            "joint must be non-negative and sum to 1, got smallest entry "
            f"{float(joint.min()):g} and sum {total:.10g}; divide it by its sum"
        )
    bad = int((torch.isnan(scores) | (scores == math.inf)).sum())
    if bad:
        raise ValueError(f"scores must be finite or -inf, got {bad} entries NaN or +inf")
    rows, columns = joint.sum(1) > 0, joint.sum(0) > 0
    joint, scores = joint[rows][:, columns], scores[rows][:, columns]
    forbidden = scores == -math.inf
    bad = int(forbidden.all(1).sum() + forbidden.all(0).sum())
    if bad:
        raise ValueError(
            "scores must leave each row and column that occurs at least one finite score, but "
            f"{bad} are -inf throughout"
        )
    return joint, scores
