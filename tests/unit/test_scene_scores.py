"""Scores of a CLIP on scenes: encoders that know everything, and encoders that know nothing."""

import dataclasses
import math

import pytest
import torch

from tutorials_lib import scene_scores, scenes

EXAMPLES = scene_scores.score_examples(size=96, seed=1)
CHANCE = {"swap": 0.5, "replace": 0.5, "relation": 0.5, "zero_shot": 1 / 24}


def table_of_images(examples):
    """The images' captions, so that an encoder of images can look up what it sees."""
    known = {}

    def remember(images, captions):
        for image, caption in zip(images, captions, strict=True):
            known[image.numpy().tobytes()] = caption

    remember(examples.singles, [scene_scores.single_prompts()[c] for c in examples.combination])
    remember(examples.full[0], examples.full[1])
    remember(examples.restricted[0], examples.restricted[1])
    related = dict(zip(examples.related, examples.relation, strict=True))
    remember(examples.pairs, [related.get(i, c) for i, c in enumerate(examples.captions)])
    return known


def concepts(caption, *, binding):
    """A unit vector of the concepts in a caption, with or without what belongs to what."""
    claim = scenes.parse_caption(caption)
    vector = torch.zeros(8 + 3 + 24 + 24)
    for place, mention in enumerate((claim.first, claim.second)):
        if mention is None:
            continue
        vector[mention.colour] += 1
        vector[8 + mention.shape] += 1
        if binding:
            pair = 3 * mention.colour + mention.shape
            vector[11 + pair] += 1
            if claim.relation in ("left", "front"):
                vector[35 + pair] += 1 - 2 * place
            elif claim.relation in ("right", "behind"):
                vector[35 + pair] -= 1 - 2 * place
    return vector / vector.norm()


def scores_of(*, binding):
    known = table_of_images(EXAMPLES)

    def encode_texts(captions):
        return torch.stack([concepts(caption, binding=binding) for caption in captions])

    def encode_images(images):
        return encode_texts([known[image.numpy().tobytes()] for image in images])

    return scene_scores.scene_scores(
        encode_images, encode_texts, temperature=0.05, examples=EXAMPLES
    )


def test_an_encoder_that_binds_scores_one():
    scores = scores_of(binding=True)
    for name in ("zero_shot", "zero_shot_worst", "zero_shot_held_out", "colour", "shape"):
        assert getattr(scores, name) == 1.0, name
    assert scores.swap == scores.replace == scores.relation == 1.0
    assert scores.swap_margin > 0.1 and scores.swap_text_cosine < 0.99


def test_a_bag_of_concepts_is_at_chance_on_swap_and_relation_alone():
    """Exactly one half: both captions get the same score, and a tie of two counts one half."""
    scores = scores_of(binding=False)
    assert scores.zero_shot == scores.replace == 1.0
    assert scores.swap == scores.swap_in_support == scores.swap_out_of_support == 0.5
    assert scores.relation == 0.5
    assert scores.swap_margin == pytest.approx(0.0, abs=1e-6)
    assert scores.swap_text_cosine == pytest.approx(1.0, abs=1e-6)


def test_case_22_a_constant_encoder_is_at_chance_everywhere():
    """No index wins by being first."""

    def constant(batch):
        return torch.nn.functional.normalize(torch.ones(len(batch), 4), dim=1)

    scores = scene_scores.scene_scores(constant, constant, temperature=0.07, examples=EXAMPLES)
    assert scores.swap == scores.replace == scores.relation == 0.5
    assert scores.zero_shot == pytest.approx(1 / 24)
    assert scores.colour == pytest.approx(1 / 8) and scores.shape == pytest.approx(1 / 3)
    assert scores.zero_shot_worst == pytest.approx(1 / 24)
    assert scores.zero_shot_held_out == pytest.approx(1 / 24)
    assert scores.loss_full == pytest.approx(2 * math.log(64), abs=1e-5)
    assert scores.loss_restricted == pytest.approx(2 * math.log(64), abs=1e-5)


def test_a_tie_counts_one_over_its_size():
    right = torch.tensor([1.0, 1.0, 1.0, 0.0])
    wrong = torch.tensor([[0.0, 0.5], [1.0, 0.0], [1.0, 1.0], [1.0, 0.0]])
    result = scene_scores.choice_accuracy(right, wrong)
    assert result.tolist() == [1.0, 1 / 2, 1 / 3, 0.0]


def test_scores_of_other_choices_are_refused():
    """Two rows of four scores are not four rows of two."""
    for right, wrong in ((4, (2, 4)), (4, (5,)), (4, (4, 2, 2)), ((4, 1), (4,))):
        with pytest.raises(ValueError, match=r"wrong \(N,\) or \(N, k\)"):
            scene_scores.choice_accuracy(torch.zeros(right), torch.zeros(wrong))
    assert scene_scores.choice_accuracy(torch.zeros(0), torch.zeros(0, 3)).shape == (0,)


def test_captions_of_the_examples_are_true_where_they_must_be_and_false_where_not():
    """Checked against the truth conditions, on scenes drawn again from the same seed."""
    examples = scene_scores.score_examples(size=96, seed=1)
    assert examples.captions == EXAMPLES.captions
    assert torch.equal(examples.pairs, EXAMPLES.pairs)
    assert len(set(examples.captions) & set(examples.swapped)) < len(examples.captions)
    for true, swapped, replaced in zip(
        examples.captions, examples.swapped, examples.replaced, strict=True
    ):
        assert not scenes.same_meaning(true, swapped)
        assert not scenes.same_meaning(true, replaced)
        assert sorted(true.split()) == sorted(swapped.split()), "the same words"


def test_scores_lie_where_they_can():
    for name, value in dataclasses.asdict(scores_of(binding=True)).items():
        assert math.isfinite(value), name


def test_a_temperature_must_be_positive():
    with pytest.raises(ValueError, match="temperature"):
        scene_scores.scene_scores(len, len, temperature=0.0, examples=EXAMPLES)
