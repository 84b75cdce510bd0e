"""Hard negatives, what repeated edits reach, and which operator leads from caption to caption.

`tutorials_lib.captions` is where to import all of it from.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from tutorials_lib._caption_edits import Edit, NoEdit, Step, apply_step, edits, steps
from tutorials_lib._caption_words import CaptionWords, MentionWords, Phrase, read_words
from tutorials_lib._scene_captions import canonical, same_meaning
from tutorials_lib._scene_grammar import (
    LEXICON,
    RELATIONS,
    SIZES,
    Claim,
    Mention,
    parse_caption,
)
from tutorials_lib._scene_latents import ABSENT, RELATION_MARGIN, SIZE_SPLIT, Scenes
from tutorials_lib._validation import as_generator, check_integer

__all__ = ["describes_each", "hard_negatives", "name_operator", "orbit", "sample_negatives"]

_ATTRIBUTES = ("shape", "colour", "size")


def hard_negatives(
    caption: str,
    scene: Scenes | None = None,
    *,
    operators: Sequence[str] = ("swap", "replace"),
    kinds: Sequence[str] | None = None,
) -> list[Edit]:
    """Make every single edit of a caption that does not describe its scene.

    Parameters
    ----------
    caption
        A caption that ``scenes.parse_caption`` reads.
    scene
        Scenes of which an edited caption may not be true, often one. None keeps every edit that
        means something else, although it can be true of the same scene: "a cube" and "a sphere"
        are both true of a cube and a sphere.
    operators
        Some of ``captions.OPERATORS``. ADD is left out by default, because a longer caption can
        be told from a shorter one without looking at the image.
    kinds
        As in `edits`.

    Returns
    -------
    list of Edit
        Empty if there is none.

    Raises
    ------
    TypeError, ValueError
        As `edits`.
    """
    found = edits(caption, operators=operators, kinds=kinds)
    if scene is None or not found:
        return found
    texts = [edit.after for edit in found]
    n = len(scene)
    rows = torch.arange(n).repeat(len(found))
    true = describes_each([text for text in texts for _ in range(n)], scene[rows])
    return [
        e for e, any_true in zip(found, true.reshape(-1, n).any(1), strict=True) if not any_true
    ]


def sample_negatives(
    captions: Sequence[str],
    scenes: Scenes,
    *,
    operators: Sequence[str] = ("swap", "replace"),
    kinds: Sequence[str] | None = None,
    seed: int | torch.Generator,
) -> list[Edit | NoEdit]:
    """Draw one hard negative for each caption of a batch.

    First the operator is drawn, uniformly among those that can be applied, then the kind, then the
    edit; an edit that is true of the scene is passed over. A concept that the caption does not
    hold yet is written with any of its words, uniformly. If values and words of the captions are
    uniform too, as they are in ``scenes.sample_scenes`` and ``scenes.caption_scenes``, then
    SWAP and REPLACE make a caption and its negative exchangeable, and no rule that sees captions
    only tells which is which. This fails for ADD, and where not every combination occurs.

    Parameters
    ----------
    captions
        N captions, as a rule true of their scenes.
    scenes
        N scenes.
    operators, kinds
        As in `hard_negatives`.
    seed
        A seed or a generator.

    Returns
    -------
    list of Edit or NoEdit
        N results; `NoEdit` where a caption has no hard negative.

    Raises
    ------
    TypeError, ValueError
        As `edits`, and if the numbers of captions and scenes differ.
    """
    if len(captions) != len(scenes):
        raise ValueError(f"there are {len(captions)} captions, but {len(scenes)} scenes")
    generator = as_generator(seed)
    chance = random.Random(int(torch.randint(2**62, (), generator=generator)))
    reason = "no edit means something else and is false of the scene"
    names = " or ".join(operators), " or ".join(kinds or ("any kind",))
    result: list[Edit | NoEdit] = [NoEdit(*names, caption, reason) for caption in captions]
    read = [read_words(caption) for caption in captions]
    queues = [_shuffled(steps(words, operators, kinds), chance)[::-1] for words in read]
    open_rows = list(range(len(captions)))
    while open_rows:
        tried = []
        for row in open_rows:
            edit: Edit | NoEdit | None = None
            while queues[row] and not edit:
                step = _reworded(read[row], queues[row].pop(), chance)
                edit = apply_step(read[row], captions[row], step)
            if edit:
                tried.append((row, edit))
        rows = [row for row, _ in tried]
        true = describes_each([edit.after for _, edit in tried], scenes[torch.tensor(rows).long()])
        for (row, edit), holds in zip(tried, true.tolist(), strict=True):
            if not holds:
                result[row] = edit
        open_rows = [row for row, holds in zip(rows, true.tolist(), strict=True) if holds]
    return result


def describes_each(captions: Sequence[str | Claim], scenes: Scenes) -> torch.Tensor:
    """Say whether each caption is true of the scene in its row, as ``scenes.describes`` does.

    Parameters
    ----------
    captions
        N captions that ``scenes.parse_caption`` reads, or claims.
    scenes
        N scenes.

    Returns
    -------
    torch.BoolTensor
        Shape (N,).

    Raises
    ------
    TypeError, ValueError
        If a caption cannot be read, or the numbers of captions and scenes differ.
    """
    if len(captions) != len(scenes):
        raise ValueError(f"there are {len(captions)} captions, but {len(scenes)} scenes")
    claims = [c if isinstance(c, Claim) else parse_caption(c) for c in captions]
    codes = [
        _code(claim.first) + _code(claim.second) + (_LINK[claim.relation],) for claim in claims
    ]
    device = scenes.shape.device
    asked = torch.tensor(codes, device=device).reshape(-1, 9)
    large = (scenes.size >= SIZE_SPLIT).long()
    # Objects in both orders: (N, order, mention, attribute).
    objects = torch.stack([scenes.shape, scenes.colour, large], 2)
    objects = torch.stack([objects, objects.flip(1)], 1)
    present = torch.stack([scenes.shape, scenes.shape.flip(1)], 1) != ABSENT
    wanted = asked[:, None, :8].reshape(-1, 1, 2, 4)
    fits = ((wanted[..., :3] == _OPEN) | (wanted[..., :3] == objects)).all(3) & present
    true = (fits | (wanted[..., 3] == 0)).all(2)
    away = scenes.position[:, 1] - scenes.position[:, 0]
    away = torch.stack([away, -away], 1)
    holds = torch.stack([away[..., 0], -away[..., 0], away[..., 1], -away[..., 1]], 2)
    holds = torch.cat([holds >= RELATION_MARGIN, torch.ones_like(present[:, :, :1])], 2)
    link = asked[:, 8][:, None, None].expand(-1, 2, 1)
    return (true & holds.gather(2, link)[..., 0]).any(1)


_OPEN = -2  # no index of a shape, colour or size, and not ABSENT
_LINK = {relation: index for index, relation in enumerate((*RELATIONS, None))}


def _code(mention: Mention | None) -> tuple[int, int, int, int]:
    """Write a mention as shape, colour, size and whether there is one."""
    if mention is None:
        return _OPEN, _OPEN, _OPEN, 0
    shape = _OPEN if mention.shape is None else mention.shape
    colour = _OPEN if mention.colour is None else mention.colour
    return shape, colour, _OPEN if mention.size is None else SIZES.index(mention.size), 1


def _shuffled(found: list[Step], chance: random.Random) -> list[Step]:
    """Order steps at random: operator by operator, in each kind by kind, in each any order."""
    ranks: dict[tuple[str, ...], float] = {}

    def rank(step: Step) -> tuple[float, float, float]:
        operator = ranks.setdefault((step.operator,), chance.random())
        kind = ranks.setdefault((step.operator, step.kind), chance.random())
        return operator, kind, chance.random()

    return sorted(found, key=rank)


def _reworded(words: CaptionWords, step: Step, chance: random.Random) -> Step:
    """Write the new concept in a random word, unless the caption has a word for it."""

    def pick(phrase: Phrase) -> Phrase:
        if words.word_for(phrase.concept) is not None:
            return phrase
        return Phrase(phrase.concept, chance.choice(LEXICON[phrase.concept]))

    value = step.value
    if isinstance(value, Phrase):
        value = pick(value)
    elif isinstance(value, MentionWords):
        value = value.put("shape", pick(value.shape))
    return Step(step.operator, step.kind, step.which, value)


def orbit(
    caption: str,
    *,
    operators: Sequence[str] = ("swap",),
    kinds: Sequence[str] | None = None,
    depth: int | None = None,
    limit: int = 5000,
) -> dict[str, int]:
    """Find every meaning that edits reach from a caption, and how many edits it takes at least.

    Sizes, with the caption itself, where no two of the captions mean the same:

    - SWAP of one kind, k mentions: k! orderings; a scene's caption has k = 2 and so 2 of them.
      SWAP of j kinds in which the mentions differ: 2ʲ, but 2ʲ⁻¹ under "and" if they differ in
      nothing else, because exchanging everything then changes nothing.
    - REPLACE of one kind with |V| concepts in m places: |V|ᵐ, of which C(m, j)(|V| − 1)ʲ take j
      edits. Under "and", mentions that differ in nothing else have no order:
      |V|(|V| + 1)/2 in the place of |V|².
    - ADD in a language without end: unbounded. Here it is bounded by the grammar, because a
      mention has one place for each kind and a caption at most two mentions; one colour and one
      size added to one noun: (1 + 8)(1 + 2).

    Parameters
    ----------
    caption
        A caption that ``scenes.parse_caption`` reads.
    operators, kinds
        As in `edits`.
    depth
        The largest number of edits; None for any, which is not possible with ADD.
    limit
        The largest orbit to return.

    Returns
    -------
    dict of str to int
        From captions, as ``scenes.canonical`` writes them, to numbers of edits, in order of these;
        the first is the caption itself, with 0.

    Raises
    ------
    TypeError, ValueError
        As `edits`; if ADD comes without a depth; if there are more than ``limit`` captions.
    """
    if depth is None and "add" in operators:
        raise ValueError("with 'add', depth must be given: captions grow with every edit")
    if depth is not None:
        depth = check_integer("depth", depth, 0)
    limit = check_integer("limit", limit, 1)
    start = canonical(caption)
    found = {start: 0}
    seen = {_meaning(parse_caption(start))}
    shell, away = [start], 0
    while shell and (depth is None or away < depth):
        away += 1
        fresh = []
        for text in shell:
            for edit in edits(text, operators=operators, kinds=kinds):
                meaning = _meaning(read_words(edit.after).claim())
                if meaning in seen:
                    continue
                if len(found) == limit:
                    raise ValueError(
                        f"the orbit has more than {limit} captions; give a smaller depth than "
                        f"{away}, fewer kinds, or a higher limit"
                    )
                seen.add(meaning)
                fresh.append(canonical(edit.after))
                found[fresh[-1]] = away
        shell = fresh
    return found


def _meaning(claim: Claim) -> frozenset[Claim]:
    return frozenset((claim, claim.turned()))


def name_operator(before: str, after: str) -> str | None:
    """Name the operator that leads from one caption to another, once or several times.

    The mentions are compared in the order in which they stand and in the other one, with the
    relation turned. Replaced concepts that amount to an exchange are named SWAP, but for one
    case: where only the word for the relation differs. So "a cube left of a ball" becomes "a ball
    left of a cube" by SWAP and "a cube right of a ball" by REPLACE, which mean the same.

    Parameters
    ----------
    before, after
        Captions that ``scenes.parse_caption`` reads.

    Returns
    -------
    str or None
        ``"same"`` if they mean the same; ``"swap"`` if ``after`` is among the swaps of
        ``before``, or the swaps of these; ``"replace"`` if other concepts stand in the same
        places; ``"add"`` or ``"remove"`` if one says the same and more; None if it takes several
        operators.

    Raises
    ------
    TypeError, ValueError
        If a caption cannot be read.
    """
    old, new = parse_caption(before), parse_caption(after)
    if same_meaning(old, new):
        return "same"
    if (old.second is None) == (new.second is None):
        name, turned = _name(old, new), _name(old, new.turned())
        only_relation = (old.first, old.second) == (new.first, new.second)
        return "swap" if turned == "swap" and not only_relation else name or turned
    if old.second is None:
        return "add" if _says_more(old.first, new) else None
    return "remove" if _says_more(new.first, old) else None


def _name(old: Claim, new: Claim) -> str | None:
    """Name the operator between claims, if they have the same number of mentions."""
    pairs = [(old.relation, new.relation)]
    exchange = old.second is not None and old.relation == new.relation
    moved = set()  # of the kinds that one mention leaves open: has what is said gone to the other?
    for kind in _ATTRIBUTES:
        before = [getattr(m, kind) for m in (old.first, old.second) if m is not None]
        now = [getattr(m, kind) for m in (new.first, new.second) if m is not None]
        exchange = exchange and now in (before, before[::-1])
        if None in before and before != before[::-1]:
            moved.add(before != now)
        pairs += zip(before, now, strict=True)
    if exchange and len(moved) < 2:
        return "swap"
    changed = [(before, now) for before, now in pairs if before != now]
    if all(before is None for before, _ in changed):
        return "add"
    if all(now is None for _, now in changed):
        return "remove"
    return "replace" if all(None not in pair for pair in changed) else None


def _says_more(mention: Mention, claim: Claim) -> bool:
    """Say whether one of the two mentions of a claim holds all that a mention does."""
    return any(
        all(getattr(mention, kind) in (None, getattr(other, kind)) for kind in _ATTRIBUTES)
        for other in (claim.first, claim.second)
    )
