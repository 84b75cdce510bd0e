"""Wrong but plausible solutions of this homework: the tests must fail each.

The first line of a docstring says what is wrong, for a marker's comment.
"""

import numpy as np
from scipy.special import logsumexp


def mean_of_directions(scores):
    """Return the mean of the two directions; the sum was asked for."""
    own = np.diag(scores)
    rows = logsumexp(scores, axis=1) - own
    columns = logsumexp(scores, axis=0) - own
    return float((rows.mean() + columns.mean()) / 2)


def rows_twice(scores):
    """Normalise the rows in both directions: the columns never compete."""
    log_p = scores - logsumexp(scores, axis=1, keepdims=True)
    log_q = scores.T - logsumexp(scores, axis=1)
    return float(-np.diag(log_p).mean() - np.diag(log_q).mean())


def mean_in_the_logarithm(scores):
    """Average in the denominators instead of summing: 2 log N is missing."""
    own = np.diag(scores)
    rows = logsumexp(scores, axis=1) - own
    columns = logsumexp(scores, axis=0) - own
    return float(rows.mean() + columns.mean() - 2 * np.log(len(scores)))


def exponentials_as_they_are(scores):
    """Take exponentials of raw scores: they overflow from 710 on."""
    weights = np.exp(scores)
    own = np.diag(weights)
    rows = -np.log(own / weights.sum(axis=1))
    columns = -np.log(own / weights.sum(axis=0))
    return float(rows.mean() + columns.mean())


def one_shift_for_the_table(scores):
    """Subtract the largest score of the table, not of each row and column.

    A row far below it underflows to log 0.
    """
    weights = np.exp(scores - scores.max())
    own = np.diag(weights)
    rows = -np.log(own / weights.sum(axis=1))
    columns = -np.log(own / weights.sum(axis=0))
    return float(rows.mean() + columns.mean())


def _repaired(scores, ids, inside, term):
    scores, ids = np.asarray(scores, dtype=float), np.asarray(ids)
    same = ids[:, None] == ids[None, :]
    total = 0.0
    for table in (scores, scores.T):
        log_p = table - logsumexp(table, axis=1, keepdims=True)
        total += term(table, log_p, same).mean()
    return float(total)


def _inside(log_p, same):
    return -logsumexp(np.where(same, log_p, -np.inf), axis=1)


def _outside(log_p, same):
    return -np.sum(same * log_p, axis=1) / same.sum(axis=1)


def ids_are_ignored(scores, ids, inside):
    """Use the own pair as the only positive."""
    return _repaired(
        scores, ids, inside, lambda table, log_p, same: -np.diag(log_p)
    )


def inside_and_outside_exchanged(scores, ids, inside):
    """Return the outside loss for inside, and the reverse."""
    repair = _outside if inside else _inside
    return _repaired(
        scores, ids, inside, lambda table, log_p, same: repair(log_p, same)
    )


def copies_are_removed(scores, ids, inside):
    """Leave the other copies out of the denominator: inside for both."""

    def term(table, log_p, same):
        others = same & ~np.eye(len(same), dtype=bool)
        rest = np.where(others, -np.inf, table)
        return logsumexp(rest, axis=1) - np.diag(table)

    return _repaired(scores, ids, inside, term)


def sum_outside(scores, ids, inside):
    """Add the logarithms up without dividing by the number of positives."""

    def term(table, log_p, same):
        return _inside(log_p, same) if inside else -np.sum(same * log_p, axis=1)

    return _repaired(scores, ids, inside, term)


def mean_inside(scores, ids, inside):
    """Average the probabilities of the positives inside, not add them."""

    def term(table, log_p, same):
        if inside:
            return _inside(log_p, same) + np.log(same.sum(axis=1))
        return _outside(log_p, same)

    return _repaired(scores, ids, inside, term)


def own_pair_is_no_positive(scores, ids, inside):
    """Leave the own pair out of the outside mean, if there are others."""

    def term(table, log_p, same):
        others = same & ~np.eye(len(same), dtype=bool)
        alone = ~others.any(axis=1, keepdims=True)
        return (
            _inside(log_p, same)
            if inside
            else _outside(log_p, np.where(alone, same, others))
        )

    return _repaired(scores, ids, inside, term)


def rows_only_repaired(scores, ids, inside):
    """Repair the rows; the columns still have one positive each."""
    scores, ids = np.asarray(scores, dtype=float), np.asarray(ids)
    same = ids[:, None] == ids[None, :]
    log_p = scores - logsumexp(scores, axis=1, keepdims=True)
    columns = logsumexp(scores, axis=0) - np.diag(scores)
    rows = _inside(log_p, same) if inside else _outside(log_p, same)
    return float(rows.mean() + columns.mean())


def _parts(joint, scores, q_t, q_x):
    p_x, p_t = joint.sum(axis=1), joint.sum(axis=0)
    loss = -2 * np.sum(joint * scores)
    loss += p_x @ logsumexp(scores, axis=1, b=p_t[None, :])
    loss += p_t @ logsumexp(scores, axis=0, b=p_x[:, None])
    seen = joint > 0
    p, outer = joint[seen], np.outer(p_x, p_t)[seen]
    kl_t = np.sum(p * np.log((joint / p_x[:, None] / q_t)[seen]))
    kl_x = np.sum(p * np.log((joint / p_t / q_x)[seen]))
    return float(loss), float(kl_t), float(kl_x), np.sum(p * np.log(p / outer))


def _posteriors(scores, weights_t, weights_x):
    q_t = np.exp(scores - logsumexp(scores, axis=1, keepdims=True)) * weights_t
    q_x = np.exp(scores - logsumexp(scores, axis=0)) * weights_x
    return (
        q_t / q_t.sum(axis=1, keepdims=True),
        q_x / q_x.sum(axis=0, keepdims=True),
    )


def posterior_without_prior(joint, scores):
    """Take the softmax of the scores as posterior, without p(t) or p(x)."""
    return _parts(joint, scores, *_posteriors(scores, 1.0, 1.0))


def divergence_reversed(joint, scores):
    """Compute KL(q || p), which is infinite where a pair never occurs."""
    p_x, p_t = joint.sum(axis=1), joint.sum(axis=0)
    loss, _, _, mutual = _parts(
        joint, scores, *_posteriors(scores, p_t, p_x[:, None])
    )
    q_t, q_x = _posteriors(scores, p_t, p_x[:, None])
    kl_t = p_x @ np.sum(q_t * np.log(q_t / (joint / p_x[:, None])), axis=1)
    kl_x = p_t @ np.sum(q_x * np.log(q_x / (joint / p_t)), axis=0)
    return loss, float(kl_t), float(kl_x), mutual


def zeros_forgotten(joint, scores):
    """Multiply 0 by log 0: NaN where a pair never occurs."""
    p_x, p_t = joint.sum(axis=1), joint.sum(axis=0)
    parts = _parts(joint, scores, *_posteriors(scores, p_t, p_x[:, None]))
    mutual = np.sum(joint * np.log(joint / np.outer(p_x, p_t)))
    return *parts[:3], float(mutual)


def captions_of_the_same_picture(joint, scores):
    """Take E_t e^s over the captions of x: over p(t | x), not over p(t)."""
    p_x, p_t = joint.sum(axis=1), joint.sum(axis=0)
    _, kl_t, kl_x, mutual = _parts(
        joint, scores, *_posteriors(scores, p_t, p_x[:, None])
    )
    loss = -2 * np.sum(joint * scores)
    loss += p_x @ logsumexp(scores, axis=1, b=joint / p_x[:, None])
    loss += p_t @ logsumexp(scores, axis=0, b=joint / p_t)
    return float(loss), kl_t, kl_x, mutual


def all_pictures_weigh_the_same(joint, scores):
    """Average the divergences over pictures and captions without their law."""
    p_x, p_t = joint.sum(axis=1), joint.sum(axis=0)
    q_t, q_x = _posteriors(scores, p_t, p_x[:, None])
    loss, _, _, mutual = _parts(joint, scores, q_t, q_x)
    with np.errstate(divide="ignore", invalid="ignore"):
        each_t = joint / p_x[:, None] * np.log(joint / p_x[:, None] / q_t)
        each_x = joint / p_t * np.log(joint / p_t / q_x)
    kl_t = np.nansum(each_t, axis=1).mean()
    kl_x = np.nansum(each_x, axis=0).mean()
    return loss, float(kl_t), float(kl_x), mutual


def entropy_forgotten(joint, scores):
    """Leave out 2 H(t): the copies of a caption are n(t), not one."""
    p_t = joint.sum(axis=0)
    return _limit(joint, scores, joint / p_t) + 2 * np.sum(p_t * np.log(p_t))


def _limit(joint, scores, positives):
    p_x, p_t = joint.sum(axis=1), joint.sum(axis=0)
    value = p_x @ logsumexp(scores, axis=1, b=p_t[None, :])
    value -= np.sum(joint * scores) + 2 * np.sum(p_t * np.log(p_t))
    value -= p_t @ logsumexp(scores, axis=0, b=positives)
    return float(value + p_t @ logsumexp(scores, axis=0, b=p_x[:, None]))


def outside_after_all(joint, scores):
    """Average scores, not exponentials, over the pictures of a caption."""
    p_x, p_t = joint.sum(axis=1), joint.sum(axis=0)
    value = -2 * np.sum(joint * scores) - 2 * np.sum(p_t * np.log(p_t))
    value += p_x @ logsumexp(scores, axis=1, b=p_t[None, :])
    return float(value + p_t @ logsumexp(scores, axis=0, b=p_x[:, None]))


def captions_given_the_picture(joint, scores):
    """Weigh the positives by p(t | x) where p(x | t) belongs."""
    return _limit(joint, scores, joint / joint.sum(axis=1, keepdims=True))


def one_entropy(joint, scores):
    """Count H(t) for the rows only: the columns have copies too."""
    p_t = joint.sum(axis=0)
    return _limit(joint, scores, joint / p_t) + np.sum(p_t * np.log(p_t))


# Cell of the solution: the name it defines, and wrong functions for it.
WRONG_SOLUTIONS = {
    "info-nce": (
        "info_nce",
        [
            rows_twice,
            mean_of_directions,
            mean_in_the_logarithm,
            exponentials_as_they_are,
            one_shift_for_the_table,
        ],
    ),
    "ids": (
        "info_nce_ids",
        [
            own_pair_is_no_positive,
            rows_only_repaired,
            ids_are_ignored,
            inside_and_outside_exchanged,
            copies_are_removed,
            sum_outside,
            mean_inside,
        ],
    ),
    "lemma": (
        "lemma_parts",
        [
            zeros_forgotten,
            posterior_without_prior,
            divergence_reversed,
            captions_of_the_same_picture,
            all_pictures_weigh_the_same,
        ],
    ),
    "inside-limit": (
        "inside_limit",
        [
            entropy_forgotten,
            one_entropy,
            outside_after_all,
            captions_given_the_picture,
        ],
    ),
}
