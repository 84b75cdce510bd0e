"""The small CLIPs that ship with the library: they are what their card says."""

import csv
import dataclasses
import json
import re

import open_clip
import pytest
import torch

from tutorials_lib import clip, scene_scores, scenes
from tutorials_lib._scene_card import SIZE, score_model
from tutorials_lib._word_tokenizer import WordTokenizer
from tutorials_lib.train_scene_clip import MODELS, RECIPES


def rows(name):
    with open(MODELS / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


SCORES = {row["model"]: row for row in rows("scores.csv") if row["seed"] == "0"}


@pytest.fixture(scope="module")
def examples():
    return scene_scores.score_examples(size=SIZE)


def test_every_recipe_ships_and_nothing_else():
    assert sorted(clip.bundled_models()) == sorted(RECIPES) == sorted(SCORES)
    sizes = [path.stat().st_size for path in MODELS.glob("*.safetensors")]
    assert max(sizes) <= 4e6 and sum(sizes) <= 20e6


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_the_shipped_weights_have_the_scores_of_the_card(name, examples):
    """Rounding differs between machines: it may tip 1 choice in 300, and losses by 0.005 nats."""
    for key, value in dataclasses.asdict(score_model(name, examples)).items():
        tolerance = 5e-3 if key.startswith("loss") else 1e-4 if key == "temperature" else 1 / 300
        if key in ("swap_margin", "swap_text_cosine"):
            tolerance = 5e-4
        if key in ("zero_shot_worst", "zero_shot_held_out"):
            tolerance = 0.02  # out of 50, and of 150
        assert value == pytest.approx(float(SCORES[name][key]), abs=tolerance), key


def test_the_card_prints_the_scores_that_the_table_holds():
    """Each row of the card's table, number by number."""
    card = (MODELS / "README.md").read_text(encoding="utf-8")
    columns = "zero_shot swap swap_in_support swap_out_of_support replace relation".split()
    for name, row in SCORES.items():
        printed = re.search(rf"^\| `{name}` \|(.+)\|$", card, flags=re.MULTILINE)
        assert printed, name
        numbers = [float(cell) for cell in printed.group(1).split("|")]
        expected = [float(row[column]) for column in columns]
        assert numbers == pytest.approx(expected, abs=0.00051), name


def test_the_main_model_names_colour_and_shape_and_does_not_bind():
    """SWAP within four standard errors of one half; a bag of concepts leaves it once in 15,000."""
    main = {key: float(value) for key, value in SCORES["scene"].items() if key != "model"}
    assert main["zero_shot"] >= 0.97 and main["replace"] >= 0.97
    assert abs(main["swap"] - 0.5) < 4 * 0.5 / SIZE**0.5
    assert main["swap_text_cosine"] > 0.99


def test_a_genuine_open_clip_model_loads_through_open_clip_alone():
    """The same embeddings as through this library, from configuration and weights only."""
    open_clip.add_model_config(MODELS / "scene.json")
    model, _, _ = open_clip.create_model_and_transforms(
        "scene", pretrained=str(MODELS / "scene.safetensors")
    )
    model.eval()
    images = scenes.render(scenes.sample_scenes(8, seed=0))
    captions = scene_scores.single_prompts()[:8]
    tokenizer = WordTokenizer.from_file(MODELS / "scene_vocabulary.txt")
    with torch.no_grad():
        f_x = model.encode_image(images.float() / 127.5 - 1, normalize=True)
        f_t = model.encode_text(tokenizer(captions), normalize=True)
    ours = clip.load_clip("scene", device="cpu")
    assert torch.allclose(f_x, clip.embed_images(ours, images).vectors, atol=1e-5)
    assert torch.allclose(f_t, clip.embed_texts(ours, captions).vectors, atol=1e-5)


def test_the_vocabulary_fits_the_configuration_and_the_grammar():
    config = json.loads((MODELS / "scene.json").read_text(encoding="utf-8"))
    tokenizer = WordTokenizer.from_file(MODELS / "scene_vocabulary.txt")
    assert tokenizer.vocab_size == config["text_cfg"]["vocab_size"]
    model = clip.load_clip("scene", device="cpu")
    captions = scenes.caption_scenes(scenes.sample_scenes(500, singles=0.3, seed=0), seed=0)
    embedded = clip.embed_texts(model, captions)
    assert embedded.truncated == () and embedded.unknown == {}


def test_the_curves_hold_every_run_to_its_end():
    """Runs of one seed share their start and have equal numbers of samples after it."""
    curves = rows("curves.csv")
    ends = {}
    for row in curves:
        key = (row["model"], row["seed"])
        ends[key] = max(ends.get(key, 0), int(row["samples"]))
    trained = {key: samples for key, samples in ends.items() if key[0] in RECIPES}
    assert set(trained) == {(row["model"], row["seed"]) for row in rows("scores.csv")}
    assert len(set(trained.values())) == 1
    assert {seed for name, seed in ends if name == "start"} >= {seed for _, seed in trained}
