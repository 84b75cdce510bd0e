"""The trainer of the small CLIPs: its loss, its data, and runs that stop and go on."""

import csv
import json
import math

import pytest
import torch
from safetensors import safe_open

from tutorials_lib import contrastive, scenes, train_scene_clip

TINY = train_scene_clip.Settings(
    batch_size=16,
    start_samples=48,
    start_shape=0.0,
    samples=96,
    start_pool=24,
    single_pool=20,
    pair_pool=30,
    warmup_steps=2,
    entry_every=32,
    score_size=64,
)


def unit(rows, columns, seed):
    draw = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(draw.double(), dim=1)


def run(out, name="scene-swap", **settings):
    torch.set_num_threads(1)
    changed = {**vars(TINY), **settings}
    return train_scene_clip.train_scene_clip(
        name, out=out, settings=train_scene_clip.Settings(**changed), progress=False
    )


def weights(path):
    with safe_open(path, "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}


def test_without_negatives_the_step_loss_is_the_books_info_nce():
    f_x, f_t = unit(7, 5, 0), unit(7, 5, 1)
    loss = train_scene_clip.contrastive_step_loss(f_x, f_t, torch.tensor(11.0))
    assert float(loss) == pytest.approx(
        float(contrastive.info_nce(f_x, f_t, temperature=1 / 11)), rel=1e-12
    )


def test_negatives_stand_in_the_denominator_of_every_image_and_of_no_caption():
    """Against a loop over the definition, in float64."""
    f_x, f_t, hard, scale = unit(4, 5, 0), unit(4, 5, 1), unit(3, 5, 2), 7.0
    expected = 0.0
    for i in range(4):
        texts = [*(f_x[i] @ f_t[j] for j in range(4)), *(f_x[i] @ hard[k] for k in range(3))]
        images = [f_t[i] @ f_x[j] for j in range(4)]
        right = scale * float(f_x[i] @ f_t[i])
        expected += math.log(sum(math.exp(scale * float(s)) for s in texts)) - right
        expected += math.log(sum(math.exp(scale * float(s)) for s in images)) - right
    owners = [3, 0, 3]
    own = [
        math.log1p(math.exp(-scale * float(f_x[i] @ f_t[i] - f_x[i] @ hard[k])))
        for k, i in enumerate(owners)
    ]
    for weight in (0.0, 2.0):
        loss = train_scene_clip.contrastive_step_loss(
            f_x,
            f_t,
            torch.tensor(scale),
            f_negative=hard,
            owners=torch.tensor(owners),
            own_weight=weight,
        )
        assert float(loss) == pytest.approx(expected / 4 + weight * sum(own) / 3, rel=1e-12)


def test_a_run_leaves_weights_log_and_curves(tmp_path):
    path = run(tmp_path)
    assert path.name == "scene-swap-seed0.safetensors" and path.stat().st_size < 4e6
    with safe_open(path, "pt") as file:
        settings = json.loads(file.metadata()["settings"])
    assert settings == vars(TINY)
    with open(tmp_path / "scene-swap-seed0.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["samples"]) for row in rows] == [32, 64, 96]
    assert all(math.isfinite(float(row["loss"])) for row in rows)
    log = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert "start, seed 0" in log and "wrote scene-swap-seed0.safetensors" in log
    assert not list(tmp_path.glob("*.partial"))


def test_an_interrupted_run_goes_on_and_ends_with_the_same_weights(tmp_path, monkeypatch):
    whole = weights(run(tmp_path / "whole"))
    entry = train_scene_clip._Run._entry
    calls = []

    def stopping(self, model, name, samples, took, recent):
        calls.append(samples)
        if len(calls) == 4:  # two entries of the start, one of the second stage, then the stop
            raise KeyboardInterrupt
        return entry(self, model, name, samples, took, recent)

    monkeypatch.setattr(train_scene_clip._Run, "_entry", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped")
    assert not (tmp_path / "stopped" / "scene-swap-seed0.safetensors").exists()
    monkeypatch.setattr(train_scene_clip._Run, "_entry", entry)
    resumed = weights(run(tmp_path / "stopped"))
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)
    assert "going on at step 2" in (tmp_path / "stopped" / "log.txt").read_text(encoding="utf-8")


def test_a_run_of_other_settings_does_not_go_on_from_this_one(tmp_path):
    run(tmp_path)
    with pytest.raises(ValueError, match="other settings"):
        run(tmp_path, samples=64)


def test_siblings_branch_off_one_start_and_then_differ(tmp_path):
    one, other = weights(run(tmp_path, "scene")), weights(run(tmp_path, "scene-swap"))
    starts = list(tmp_path.glob("start*.pt"))
    assert [path.name for path in starts if "state" not in path.name] == ["start-seed0.pt"]
    assert any(not torch.equal(one[key], other[key]) for key in one)


def test_the_data_of_a_recipe_is_what_it_says(tmp_path):
    """Scenes of the pools: excluded combinations never occur, restricted support is kept."""
    for name, recipe in train_scene_clip.RECIPES.items():
        data = train_scene_clip._Run(
            name, recipe, 0, tmp_path, TINY, torch.device("cpu"), progress=False
        )
        pair, images = data._pool(30, singles=False)
        single, _ = data._pool(20, singles=True)
        assert len(pair) == len(images) == 30
        assert torch.equal(scenes.render(pair[:3]), images[:3])
        assert bool((single.n_objects == 1).all()) and bool((pair.n_objects == 2).all())
        assert bool(scenes.in_support(pair).all()) == (recipe.support == "restricted")
        for batch in (pair, single):
            seen = scenes.binding_counts(batch).sum(0).reshape(8, 3) > 0
            assert not bool((seen & ~scenes.combinations(exclude=recipe.exclude)).any())


def test_hard_negatives_are_false_of_their_scene_and_say_the_same_words(tmp_path):
    recipe = train_scene_clip.RECIPES["scene-swap"]
    data = train_scene_clip._Run(
        "scene-swap", recipe, 0, tmp_path, TINY, torch.device("cpu"), progress=False
    )
    batch = scenes.sample_scenes(300, seed=0)
    captions, negatives = [], []
    for row in range(300):
        generator = torch.Generator().manual_seed(row)
        told, hard = data._captions(batch[row], generator, first=False)
        captions += told
        negatives += hard.values()
        for negative in hard.values():
            assert sorted(negative.split()) == sorted(told[0].split())
            assert not bool(scenes.describes(negative, batch[row]))
        assert bool(scenes.describes(told[0], batch[row]))
    assert len(captions) == 300 and 100 < len(negatives) < 300


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match="scene-restricted"):
        run(tmp_path, "scenes")


def test_a_start_goes_on_until_shapes_are_told_apart(tmp_path, monkeypatch):
    """The second stage begins from the first entry, at or after the least length, that is enough.

    An entry comes every 32 samples; here the shapes of the fourth are said to be right.
    """
    scored = []

    def entry(self, model, name, samples, took, recent):
        scored.append((name, samples))
        enough = samples >= 128 or samples < 48
        return {
            "samples": samples,
            "shape": 0.95 if enough else 0.3,
            "zero_shot": 0,
            "swap": 0,
            "loss": 0,
        }

    monkeypatch.setattr(train_scene_clip._Run, "_entry", entry)
    run(tmp_path, name="scene", start_shape=0.9, start_limit=320)
    assert [samples for name, samples in scored if name == "start"] == [32, 48, 64, 96, 128]


def test_a_start_that_never_tells_shapes_apart_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match=r"after 96 samples, and needs 1\.1; raise start_limit"):
        run(tmp_path, start_shape=1.1, start_limit=96)
    assert not list(tmp_path.glob("*.safetensors"))
