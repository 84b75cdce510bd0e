"""Edits of captions: what they keep, what they change, what they refuse, and what is in reach."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tutorials_lib import captions, scenes
from tutorials_lib._caption_words import KINDS, read_words

SWAPS = ("colour", "shape", "size", "object")


def sampled(n: int, seed: int, **probabilities: float) -> tuple[scenes.Scenes, list[str]]:
    batch = scenes.sample_scenes(n, singles=0.3, seed=seed)
    return batch, scenes.caption_scenes(batch, seed=seed + 1, **probabilities)


@pytest.fixture(scope="module")
def many() -> tuple[scenes.Scenes, list[str]]:
    return sampled(10_000, 0, mention_size=0.5, mention_colour=0.8, mention_shape=0.9)


def bag(caption: str) -> Counter[str]:
    return Counter("a" if word == "an" else word for word in caption.lower().rstrip(".").split())


def test_captions_are_taken_apart_without_loss(many):
    """10,000 captions, half of them with a capital and a full stop."""
    for row, caption in enumerate(many[1]):
        text = f"{caption[0].upper()}{caption[1:]}." if row % 2 else caption
        words = read_words(text)
        assert words.text() == text
        assert words.claim() == scenes.parse_caption(text)
    assert read_words("a large cube that is red").text() == "a large cube that is red"


def test_a_swap_keeps_the_words_and_undoes_itself(many):
    made = 0
    for caption in many[1]:
        for kind in SWAPS:
            edit = captions.swap_concepts(caption, kind, allow_same_meaning=True)
            if edit:
                made += 1
                assert bag(edit.after) == bag(caption)
                assert edit.into == edit.out[::-1]
                back = captions.swap_concepts(edit.after, kind, allow_same_meaning=True)
                assert back.after == caption
    assert made > 10_000


def test_a_swap_does_to_the_meaning_what_the_swap_of_claims_does(many):
    """Against ``scenes.swap``, which knows nothing of words."""
    for caption in many[1][:3000]:
        claim = scenes.parse_caption(caption)
        for kind in SWAPS[:3]:
            edit, expected = captions.swap_concepts(caption, kind), scenes.swap(claim, kind)
            assert bool(edit) == (expected is not None)
            assert not edit or scenes.parse_caption(edit.after) == expected


def test_what_changes_the_meaning_is_said_and_nothing_else(many):
    """Every edit of 500 captions; `edits` makes no two alike but swaps of the one difference."""
    for caption in many[1][:500]:
        for edit in captions.edits(caption, allow_same_meaning=True):
            same = scenes.same_meaning(caption, edit.after)
            assert edit.changes_meaning != same, edit
            assert edit.before == caption and edit.reason
        found = captions.edits(caption)
        assert all(edit.changes_meaning for edit in found)
        others = [edit.after for edit in found if (edit.operator, edit.kind) != ("swap", "object")]
        assert len(set(others)) == len(others)


def test_replacing_and_adding_move_one_concept_and_keep_the_wording(many):
    """Words that go are words for ``out``, words that come are words for ``into``."""
    chance = random.Random(0)
    for caption in many[1][:2000]:
        every = captions.edits(caption, operators=("replace", "add"))
        for edit in chance.sample(every, 5):
            assert len(edit.into) == 1
            assert len(edit.out) == (edit.operator == "replace")
            gone, come = bag(caption) - bag(edit.after), bag(edit.after) - bag(caption)
            if edit.kind == "relation":
                assert set(gone) <= set(
                    "and along with to the left right of in front behind".split()
                )
            elif edit.operator == "replace":
                assert gone.total() == come.total() == 1
            elif edit.kind != "shape":
                assert not gone


def test_replacing_undoes_itself():
    caption = "A picture of a violet block left of a ball that is large."
    for kind, which, there, new in (
        ("colour", 0, "violet", "green"),
        ("shape", 0, "block", "cylinder"),
        ("shape", 1, "ball", "cube"),
        ("size", 1, "large", "small"),
        ("relation", 0, "left of", "behind"),
    ):
        edit = captions.replace_concepts(caption, kind, new, which=which)
        assert edit.changes_meaning
        back = captions.replace_concepts(edit.after, kind, there, which=which)
        assert back.after == caption


def test_a_concept_is_written_as_the_caption_writes_it():
    caption = "a violet block to the left of a red ball"
    edit = captions.replace_concepts(caption, "colour", "purple", which=1)
    assert edit.after == "a violet block to the left of a violet ball"
    edit = captions.replace_concepts(caption, "relation", "right")
    assert edit.after == "a violet block to the right of a red ball"
    edit = captions.replace_concepts(caption, "shape", "tube")
    assert edit.after == "a violet tube to the left of a red ball"
    assert (edit.out, edit.into) == (("cube",), ("cylinder",))


def test_adding_fills_what_is_open():
    add = captions.add_concept
    assert add("an object on the floor", "colour", "red").after == "a red object on the floor"
    assert add("a red thing", "shape", "cube").after == "a red cube"
    assert add("a cube that is red", "size", "large").after == "a large cube that is red"
    assert add("there is a cube", "object", "a red ball").after == "there is a cube and a red ball"
    edit = add("a cube on the floor", "object", scenes.Mention(1, 2))
    assert edit.after == "a cube and a blue sphere on the floor"
    assert edit.into == ("blue", "sphere")
    edit = add("a cube along with a ball", "relation", "front")
    assert edit.after == "a cube in front of a ball"


def test_case_23_a_swap_that_means_the_same_is_refused_with_the_reason():
    """ "And" has no order, and exchanging like things changes nothing."""
    for caption, kind, reason in (
        ("a red cube and a blue cube", "colour", "'and' has no order"),
        ("a red cube along with a red ball", "shape", "'and' has no order"),
        ("a red cube and a blue ball", "object", "'and' has no order"),
        ("a red cube and a red ball", "colour", "both mentions have the colour red"),
        ("a grey cube behind a gray ball", "colour", "both mentions have the colour grey"),
        ("a red cube behind a red block", "object", "both mentions say the same"),
        ("a red cube behind a ball", "colour", "the second mention leaves its colour open"),
        ("a thing behind a ball", "shape", "the first mention leaves its shape open"),
        ("a red cube", "colour", "one object only"),
        ("a red cube behind a ball", "relation", "one relation at most"),
    ):
        refused = captions.swap_concepts(caption, kind)
        assert isinstance(refused, captions.NoEdit) and not refused
        assert reason in refused.reason
        assert (refused.operator, refused.kind, refused.before) == ("swap", kind, caption)
    edit = captions.swap_concepts("a red cube and a blue cube", allow_same_meaning=True)
    assert edit.after == "a blue cube and a red cube" and not edit.changes_meaning
    refused = captions.replace_concepts("a cube left of a block", "relation", "right")
    assert not refused and "the mentions say the same" in refused.reason


def test_other_refusals_say_why():
    replace, add = captions.replace_concepts, captions.add_concept
    for refused, reason in (
        (replace("a red cube", "colour", "red"), "red already"),
        (replace("a cube", "colour", "red"), "open; add one"),
        (replace("a cube and a ball", "relation", "left"), "no relation to replace"),
        (replace("a cube", "relation", "left"), "one object only"),
        (replace("a cube", "object", "a ball"), "not one concept"),
        (add("a red cube", "colour", "blue"), "has the colour red already"),
        (add("a cube behind a ball", "relation", "left"), "the relation behind already"),
        (add("a cube", "relation", "left"), "one object only"),
        (add("a cube and a ball", "object", "a ball"), "two objects"),
    ):
        assert not refused and reason in refused.reason


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: captions.swap_concepts("a red cube", "color"), "kind must be one of colour"),
        (lambda: captions.swap_concepts("a red dog", "colour"), "unknown word 'dog'"),
        (lambda: captions.replace_concepts("a red cube", "colour", "large"), "no colour 'large'"),
        (lambda: captions.replace_concepts("a cube", "shape", "ball", which=1), "one object only"),
        (lambda: captions.replace_concepts("a cube", "shape", "ball", which=2), "0 or 1"),
        (lambda: captions.add_concept("a cube", "object", "a cube and a ball"), "one object"),
        (lambda: captions.edits("a cube", operators=("move",)), "operators must be among"),
        (lambda: captions.edits("a cube", kinds=("noun",)), "kind must be one of"),
    ],
)
def test_what_does_not_exist_raises(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_case_24_articles_capitals_and_full_stops_stay_right():
    swap, replace, add = captions.swap_concepts, captions.replace_concepts, captions.add_concept
    assert swap("An object behind a red cube.", "object").after == "A red cube behind an object."
    assert add("An object.", "colour", "red").after == "A red object."
    assert add("A thing.", "shape", "cube").after == "A cube."
    assert replace("A red item.", "colour", "blue").after == "A blue item."
    edit = swap("a red object to the left of an item that is blue", "colour")
    assert edit.after == "a blue object to the left of an item that is red"
    for caption in ("An object.", "A red cube and an item.", "There is a thing behind a cube."):
        for edit in captions.edits(caption):
            scenes.parse_caption(edit.after)
            assert edit.after[0].isupper() and edit.after.endswith(".")
            assert edit.after.count(".") == 1 and " ." not in edit.after


def test_kinds_and_operators_choose_among_the_edits():
    caption = "a large red cube to the left of a blue sphere"
    every = captions.edits(caption)
    count = Counter((edit.operator, edit.kind) for edit in every)
    assert count == {
        ("swap", "colour"): 1,
        ("swap", "shape"): 1,
        ("swap", "object"): 1,
        ("replace", "colour"): 14,
        ("replace", "shape"): 4,
        ("replace", "size"): 1,
        ("replace", "relation"): 3,
        ("add", "size"): 2,
    }
    for kind in KINDS:
        assert captions.edits(caption, kinds=(kind,)) == [e for e in every if e.kind == kind]
    for operator in captions.OPERATORS:
        some = captions.edits(caption, operators=(operator,))
        assert some == [edit for edit in every if edit.operator == operator]
