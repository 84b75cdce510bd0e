"""What a CLIP can do on scenes: zero-shot, SWAP, REPLACE, relations, loss.

Works on any pair of encoders, so that a model can be scored while it trains. Every choice between
captions counts ties as 1/k, and every score has its chance level beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from tutorials_lib import contrastive, scenes
from tutorials_lib._validation import as_generator, check_integer, check_positive

__all__ = [
    "SceneScores",
    "ScoreExamples",
    "choice_accuracy",
    "scene_scores",
    "score_examples",
    "single_prompts",
]

EncodeImages = Callable[[torch.Tensor], torch.Tensor]
EncodeTexts = Callable[[list[str]], torch.Tensor]

# Prompts of the zero-shot classifier; their mean is the class.
_TEMPLATES = ("a {} {}", "a photo of a {} {}", "there is a {} {}")
_COMBINATIONS = tuple((colour, shape) for colour in scenes.COLOURS for shape in scenes.SHAPES)


@dataclass(frozen=True)
class SceneScores:
    """Scores of one model; accuracies from 0 to 1, losses in nats.

    Attributes
    ----------
    zero_shot
        Accuracy of naming colour and shape of one object among all 24 combinations, prompts
        averaged. Chance 1/24.
    zero_shot_worst
        The lowest of the 24 combinations' accuracies.
    zero_shot_held_out
        Accuracy on the three combinations of ``scenes.HELD_OUT``, still among 24.
    colour, shape
        How often the colour, the shape, of the answer is right. Chance 1/8 and 1/3.
    swap
        Two objects of different colours and shapes: how often the true caption beats the one with
        the colours exchanged. Chance 1/2.
    swap_in_support, swap_out_of_support
        The same on the scenes that restricted support holds, and on those it leaves out.
    swap_margin
        Mean cosine of image and true caption less that of image and swapped caption.
    swap_text_cosine
        Mean cosine of the true and the swapped caption.
    replace
        How often the true caption beats one with a colour or shape that is not in the scene.
        Chance 1/2.
    relation
        How often "a left of b" and its like beats the same with a and b exchanged. Chance 1/2.
    loss_full, loss_restricted
        InfoNCE in batches of 64 pairs of scenes and full captions, sum of both directions, under
        full and under restricted support.
    temperature
        Of the model.
    """

    zero_shot: float
    zero_shot_worst: float
    zero_shot_held_out: float
    colour: float
    shape: float
    swap: float
    swap_in_support: float
    swap_out_of_support: float
    swap_margin: float
    swap_text_cosine: float
    replace: float
    relation: float
    loss_full: float
    loss_restricted: float
    temperature: float


@dataclass(frozen=True, eq=False, repr=False)
class ScoreExamples:
    """Images and captions that models are scored on; made once, used for many models.

    Attributes
    ----------
    singles, combination
        Images of one object, uint8 (N, 3, 48, 48), and the object's combination, 3·colour + shape.
    pairs, in_support
        Images of two objects that differ in colour and shape, and whether the restricted support
        holds the scene.
    captions, swapped, replaced
        For each pair the true caption, the one with exchanged colours, and one with a colour or
        shape that is not there.
    related, relation, converse
        Rows of ``pairs`` in which a relation holds clearly, a true caption of it, and the same
        with the objects exchanged.
    full, restricted
        Images and their captions under either support, for the losses.
    """

    singles: torch.Tensor
    combination: torch.Tensor
    pairs: torch.Tensor
    in_support: torch.Tensor
    captions: list[str]
    swapped: list[str]
    replaced: list[str]
    related: list[int]
    relation: list[str]
    converse: list[str]
    full: tuple[torch.Tensor, list[str]]
    restricted: tuple[torch.Tensor, list[str]]


def single_prompts(template: str = "a photo of a {} {}") -> list[str]:
    """One prompt for each of the 24 combinations, in the order of ``scenes.binding_counts``."""
    return [template.format(colour, shape) for colour, shape in _COMBINATIONS]


def choice_accuracy(right: torch.Tensor, wrong: torch.Tensor) -> torch.Tensor:
    """How often the right caption has the highest score; a tie of k captions counts 1/k.

    Parameters
    ----------
    right
        Score of the right caption, shape (N,).
    wrong
        Scores of the others, shape (N,) or (N, k).

    Returns
    -------
    torch.Tensor
        1, 0 or 1/k for each of the N choices, float64: chance levels are exact.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    if right.ndim != 1 or wrong.ndim not in (1, 2) or len(wrong) != len(right):
        raise ValueError(
            "right must have shape (N,) and wrong (N,) or (N, k), got "
            f"{tuple(right.shape)} and {tuple(wrong.shape)}"
        )
    wrong = wrong[:, None] if wrong.ndim == 1 else wrong
    best = (right[:, None] >= wrong).all(1)
    tied = 1 + (right[:, None] == wrong).sum(1)
    return best.double() / tied


def score_examples(*, size: int = 1200, domain: str = "photo", seed: int = 2**40) -> ScoreExamples:
    """Draw and render what `scene_scores` needs.

    Parameters
    ----------
    size
        Scenes per score; rounded up to a multiple of 24 for the zero-shot score, which has equally
        many of each combination, and down to one of 64 for the losses. The standard error of an
        accuracy is at most 0.5/√size.
    domain
        One of ``scenes.DOMAINS``.
    seed
        Chooses the scenes. The default is not among the seeds that training uses.

    Returns
    -------
    ScoreExamples
        The examples.
    """
    size = check_integer("size", size, 64)
    generator = as_generator(seed)
    each = math.ceil(size / len(_COMBINATIONS))
    singles = []
    for pair in _COMBINATIONS:
        others = [other for other in _COMBINATIONS if other != pair]
        allowed = scenes.combinations(exclude=others)
        singles.append(
            scenes.sample_scenes(each, singles=1.0, allowed=allowed, domain=domain, seed=generator)
        )
    pairs = scenes.sample_scenes(4 * size, domain=domain, seed=generator)
    differ = (pairs.colour[:, 0] != pairs.colour[:, 1]) & (pairs.shape[:, 0] != pairs.shape[:, 1])
    pairs = pairs[differ][:size]
    claims = scenes.claims_of(
        pairs, seed=generator, mention_size=0.0, mention_relation=0.0, mention_second=1.0
    )
    relations = scenes.claims_of(
        pairs, seed=generator, mention_size=0.0, mention_relation=1.0, mention_second=1.0
    )
    related = [row for row, claim in enumerate(relations) if claim.relation is not None]
    relations = [relations[row] for row in related]
    losses = []
    for support in ("full", "restricted"):
        batch = scenes.sample_scenes(
            size // 64 * 64, support=support, domain=domain, seed=generator
        )
        captions = scenes.caption_scenes(
            batch, seed=generator, mention_size=0.0, mention_relation=0.0
        )
        losses.append((scenes.render(batch), captions))
    return ScoreExamples(
        singles=scenes.render(scenes.concatenate(*singles)),
        combination=torch.arange(len(_COMBINATIONS)).repeat_interleave(each),
        pairs=scenes.render(pairs),
        in_support=scenes.in_support(pairs),
        captions=[scenes.write_caption(claim) for claim in claims],
        swapped=[scenes.write_caption(scenes.swap(claim, "colour")) for claim in claims],
        replaced=[scenes.write_caption(_replaced(claim, generator)) for claim in claims],
        related=related,
        relation=[scenes.write_caption(claim) for claim in relations],
        converse=[
            scenes.write_caption(scenes.Claim(claim.second, claim.first, claim.relation))
            for claim in relations
        ],
        full=losses[0],
        restricted=losses[1],
    )


@torch.no_grad()
def scene_scores(
    encode_images: EncodeImages,
    encode_texts: EncodeTexts,
    *,
    temperature: float,
    examples: ScoreExamples,
) -> SceneScores:
    """Score a pair of encoders.

    Parameters
    ----------
    encode_images
        From uint8 images (B, 3, 48, 48) to unit vectors (B, d).
    encode_texts
        From B captions to unit vectors (B, d).
    temperature
        The model's τ, for the losses.
    examples
        What to score it on, from `score_examples`.

    Returns
    -------
    SceneScores
        The scores.
    """
    temperature = check_positive("temperature", temperature)

    def seen(images: torch.Tensor) -> torch.Tensor:
        return torch.cat([encode_images(part).float().cpu() for part in images.split(128)])

    def read(captions: list[str]) -> torch.Tensor:
        parts = [captions[start : start + 256] for start in range(0, len(captions), 256)]
        return torch.cat([encode_texts(part).float().cpu() for part in parts])

    combination = examples.combination
    classes = torch.stack([read(single_prompts(template)) for template in _TEMPLATES]).mean(0)
    cosines = seen(examples.singles) @ functional.normalize(classes, dim=1).T
    # The share of each combination in the answer: those that tie share it.
    answer = (cosines == cosines.amax(1, keepdim=True)).float()
    answer = answer / answer.sum(1, keepdim=True)
    rows = torch.arange(len(combination))
    hit = answer[rows, combination]
    by_combination = torch.stack(
        [hit[combination == index].mean() for index in range(len(_COMBINATIONS))]
    )
    held_out = [_COMBINATIONS.index(pair) for pair in scenes.HELD_OUT]
    grid = answer.reshape(len(rows), len(scenes.COLOURS), len(scenes.SHAPES))
    colour, shape = combination // len(scenes.SHAPES), combination % len(scenes.SHAPES)

    images = seen(examples.pairs)
    true_texts, swapped_texts = read(examples.captions), read(examples.swapped)
    right, wrong = (images * true_texts).sum(1), (images * swapped_texts).sum(1)
    swap = choice_accuracy(right, wrong)
    replace = choice_accuracy(right, (images * read(examples.replaced)).sum(1))
    related = images[examples.related]
    relation = choice_accuracy(
        (related * read(examples.relation)).sum(1), (related * read(examples.converse)).sum(1)
    )

    def loss(pictures: torch.Tensor, captions: list[str]) -> float:
        batches = zip(seen(pictures).split(64), read(captions).split(64), strict=True)
        values = [contrastive.info_nce(x, t, temperature=temperature) for x, t in batches]
        return float(torch.stack(values).mean())

    return SceneScores(
        zero_shot=float(hit.mean()),
        zero_shot_worst=float(by_combination.min()),
        zero_shot_held_out=float(by_combination[held_out].mean()),
        colour=float(grid.sum(2)[rows, colour].mean()),
        shape=float(grid.sum(1)[rows, shape].mean()),
        swap=float(swap.mean()),
        swap_in_support=float(swap[examples.in_support].mean()),
        swap_out_of_support=float(swap[~examples.in_support].mean()),
        swap_margin=float((right - wrong).mean()),
        swap_text_cosine=float((true_texts * swapped_texts).sum(1).mean()),
        replace=float(replace.mean()),
        relation=float(relation.mean()),
        loss_full=loss(*examples.full),
        loss_restricted=loss(*examples.restricted),
        temperature=temperature,
    )


def _replaced(claim: scenes.Claim, generator: torch.Generator) -> scenes.Claim:
    """Put a colour that is in neither mention, or a shape that is in neither, into one of them."""
    which = int(torch.randint(2, (), generator=generator))
    attribute = ("colour", "shape")[int(torch.randint(2, (), generator=generator))]
    names = scenes.COLOURS if attribute == "colour" else scenes.SHAPES
    there = {getattr(claim.first, attribute), getattr(claim.second, attribute)}
    absent = [index for index in range(len(names)) if index not in there]
    value = absent[int(torch.randint(len(absent), (), generator=generator))]
    return scenes.replace_concept(claim, which, attribute, value)
