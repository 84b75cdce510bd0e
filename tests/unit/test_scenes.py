"""Laws of scenes, restricted support, domains, and latents as numbers."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from tutorials_lib import bench_scenes, scenes


def balanced_pairs():
    """Every ordered pair of combinations once: 24² scenes of two objects."""
    base = scenes.sample_scenes(24 * 24, seed=0)
    first, second = torch.meshgrid(torch.arange(24), torch.arange(24), indexing="ij")
    pair = torch.stack([first.flatten(), second.flatten()], 1)
    return base.replace(colour=pair // 3, shape=pair % 3)


def multiset(batch):
    """What a bag of concepts knows, as one key per scene."""
    return [tuple(row.tolist()) for row in scenes.concept_counts(batch).int()]


def test_same_seed_same_scenes_and_another_seed_others():
    one, same, other = (scenes.sample_scenes(50, singles=0.5, seed=s) for s in (3, 3, 4))
    for field in dataclasses.fields(scenes.Scenes):
        if field.name != "domain":
            assert torch.equal(getattr(one, field.name), getattr(same, field.name))
            assert not torch.equal(getattr(one, field.name), getattr(other, field.name))


def test_combinations_are_uniform_and_objects_independent():
    """Chi-squared on 24 and on 576 cells; a true law exceeds these bounds once in 10⁵ runs."""
    batch = scenes.sample_scenes(57_600, seed=0)
    combination = 3 * batch.colour + batch.shape
    single = torch.bincount(combination[:, 0], minlength=24).double()
    assert float(((single - 2400) ** 2 / 2400).sum()) < 62.0  # 23 degrees of freedom
    pair = torch.bincount(24 * combination[:, 0] + combination[:, 1], minlength=576).double()
    assert float(((pair - 100) ** 2 / 100).sum()) < 730.0  # 575 degrees of freedom


def test_excluded_combinations_never_occur_and_all_others_do():
    allowed = scenes.combinations(exclude=scenes.HELD_OUT)
    batch = scenes.sample_scenes(5000, singles=0.5, allowed=allowed, seed=1)
    seen = scenes.binding_counts(batch).sum(0).reshape(8, 3) > 0
    assert torch.equal(seen, allowed)
    assert int((~allowed).sum()) == 3
    # One of each shape, three colours: no concept is missing from training.
    assert len({c for c, _ in scenes.HELD_OUT}) == len({s for _, s in scenes.HELD_OUT}) == 3


def test_restricted_support_has_one_binding_of_each_multiset():
    """Exact, over all 576 pairs: of each ambiguous multiset one binding of two is left."""
    batch = balanced_pairs()
    inside = scenes.in_support(batch)
    bindings, kept = {}, {}
    for index, key in enumerate(multiset(batch)):
        binding = tuple(scenes.binding_counts(batch[index])[0].int().tolist())
        bindings.setdefault(key, set()).add(binding)
        if inside[index]:
            kept.setdefault(key, set()).add(binding)
    assert set(kept) == set(bindings), "every multiset stays possible"
    assert all(len(found) == 1 for found in kept.values())
    assert sum(len(found) == 2 for found in bindings.values()) == math.comb(8, 2) * 3


def test_the_rule_of_restricted_support_is_balanced():
    """Exact: within the support each colour goes with each shape equally often."""
    batch = balanced_pairs()
    counts = scenes.binding_counts(batch[scenes.in_support(batch)]).sum(0)
    assert torch.equal(counts, counts[:1].expand(24))


def test_restricted_support_keeps_the_law_of_multisets():
    """The same seed gives the same multisets under both supports, scene by scene."""
    full = scenes.sample_scenes(2000, seed=5)
    restricted = scenes.sample_scenes(2000, support="restricted", seed=5)
    assert bool(scenes.in_support(restricted).all())
    assert not bool(scenes.in_support(full).all())
    assert multiset(full) == multiset(restricted)


def test_swapping_colours_leaves_the_multiset_and_changes_the_binding():
    batch = scenes.sample_scenes(500, seed=6)
    differ = (batch.colour[:, 0] != batch.colour[:, 1]) & (batch.shape[:, 0] != batch.shape[:, 1])
    batch = batch[differ]
    swapped = scenes.swap_colours(batch)
    assert multiset(batch) == multiset(swapped)
    assert bool((scenes.in_support(batch) != scenes.in_support(swapped)).all())
    moved = (scenes.binding_counts(batch) - scenes.binding_counts(swapped)).abs().sum(1)
    assert moved.tolist() == [4.0] * len(batch)
    with pytest.raises(ValueError, match="two objects"):
        scenes.swap_colours(scenes.sample_scenes(3, singles=1.0, seed=0))


def test_objects_do_not_stand_in_one_another_and_sizes_avoid_the_split():
    batch = scenes.sample_scenes(5000, seed=7)
    distance = (batch.position[:, 0] - batch.position[:, 1]).norm(dim=1)
    assert bool((distance > batch.size.sum(1)).all())
    low, high = scenes.SIZE_RANGE
    assert low <= float(batch.size.min()) and float(batch.size.max()) <= high
    assert float((batch.size - scenes.SIZE_SPLIT).abs().min()) > 0.02
    # Both words are used: the standard deviation of this share is 0.005.
    large = float((batch.size >= scenes.SIZE_SPLIT).float().mean())
    assert abs(large - (high - 0.4) / (high - low - 0.05)) < 0.03


def test_nameless_paint_is_far_from_every_named_colour():
    batch = scenes.sample_scenes(400, nameless=1.0, seed=8)
    assert bool((batch.colour == scenes.OTHER_COLOUR).all())
    distance = torch.cdist(batch.rgb.flatten(0, 1), torch.tensor(scenes.COLOUR_RGB)).amin(1)
    assert float(distance.min()) > 0.29
    assert scenes.concept_counts(batch)[:, :8].sum() == 0


def test_named_paint_is_closest_to_its_own_colour():
    """The shades of a colour must not become another colour; over 8,000 objects."""
    batch = scenes.sample_scenes(4000, seed=9)
    distance = torch.cdist(batch.rgb.flatten(0, 1), torch.tensor(scenes.COLOUR_RGB))
    right = distance.argmin(1) == batch.colour.flatten()
    assert float(right.float().mean()) > 0.995


@pytest.mark.parametrize("domain", scenes.DOMAINS)
def test_a_shift_of_domain_keeps_what_captions_speak_of(domain):
    batch = scenes.sample_scenes(20, singles=0.3, seed=10)
    shifted = scenes.shift_domain(batch, domain, seed=0)
    assert shifted.domain == domain
    for name in ("shape", "colour", "size", "position", "rgb"):
        assert torch.equal(getattr(batch, name), getattr(shifted, name))
    same_light = torch.equal(batch.light, shifted.light)
    assert same_light == (domain != "new-light")
    if domain != "photo":
        assert not torch.equal(scenes.render(batch), scenes.render(shifted))


def test_shared_latents_name_what_they_hold():
    single = scenes.sample_scenes(30, singles=1.0, seed=11)
    values, names = scenes.shared_latents(single)
    assert values.shape == (30, 14) and len(names) == 14
    row = dict(zip(names, values[0].tolist(), strict=True))
    assert row[scenes.COLOURS[int(single.colour[0, 0])]] == 1.0
    assert row[scenes.SHAPES[int(single.shape[0, 0])]] == 1.0
    assert row["x"] == pytest.approx(float(single.position[0, 0, 0]))
    assert values[:, :8].sum() == 30 and values[:, 8:11].sum() == 30


def test_shared_latents_of_pairs_do_not_depend_on_the_order_of_the_objects():
    pair = scenes.sample_scenes(30, seed=12)
    flipped = pair.replace(
        **{name: getattr(pair, name).flip(1) for name in ("shape", "colour", "size", "position")}
    )
    values, names = scenes.shared_latents(pair)
    assert torch.equal(values, scenes.shared_latents(flipped)[0])
    assert values.shape == (30, 28) and names[0] == "left red" and names[14] == "right red"
    assert bool((values[:, names.index("left x")] <= values[:, names.index("right x")]).all())
    with pytest.raises(ValueError, match="equally many"):
        scenes.shared_latents(scenes.sample_scenes(30, singles=0.5, seed=0))


def test_private_latents_are_finite_and_independent_of_the_shared_ones():
    """Correlations of 20,000 rows; 6 standard errors, exceeded once in 10⁶ runs of 168."""
    batch = scenes.sample_scenes(20_000, singles=1.0, seed=13)
    private, names = scenes.private_latents(batch)
    assert private.shape == (20_000, 12) and len(names) == 12
    shared = scenes.shared_latents(batch)[0]
    both = torch.cat([private, shared], 1).double().T
    correlation = torch.corrcoef(both)[:12, 12:]
    # Paint is clamped to [0.02, 1], so the shade depends on the colour a little.
    free = [name != "shade" for name in names]
    assert float(correlation[free].abs().max()) < 6 / math.sqrt(20_000)


def test_picking_and_joining_scenes():
    batch = scenes.sample_scenes(10, singles=0.5, seed=14)
    joined = scenes.concatenate(batch[:4], batch[4:])
    for field in dataclasses.fields(scenes.Scenes):
        if field.name != "domain":
            assert torch.equal(getattr(batch, field.name), getattr(joined, field.name))
    assert len(batch[3]) == 1 and len(batch[batch.n_objects == 1]) == int(
        (batch.n_objects == 1).sum()
    )
    assert len(scenes.sample_scenes(0, seed=0)) == 0
    with pytest.raises(IndexError, match="10 scenes"):
        batch[10]
    with pytest.raises(ValueError, match="one domain"):
        scenes.concatenate(batch, scenes.shift_domain(batch, "line", seed=0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"singles": 1.5}, "probability"),
        ({"nameless": float("nan")}, "probability"),
        ({"support": "some"}, "'full' or 'restricted'"),
        ({"domain": "photograph"}, "photo, new-light"),
        ({"allowed": torch.zeros(8, 3, dtype=torch.bool)}, "no combination"),
        ({"allowed": torch.ones(3, 8, dtype=torch.bool)}, "shape \\(8, 3\\)"),
        (
            {
                "support": "restricted",
                "allowed": scenes.combinations(exclude=[("red", "cube")]),
            },
            "every combination",
        ),
    ],
)
def test_what_cannot_be_sampled_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        scenes.sample_scenes(3, seed=0, **arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": torch.tensor([[0, 9]])}, "between -1"),
        ({"shape": torch.tensor([[0, -1]])}, "not only one"),
        (
            {"shape": torch.tensor([[-1, 0]]), "colour": torch.tensor([[-1, 0]])},
            "first object",
        ),
        ({"size": torch.tensor([[math.nan, 0.3]])}, "finite"),
        ({"size": torch.tensor([[0.3]])}, "shape"),
        ({"domain": "sketch"}, "one of photo"),
    ],
)
def test_scenes_that_make_no_sense_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        scenes.sample_scenes(1, seed=0).replace(**change)


def test_a_combination_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="crimson"):
        scenes.combinations(exclude=[("crimson", "cube")])


def test_the_benchmark_prints_a_row_for_each_domain_and_each_way_of_captions(capsys):
    """How fast they are is for it to say."""
    bench_scenes.main(["--scenes", "16", "--rounds", "1"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == len(scenes.DOMAINS) + 3
    for row in rows:
        per_second, per_processor_second = (float(x.replace(",", "")) for x in row.split()[-2:])
        assert per_second > 0
        assert per_processor_second > 0


@pytest.mark.parametrize(
    "one", [2, -8, np.int64(2), np.uint8(2), torch.tensor(2), torch.tensor([2]), [2]]
)
def test_one_scene_is_picked_by_any_integer(one):
    batch = scenes.sample_scenes(10, seed=14)
    assert len(batch[one]) == 1
    assert torch.equal(batch[one].position, batch.position[2:3])


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (np.int64(10), IndexError, "10 scenes, got index 10"),
        (torch.tensor([0, -11]), IndexError, "10 scenes, got index -11"),
        (True, IndexError, r"mask must have shape \(10,\)"),
        ([True, False], IndexError, r"mask must have shape \(10,\)"),
        ((0, 1), TypeError, "picked by an integer"),
        (None, TypeError, "picked by an integer"),
        (1.0, TypeError, "picked by an integer"),
        (torch.tensor([1.0]), TypeError, "picked by an integer"),
        (torch.ones(10, dtype=torch.uint8), TypeError, "picked by an integer"),
        (torch.zeros(2, 2, dtype=torch.int64), TypeError, "picked by an integer"),
    ],
)
def test_what_picks_no_scenes_is_refused(index, error, message):
    with pytest.raises(error, match=message):
        scenes.sample_scenes(10, seed=14)[index]


def test_picking_nothing_gives_no_scenes():
    batch = scenes.sample_scenes(3, seed=0)
    for index in ([], torch.tensor([]), np.array([], dtype=int), torch.zeros(3, dtype=torch.bool)):
        assert len(batch[index]) == 0
    assert len(list(batch)) == 3


@pytest.mark.parametrize(
    "function",
    [
        lambda x: scenes.describes("a cube", x),
        lambda x: scenes.claims_of(x, seed=0),
        lambda x: scenes.shift_domain(x, "photo", seed=0),
        lambda x: scenes.shift_domain(x, "new-light", seed=0),
        lambda x: scenes.concatenate(x),
        scenes.in_support,
        scenes.swap_colours,
        scenes.concept_counts,
        scenes.binding_counts,
        scenes.shared_latents,
        scenes.private_latents,
        scenes.render,
        scenes.segment,
    ],
)
def test_what_are_no_scenes_is_refused(function):
    with pytest.raises(TypeError, match="scenes must be Scenes, got list"):
        function([scenes.sample_scenes(1, seed=0)])


def test_a_probability_is_a_number():
    with pytest.raises(TypeError, match="singles is a probability between 0 and 1, got 'some'"):
        scenes.sample_scenes(1, singles="some", seed=0)
