"""Edits of captions: what they keep, what they change, what they refuse, and what is in reach."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
import torch

from tutorials_lib import captions, scenes
from tutorials_lib._caption_words import KINDS, read_words
from tutorials_lib._scene_grammar import LEXICON

LINKS = set("and along with to the left right of in front behind".split())
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
    """Every edit of 200 captions; `edits` makes no two alike but swaps of the one difference."""
    for caption in many[1][:200]:
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
    for caption in many[1][:500]:
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


# --- Hard negatives


def test_hard_negatives_are_false_of_the_scene(many):
    """10,000 scenes, one drawn negative each, and the negatives of 100."""
    batch, texts = many
    drawn = captions.sample_negatives(texts, batch, seed=0)
    rows = [row for row, edit in enumerate(drawn) if edit]
    assert len(rows) > 9900
    assert all(drawn[row].before == texts[row] and drawn[row].changes_meaning for row in rows)
    afters = [drawn[row].after for row in rows]
    assert not captions.describes_each(afters, batch[torch.tensor(rows)]).any()
    for row in range(100):
        scene = batch[row : row + 1]
        found = captions.hard_negatives(texts[row], scene, operators=captions.OPERATORS)
        kept = {edit.after for edit in found}
        for edit in captions.edits(texts[row])[:: 1 + row % 7]:
            assert (edit.after in kept) != bool(scenes.describes(edit.after, scene))
        assert bool(drawn[row]) == bool(captions.hard_negatives(texts[row], scene))


def test_a_caption_without_hard_negative_says_so():
    batch = scenes.sample_scenes(50, singles=1.0, seed=0)
    for result in captions.sample_negatives(["a thing"] * 50, batch, seed=0):
        assert not result and "false of the scene" in result.reason
    with pytest.raises(ValueError, match="1 captions, but 50 scenes"):
        captions.sample_negatives(["a thing"], batch, seed=0)
    swaps = captions.sample_negatives(["a cube"] * 50, batch, operators=("swap",), seed=0)
    assert {(result.operator, result.kind) for result in swaps} == {("swap", "any kind")}


def test_without_a_scene_another_meaning_is_enough():
    found = captions.hard_negatives("a red cube and a blue cube", kinds=("colour", "object"))
    assert {edit.operator for edit in found} == {"replace"}
    assert len(found) == 14


@pytest.fixture(scope="module")
def negatives(many) -> dict[str, list[captions.Edit | captions.NoEdit]]:
    batch, texts = many
    return {
        operator: captions.sample_negatives(texts, batch, operators=(operator,), seed=1)
        for operator in ("swap", "replace")
    }


def test_describes_each_agrees_with_describes(many):
    """Row by row: true captions, the captions of other scenes, and their edits."""
    batch, texts = many
    assert captions.describes_each(texts, batch).all()
    few, claims = batch[:700], [scenes.parse_caption(text) for text in texts]
    for asked in (texts[700:1400], claims[1400:2100]):
        each = captions.describes_each(asked, few)
        rows = [bool(scenes.describes(a, few[i : i + 1])) for i, a in enumerate(asked)]
        assert each.tolist() == rows and 20 < sum(rows) < 680
    edited = [captions.edits(text)[row % 5].after for row, text in enumerate(texts[:700])]
    each = captions.describes_each(edited, few)
    assert each.tolist() == [
        bool(scenes.describes(text, few[row : row + 1])) for row, text in enumerate(edited)
    ]
    assert captions.describes_each([], few[:0]).shape == (0,)
    with pytest.raises(ValueError, match="0 captions, but 700 scenes"):
        captions.describes_each([], few)


BLIND = {
    "fewer letters": lambda text: -len(text),
    "fewer words": lambda text: -len(text.split()),
    "the usual words": lambda text: sum(word in USUAL for word in text.split()),
    "first in the alphabet": lambda text: [-ord(letter) for letter in text],
    "more different words": lambda text: len(set(text.split())),
    "capital and full stop": lambda text: text[0].isupper() + text.endswith("."),
}
USUAL = {words[0] for words in LEXICON.values()}


@pytest.mark.parametrize("operator", ["swap", "replace"])
@pytest.mark.parametrize("rule", BLIND)
def test_case_21_blind_rules_are_at_chance_on_our_hard_negatives(negatives, operator, rule):
    """Each choice is 0, 1/2 or 1 with mean 1/2, ties at 1/2.

    By Hoeffding a mean of n misses 1/2 by more than 3/√n with probability below 2·exp(−18).
    """
    drawn = negatives[operator]
    score = BLIND[rule]
    choices = []
    for edit in drawn:
        if edit:
            right, wrong = score(edit.before), score(edit.after)
            choices.append(0.5 if right == wrong else float(right > wrong))
    assert len(choices) > 3000
    assert abs(sum(choices) / len(choices) - 0.5) < 3 / len(choices) ** 0.5
    if operator == "swap" and rule != "first in the alphabet":
        assert set(choices) == {0.5}


def test_case_21_added_concepts_are_seen_without_looking(many):
    """Why ADD is not among the default operators: the shorter caption is always right."""
    batch, texts = many
    drawn = captions.sample_negatives(texts[:500], batch[:500], operators=("add",), seed=0)
    longer = [len(e.after.split()) - len(e.before.split()) for e in drawn if e and e.kind in ADDS]
    assert min(longer) >= 1 and len(longer) > 200


ADDS = ("colour", "size", "object")


# --- Orbits


def test_orbits_of_swaps_have_the_sizes_of_orderings():
    orbit = captions.orbit
    behind = "a large red cube behind a small blue ball"
    for kinds, size in ((("colour",), 2), (("colour", "shape"), 4), (None, 8)):
        assert len(orbit(behind, kinds=kinds)) == size
    together = "a large red cube and a small blue ball"
    for kinds, size in ((("colour",), 2), (("colour", "shape"), 4), (None, 4)):
        assert len(orbit(together, kinds=kinds)) == size
    assert len(orbit("a red cube and a blue ball")) == 2
    assert len(orbit("a red cube and a blue cube")) == 1
    assert len(orbit("a red thing behind a cube")) == 2
    # An exchange of everything is one swap of objects.
    assert max(orbit(behind).values()) == 2
    assert max(orbit(behind, kinds=("colour", "shape", "size")).values()) == 3


def test_orbits_of_replaces_have_the_sizes_of_products():
    orbit = captions.orbit
    found = orbit("a red cube behind a blue ball", operators=("replace",), kinds=("colour",))
    assert Counter(found.values()) == {0: 1, 1: 2 * 7, 2: 7 * 7}
    found = orbit("a red cube and a blue cube", operators=("replace",), kinds=("colour",))
    assert len(found) == 8 * 9 // 2
    found = orbit("a red cube and a blue ball", operators=("replace",), kinds=("colour", "shape"))
    # Unordered pairs of the 24 combinations.
    assert len(found) == 24 * 25 // 2
    found = orbit("a cube behind a ball", operators=("replace",), kinds=("relation",))
    assert len(found) == 4
    found = orbit("a red cube", operators=("replace",), depth=1)
    assert Counter(found.values()) == {0: 1, 1: 7 + 2}


def test_orbits_of_adds_need_a_depth_and_end_with_the_grammar():
    orbit = captions.orbit
    with pytest.raises(ValueError, match="depth must be given"):
        orbit("a cube", operators=("swap", "add"))
    add = {"operators": ("add",), "kinds": ("colour", "size")}
    found = orbit("a cube", depth=9, **add)
    assert Counter(found.values()) == {0: 1, 1: 8 + 2, 2: 8 * 2}
    found = orbit("a cube", operators=("add",), depth=1)
    assert len(found) == 1 + 8 + 2 + 4
    with pytest.raises(ValueError, match="more than 10 captions"):
        orbit("a cube", operators=("add",), depth=1, limit=10)


def test_an_orbit_holds_captions_in_canonical_form_nearest_first(many):
    for caption in many[1][:100]:
        found = captions.orbit(caption, operators=("swap", "replace"), depth=1)
        assert next(iter(found)) == scenes.canonical(caption)
        assert list(found.values()) == sorted(found.values())
        assert all(text == scenes.canonical(text) for text in found)
        single = captions.edits(caption, operators=("swap", "replace"))
        assert set(found) == {
            scenes.canonical(text) for text in (caption, *(e.after for e in single))
        }


def test_what_a_map_forgets_of_one_swap_it_forgets_of_the_orbit(many):
    """ρ∘Op = ρ gives ρ∘Opⁿ = ρ; here ρ is the multiset of words of the canonical caption."""
    for caption in many[1][:300]:
        bags = {tuple(sorted(bag(text).items())) for text in captions.orbit(caption)}
        assert len(bags) == 1


# --- The name of an operator


def test_the_operator_of_an_edit_is_named(many):
    """All edits of 100 captions and, for ADD, the way back."""
    for caption in many[1][:100]:
        assert captions.name_operator(caption, caption) == "same"
        for edit in captions.edits(caption):
            assert captions.name_operator(caption, edit.after) == edit.operator
            back = captions.name_operator(edit.after, caption)
            assert back == ("remove" if edit.operator == "add" else edit.operator)


def test_swap_is_the_name_of_the_orbit_of_swaps_and_of_nothing_else():
    """Over every way to hand the concepts of each kind to the two mentions."""
    for caption in (
        "a large red cube behind a small blue ball",
        "a red thing left of a cube",
        "a red cube left of a ball",
        "a red cube and a blue cube",
        "a large thing and a red cube",
    ):
        claim = scenes.parse_caption(caption)
        pairs = [
            ((a, b), (b, a))
            for a, b in (
                (getattr(claim.first, kind), getattr(claim.second, kind))
                for kind in ("shape", "colour", "size")
            )
        ]
        reached = set(captions.orbit(caption))
        for shape, colour, size in itertools.product(*pairs):
            mentions = [scenes.Mention(*parts) for parts in zip(shape, colour, size, strict=True)]
            text = scenes.write_caption(scenes.Claim(*mentions, claim.relation))
            name = captions.name_operator(caption, text)
            if scenes.same_meaning(caption, text):
                assert name == "same"
            else:
                assert (name == "swap") == (scenes.canonical(text) in reached), text


def test_names_of_single_cases():
    name = captions.name_operator
    assert name("a cube left of a ball", "a box to the left of a globe") == "same"
    assert name("a cube left of a ball", "a ball right of a cube") == "same"
    assert name("a cube left of a ball", "a ball left of a cube") == "swap"
    assert name("a cube left of a ball", "a cube right of a ball") == "replace"
    assert name("a cube left of a ball", "a cube behind a tube") == "replace"
    assert name("a red cube", "a blue ball") == "replace"
    assert name("a cube", "a ball and a red cube") == "add"
    assert name("a cube", "a red cube left of a ball") == "add"
    assert name("a cube and a ball", "a ball behind a red cube") == "add"
    assert name("a ball and a red cube", "a cube") == "remove"
    assert name("a red cube", "a large cube") is None
    assert name("a red cube", "a cube and a red ball") is None
