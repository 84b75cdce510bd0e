"""Captions of scenes: round trips over the whole language, exact truth, swaps of meaning."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections import Counter

import numpy as np
import pytest
import torch

from tutorials_lib._scene_captions import (
    LEXICON,
    RELATIONS,
    SIZES,
    TEMPLATES,
    Claim,
    Mention,
    Wording,
    canonical,
    caption_scenes,
    claims_of,
    describes,
    parse_caption,
    replace_concept,
    same_meaning,
    sample_wordings,
    swap,
    vocabulary,
    write_caption,
)
from tutorials_lib._scene_latents import COLOURS, OTHER_COLOUR, SHAPES, Scenes

MENTIONS = [
    Mention(shape, colour, size)
    for shape in (None, *range(len(SHAPES)))
    for colour in (None, *range(len(COLOURS)))
    for size in (None, *SIZES)
]
LINKS = (None, *RELATIONS)
ALL_CLAIMS = [Claim(mention) for mention in MENTIONS] + [
    Claim(first, second, link) for first in MENTIONS for second in MENTIONS for link in LINKS
]
# A few claims of every form, for everything that is done to each in many wordings.
SOME_CLAIMS = ALL_CLAIMS[:: len(ALL_CLAIMS) // 60]


def scenes_of(
    shape: torch.Tensor, colour: torch.Tensor, size: torch.Tensor, position: torch.Tensor
) -> Scenes:
    n = len(shape)
    return Scenes(
        shape=shape,
        colour=colour,
        size=size,
        position=position,
        rgb=torch.full((n, 2, 3), 0.5),
        yaw=torch.zeros(n, 2),
        light=torch.zeros(n, 2),
        background=torch.zeros(n),
        camera=torch.zeros(n, 3),
        noise=torch.zeros(n),
        noise_seed=torch.zeros(n, dtype=torch.int64),
    )


def random_scenes(n: int, seed: int, *, single: float = 0.3) -> Scenes:
    generator = torch.Generator().manual_seed(seed)
    shape = torch.randint(len(SHAPES), (n, 2), generator=generator)
    colour = torch.randint(len(COLOURS) + 1, (n, 2), generator=generator)
    alone = torch.rand(n, generator=generator) < single
    shape[alone, 1] = colour[alone, 1] = -1
    size = 0.28 + 0.19 * torch.rand(n, 2, generator=generator)
    return scenes_of(shape, colour, size, torch.rand(n, 2, 2, generator=generator) * 2 - 1)


def scene(*objects: tuple[str, str, float, float, float]) -> Scenes:
    """One scene of objects (colour, shape, size, x, y); the colour "other" has no name."""
    colours, shapes = (*COLOURS, "other"), SHAPES
    shape = torch.full((1, 2), -1)
    colour = torch.full((1, 2), -1)
    size, position = torch.full((1, 2), 0.3), torch.zeros(1, 2, 2)
    for slot, (name, form, half_height, x, y) in enumerate(objects):
        colour[0, slot], shape[0, slot] = colours.index(name), shapes.index(form)
        size[0, slot] = half_height
        position[0, slot] = torch.tensor([x, y])
    return scenes_of(shape, colour, size, position)


def true_by_hand(claim: Claim, scenes: Scenes, row: int) -> bool:
    """Truth from the definition, object by object in plain Python."""
    objects = []
    for slot in range(2):
        if int(scenes.shape[row, slot]) >= 0:
            x, y = scenes.position[row, slot].tolist()
            size = "large" if float(scenes.size[row, slot]) >= 0.375 else "small"
            names = int(scenes.shape[row, slot]), int(scenes.colour[row, slot]), size
            objects.append((names, x, y))

    def fits(mention: Mention, names: tuple[int, int, str]) -> bool:
        asked = (mention.shape, mention.colour, mention.size)
        return all(a is None or a == b for a, b in zip(asked, names, strict=True))

    if claim.second is None:
        return any(fits(claim.first, names) for names, _, _ in objects)
    for (names, x, y), (other, u, v) in itertools.permutations(objects, 2):
        stands = {
            None: True,
            "left": x <= u - 0.2,
            "right": x >= u + 0.2,
            "front": y <= v - 0.2,
            "behind": y >= v + 0.2,
        }
        if fits(claim.first, names) and fits(claim.second, other) and stands[claim.relation]:
            return True
    return False


# --- The language


def test_every_claim_is_read_back_from_its_words():
    """All 58,428 claims in canonical words, and each in a wording of its own."""
    wordings = sample_wordings(len(ALL_CLAIMS), seed=0)
    for claim, wording in zip(ALL_CLAIMS, wordings, strict=True):
        text = write_caption(claim, wording)
        assert parse_caption(text) == (claim.turned() if wording.reversed else claim), text
    assert all(parse_caption(write_caption(claim)) == claim for claim in ALL_CLAIMS[::7])


def test_every_wording_is_read_back():
    """300 sampled wordings, and every template and every single word, on claims of each form."""
    plain = (0,) * len(LEXICON)
    wordings = [Wording(template=index) for index in range(len(TEMPLATES))]
    for at, words in enumerate(LEXICON.values()):
        for choice in range(len(words)):
            wordings.append(Wording(words=(*plain[:at], choice, *plain[at + 1 :])))
    for apart in itertools.product((False, True), repeat=2):
        wordings += [Wording(3, plain, apart, reversed) for reversed in (False, True)]
    for wording in [*wordings, *sample_wordings(300, seed=1)]:
        for claim in SOME_CLAIMS:
            text = write_caption(claim, wording)
            assert parse_caption(text) == (claim.turned() if wording.reversed else claim), text


def test_wording_changes_neither_the_meaning_nor_the_canonical_caption():
    wordings = sample_wordings(40, seed=2)
    for claim in SOME_CLAIMS:
        texts = [write_caption(claim, wording) for wording in wordings]
        assert len({canonical(text) for text in texts}) == 1
        assert all(same_meaning(claim, text) for text in texts)
        assert canonical(canonical(texts[0])) == canonical(texts[0])


def test_case_24_articles_case_and_full_stops_of_all_captions():
    """Also nothing that a scorer without an image could prefer: no capital, no full stop."""
    wordings = sample_wordings(len(ALL_CLAIMS), seed=3)
    for claim, wording in zip(ALL_CLAIMS, wordings, strict=True):
        text = write_caption(claim, wording)
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", text), text
        assert re.fullmatch(r"[a-z]+( [a-z]+)*", text), text
    assert write_caption(Claim(Mention())) == "an object"
    assert write_caption(Claim(Mention(size="large"))) == "a large object"
    apart = Wording(4, apart=(True, True))
    assert write_caption(Claim(Mention(colour=0)), apart) == "a view of an object that is red"


def test_no_caption_is_longer_than_the_context_of_the_text_tower():
    """17 words and two tokens around them, of 20; the longest words of each concept at once."""
    words = [
        max(range(len(options)), key=lambda i: len(options[i].split()))
        for options in map(list, LEXICON.values())
    ]
    longest = 0
    for template, first, second in itertools.product(range(len(TEMPLATES)), (0, 1), (0, 1)):
        wording = Wording(template, tuple(words), (bool(first), bool(second)))
        for claim in ALL_CLAIMS:
            if claim.second is not None and claim.first.colour in (None, 0):
                longest = max(longest, len(write_caption(claim, wording).split()))
    assert longest == 17


def test_vocabulary_holds_every_word_and_no_other():
    captions = [write_caption(c, w) for c in SOME_CLAIMS for w in sample_wordings(200, seed=4)]
    for claim in ALL_CLAIMS[: len(MENTIONS)]:
        captions += [write_caption(claim, w) for w in sample_wordings(20, seed=5)]
    assert {word for text in captions for word in text.split()} == set(vocabulary())
    assert list(vocabulary()) == sorted(set(vocabulary()))


def test_a_capital_and_a_full_stop_are_read_over():
    assert parse_caption("A photo of a red cube.") == Claim(Mention(0, 0))
    assert parse_caption("  a red cube behind a ball on the floor ") == Claim(
        Mention(0, 0), Mention(1), "behind"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a red cub", "unknown word 'cub'.*did you mean 'cube'.*known words: a, along"),
        ("a Red cube", "unknown word 'Red'.*'red'"),
        ("", "at the beginning comes the end, expected 'a' or 'an'"),
        ("red cube", "at the beginning comes 'red'"),
        ("a object", "after 'a' comes 'object'.*write 'an'"),
        ("an red cube", "after 'an' comes 'red'.*write 'a'"),
        ("a red blue cube", "after 'a red' comes 'blue', expected a noun: cube"),
        ("a red large cube", "after 'a red' comes 'large'"),
        ("a red cube that is blue", "comes 'blue', expected a size or colour not yet mentioned"),
        ("a red cube a sphere", "after 'a red cube' comes 'a', expected the end or a link: and"),
        ("a cube and", "after 'a cube and' comes the end"),
        ("a cube and a sphere and a cube", "after 'a cube and a sphere' comes 'and'"),
        ("a cube to the left", "after 'a cube' comes 'to'"),
        ("a photo of a cube on the floor", "comes 'on', expected the end"),
        ("a photo of", "after 'a photo of' comes the end"),
    ],
)
def test_what_is_no_caption_is_refused_where_it_goes_wrong(text, message):
    with pytest.raises(ValueError, match=message):
        parse_caption(text)


def test_a_caption_is_a_string():
    with pytest.raises(TypeError, match="must be a string, got int"):
        parse_caption(3)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Mention(shape=3), ValueError, r"shape must be None or one of 0 \(cube\)"),
        (lambda: Mention(colour=OTHER_COLOUR), ValueError, "colour must be None or one of"),
        (lambda: Mention(colour=-1), ValueError, "colour"),
        (lambda: Mention(shape="cube"), TypeError, "shape must be an integer"),
        (lambda: Mention(size="medium"), ValueError, "'small' or 'large', got 'medium'"),
        (lambda: Claim(Mention(), None, "left"), ValueError, "'left' needs a second mention"),
        (lambda: Claim(Mention(), Mention(), "on"), ValueError, "one of left, right.*got 'on'"),
        (lambda: Claim("a cube"), TypeError, "first must be a Mention, got str"),
        (lambda: Claim(Mention(), "a cube"), TypeError, "second must be a Mention or None"),
        (lambda: Wording(template=len(TEMPLATES)), ValueError, "template must be an index below"),
        (lambda: Wording(words=(0, 0)), ValueError, "concepts of LEXICON, got 2"),
        (lambda: Wording(words=(9, *[0] * (len(LEXICON) - 1))), ValueError, "word for 'cube'"),
        (lambda: Wording(apart=(True,)), ValueError, "apart needs two entries"),
    ],
)
def test_parts_that_do_not_exist_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_sampled_wordings_use_everything_and_repeat_with_the_seed():
    wordings = sample_wordings(3000, seed=6)
    assert wordings == sample_wordings(3000, seed=6) != sample_wordings(3000, seed=7)
    assert {wording.template for wording in wordings} == set(range(len(TEMPLATES)))
    for at, words in enumerate(LEXICON.values()):
        assert {wording.words[at] for wording in wordings} == set(range(len(words)))
    # A mean of 3000 fair coins has standard deviation 0.009; the bound is five of them.
    assert np.mean([wording.reversed for wording in wordings]) == pytest.approx(0.5, abs=0.046)
    assert np.mean([wording.apart for wording in wordings]) == pytest.approx(0.2, abs=0.03)
    assert sample_wordings(0, seed=0) == []


# --- Truth


@pytest.mark.parametrize("seed", range(3))
def test_truth_agrees_with_the_definition_object_by_object(seed):
    """Claims that are true of some scene, claims that miss one by a little, and any others."""
    scenes = random_scenes(60, seed)
    rng = np.random.default_rng(seed)
    claims = claims_of(scenes, seed=seed, mention_shape=0.6, mention_colour=0.4)
    claims += [swapped for claim in claims if (swapped := swap(claim, "shape"))]
    claims += [dataclasses.replace(c, relation=None) for c in claims if c.relation]
    claims += [ALL_CLAIMS[i] for i in rng.integers(len(ALL_CLAIMS), size=60)]
    trues = 0
    for claim in claims:
        expected = [true_by_hand(claim, scenes, row) for row in range(len(scenes))]
        assert describes(claim, scenes).tolist() == expected, write_caption(claim)
        trues += sum(expected)
    assert trues > 200


def test_truth_of_captions_written_by_hand():
    small_red_cube = ("red", "cube", 0.3, -0.5, 0.0)
    large_blue_ball = ("blue", "sphere", 0.4, 0.5, 0.1)
    both = scene(small_red_cube, large_blue_ball)
    alone = scene(small_red_cube)
    cases = [
        ("a red cube", both, True),
        ("a blue cube", both, False),
        ("a small cube", both, True),
        ("a large cube", both, False),
        ("an object", alone, True),
        ("an object and a thing", both, True),
        ("an object and a thing", alone, False),
        ("a red cube and a blue ball", both, True),
        ("a blue ball and a red cube", both, True),
        ("a blue cube and a red ball", both, False),
        ("a cube and a red object", alone, False),
        ("a cube and a red object", both, False),
        ("a cube and a blue object", both, True),
        ("a cube and a cube", both, False),
        ("a cube to the left of a sphere", both, True),
        ("a sphere to the right of a cube", both, True),
        ("a cube to the right of a sphere", both, False),
        ("a cube in front of a sphere", both, False),  # by 0.1 only
        ("a sphere behind a cube", both, False),
        ("an item left of an item", both, True),
    ]
    for text, world, expected in cases:
        assert describes(text, world).tolist() == [expected], text
    assert describes("a cube and a cube", scene(small_red_cube, small_red_cube)).tolist() == [True]


def test_a_colour_without_a_name_is_none_of_the_names():
    world = scene(("other", "cube", 0.3, 0.0, 0.0))
    assert describes("a cube", world).all()
    assert not any(describes(f"a {colour} cube", world).any() for colour in COLOURS)


def test_size_is_large_from_the_split_on():
    at = scene(("red", "cube", 0.375, 0.0, 0.0))
    assert describes("a large cube", at).all()
    assert not describes("a small cube", at).any()


def test_turning_a_claim_keeps_its_truth_to_the_last_bit():
    """Also at distances within a rounding error of the margin."""
    n = 2000
    generator = torch.Generator().manual_seed(8)
    position = torch.rand(n, 2, 2, generator=generator) * 1.6 - 0.8
    position[:, 1] = position[:, 0] + 0.2
    both = torch.zeros(n, 2, dtype=torch.int64)
    scenes = scenes_of(both, both + torch.tensor([0, 1]), torch.full((n, 2), 0.3), position)
    for relation in RELATIONS:
        claim = Claim(Mention(0, 0), Mention(0, 1), relation)
        assert torch.equal(describes(claim, scenes), describes(claim.turned(), scenes))


def test_two_claims_mean_the_same_if_and_only_if_they_are_true_of_the_same_scenes():
    """On the 732 claims of a small language and all scenes that it can tell apart."""
    mentions = [Mention(s, c, z) for s in (None, 0, 1) for c in (None, 0) for z in (None, "small")]
    claims = [Claim(mention) for mention in mentions]
    claims += [Claim(a, b, link) for a in mentions for b in mentions for link in LINKS]
    kinds = list(itertools.product(range(3), range(2), (0.3, 0.4)))
    places = list(itertools.product((-0.5, 0.0, 0.5), repeat=2))
    pairs = [(a, b, place) for a in kinds for b in kinds for place in places]
    shape = torch.tensor([[a[0], b[0]] for a, b, _ in pairs] + [[a[0], -1] for a in kinds])
    colour = torch.tensor([[a[1], b[1]] for a, b, _ in pairs] + [[a[1], -1] for a in kinds])
    size = torch.tensor([[a[2], b[2]] for a, b, _ in pairs] + [[a[2], 0.3] for a in kinds])
    position = torch.zeros(len(shape), 2, 2)
    position[: len(pairs), 1] = torch.tensor([place for _, _, place in pairs])
    scenes = scenes_of(shape, colour, size, position)
    by_truth: dict[bytes, set[str]] = {}
    for claim in claims:
        truth = describes(claim, scenes).numpy().tobytes()
        by_truth.setdefault(truth, set()).add(canonical(write_caption(claim)))
    assert all(len(texts) == 1 for texts in by_truth.values())
    texts = [text for texts in by_truth.values() for text in texts]
    assert len(texts) == len(set(texts)), "one canonical caption for two meanings"
    assert same_meaning(claims[40], claims[40].turned())
    assert not same_meaning("a cube behind a sphere", "a sphere behind a cube")


# --- Claims that are true of a scene


@pytest.mark.parametrize(
    "probabilities",
    [
        {},
        {"mention_shape": 0.6, "mention_colour": 0.6, "mention_size": 0.5, "mention_second": 0.5},
        {"mention_shape": 0.0, "mention_relation": 1.0, "mention_size": 1.0},
        {"mention_shape": 0.0, "mention_colour": 0.0, "mention_size": 0.5},
    ],
)
def test_every_drawn_claim_and_caption_is_true_of_its_scene(probabilities):
    scenes = random_scenes(700, 9)
    claims = claims_of(scenes, seed=10, **probabilities)
    captions = caption_scenes(scenes, seed=11, **probabilities)
    assert len(claims) == len(captions) == len(scenes)
    for row, (claim, caption) in enumerate(zip(claims, captions, strict=True)):
        one = scenes[row]
        assert describes(claim, one).item(), write_caption(claim)
        assert describes(caption, one).item(), caption
    assert captions == caption_scenes(scenes, seed=11, **probabilities)


def test_what_is_mentioned_follows_the_probabilities():
    """Closed forms; 20,000 scenes, bounds over five standard deviations (error below 1e-5)."""
    scenes = random_scenes(20_000, 12)
    claims = claims_of(
        scenes,
        seed=13,
        mention_shape=0.7,
        mention_colour=0.4,
        mention_size=0.25,
        mention_relation=0.6,
        mention_second=0.8,
    )
    pair = (scenes.n_objects == 2).tolist()
    seconds = [c.second is not None for c, two in zip(claims, pair, strict=True) if two]
    assert np.mean(seconds) == pytest.approx(0.8, abs=0.02)
    assert not any(c.second for c, two in zip(claims, pair, strict=True) if not two)
    mentions = [m for c in claims for m in (c.first, c.second) if m is not None]
    named, both_open = 8 / 9, 0.3 * 0.6
    shape = named * (0.7 + both_open * 7 / 11) + (1 - named) * 0.7
    colour = named * (0.4 + both_open * 4 / 11)
    assert np.mean([m.shape is not None for m in mentions]) == pytest.approx(shape, abs=0.02)
    assert np.mean([m.colour is not None for m in mentions]) == pytest.approx(colour, abs=0.02)
    assert np.mean([m.size is not None for m in mentions]) == pytest.approx(0.25, abs=0.02)
    # A difference of two uniform numbers on [-1, 1] is within 0.2 with probability 1 - 0.9².
    some_relation = 1 - (1 - 0.9**2) ** 2
    related = [c.relation is not None for c in claims if c.second is not None]
    assert np.mean(related) == pytest.approx(0.6 * some_relation, abs=0.025)
    counts = Counter(c.relation for c in claims if c.relation)
    for relation in RELATIONS:
        assert counts[relation] / counts.total() == pytest.approx(0.25, abs=0.035)


def test_which_object_comes_first_says_nothing():
    n = 4000
    shape = torch.tensor([[0, 1]]).expand(n, 2).clone()
    scenes = dataclasses.replace(random_scenes(n, 14, single=0), shape=shape)
    for second in (0.0, 1.0):
        firsts = [c.first.shape for c in claims_of(scenes, seed=15, mention_second=second)]
        # Five standard deviations of 4000 fair coins.
        assert np.mean(firsts) == pytest.approx(0.5, abs=5 * math.sqrt(0.25 / n))


def test_colour_or_shape_stays_unless_both_are_forbidden():
    scenes = random_scenes(1000, 16)
    named = (scenes.colour != OTHER_COLOUR).all(1)
    for options in ({"mention_shape": 0.1, "mention_colour": 0.1}, {"mention_shape": 0.0}):
        claims = claims_of(scenes[named], seed=17, **options)
        for mention in (m for c in claims for m in (c.first, c.second) if m is not None):
            assert mention.shape is not None or mention.colour is not None
    assert all(c.first.shape is None for c in claims_of(scenes, seed=18, mention_shape=0))
    assert all(c.first.colour is None for c in claims_of(scenes, seed=18, mention_colour=0))
    nameless = scenes[(scenes.colour == OTHER_COLOUR).any(1) & (scenes.n_objects == 1)]
    bare = claims_of(nameless, seed=19, mention_shape=0, mention_size=0)
    assert {write_caption(claim) for claim in bare} == {"an object"}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mention_size": 1.5}, ValueError),
        ({"mention_shape": -0.1}, ValueError),
        ({"mention_second": float("nan")}, ValueError),
        ({"mention_colour": "often"}, TypeError),
    ],
)
def test_probabilities_lie_between_zero_and_one(options, error):
    with pytest.raises(error, match=next(iter(options))):
        claims_of(random_scenes(3, 20), seed=0, **options)


def test_no_scenes_no_captions():
    assert caption_scenes(random_scenes(3, 21)[:0], seed=0) == []


# --- Other claims made from one


def test_a_swap_keeps_the_words_undoes_itself_and_changes_the_meaning():
    wordings = sample_wordings(len(ALL_CLAIMS), seed=22)
    swaps = 0
    for claim, wording in itertools.islice(zip(ALL_CLAIMS, wordings, strict=True), 0, None, 3):
        for what in ("colour", "shape", "size"):
            other = swap(claim, what)
            if other is None:
                continue
            swaps += 1
            assert swap(other, what) == claim
            assert not same_meaning(claim, other)
            words = write_caption(claim, wording).split(), write_caption(other, wording).split()
            assert sorted(words[0]) == sorted(words[1]) and words[0] != words[1]
    assert swaps > 5000


@pytest.mark.parametrize(
    ("text", "what", "expected"),
    [
        ("a red cube and a blue sphere", "colour", "a blue cube and a red sphere"),
        ("a red cube and a blue sphere", "shape", "a red sphere and a blue cube"),
        ("a red cube behind a blue cube", "colour", "a blue cube behind a red cube"),
        ("a large red cube and a small sphere", "size", "a small red cube and a large sphere"),
        ("a red object and a blue cube", "colour", "a blue object and a red cube"),
        # Symmetric: the exchange only reorders the claim.
        ("a red cube and a blue cube", "colour", None),
        ("a red object and a blue object", "colour", None),
        ("a cube and a sphere", "shape", None),
        # Nothing to exchange.
        ("a red cube and a red sphere", "colour", None),
        ("a red cube behind a red cube", "colour", None),
        ("a red cube and a sphere", "colour", None),
        ("a red cube and a blue sphere", "size", None),
        ("a red cube", "colour", None),
    ],
)
def test_case_23_a_swap_that_means_the_same_is_none(text, what, expected):
    swapped = swap(parse_caption(text), what)
    assert (None if swapped is None else write_caption(swapped)) == expected


def test_replacing_one_concept():
    claim = parse_caption("a red cube and a blue sphere")
    assert write_caption(replace_concept(claim, 0, "colour", 1)) == "a green cube and a blue sphere"
    assert write_caption(replace_concept(claim, 1, "shape", 2)) == "a red cube and a blue cylinder"
    large = replace_concept(claim, 1, "size", "large")
    assert write_caption(large) == "a red cube and a large blue sphere"
    assert replace_concept(large, 1, "size", None) == claim
    with pytest.raises(ValueError, match="must be 'colour', 'shape' or 'size', got 'weight'"):
        replace_concept(claim, 0, "weight", 1)
    with pytest.raises(ValueError, match="which must be 0 or 1, got 2"):
        replace_concept(claim, 2, "colour", 1)
    with pytest.raises(ValueError, match="one mention only"):
        replace_concept(parse_caption("a cube"), 1, "colour", 1)
    with pytest.raises(ValueError, match="colour must be None or one of"):
        replace_concept(claim, 0, "colour", 99)
    with pytest.raises(ValueError, match="got 'place'"):
        swap(claim, "place")


@pytest.mark.parametrize(
    "function",
    [
        write_caption,
        swap,
        lambda claim: replace_concept(claim, 0, "colour", 1),
    ],
)
def test_a_caption_is_no_claim(function):
    with pytest.raises(TypeError, match="got str; parse_caption makes one of a caption"):
        function("a cube")
    with pytest.raises(TypeError, match="claim must be a Claim, got Mention"):
        function(Mention(0))


def test_a_wording_is_a_wording_of_whole_numbers():
    with pytest.raises(TypeError, match="wording must be a Wording, got int"):
        write_caption(Claim(Mention(0)), 3)
    words = list(Wording().words)
    with pytest.raises(TypeError, match="the word for 'cube' must be an integer"):
        Wording(words=(0.5, *words[1:]))
