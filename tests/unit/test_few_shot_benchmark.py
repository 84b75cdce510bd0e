"""The few-shot benchmark: what it embeds, what it writes, and that it goes on where it stopped."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import tutorials_lib
from tutorials_lib import few_shot_benchmark, scenes
from tutorials_lib.clip import load_clip
from tutorials_lib.few_shot_benchmark import (
    BenchmarkData,
    embed_dataset,
    embed_scenes,
    main,
    run_benchmark,
)
from tutorials_lib.probes import Labelled

RUN = {"dataset": "d", "model": "m", "pretrained": "", "per_class": "", "test_per_class": ""}
SMALL = dict(shots=(1, 2), seeds=2, features=("raw", "PCA-whitening"), progress=False)


def world(seed):
    rng = np.random.default_rng(seed)
    y = np.arange(60) % 3
    return Labelled(np.eye(3, 6)[y] + 0.4 * rng.normal(size=(60, 6)), y)


@pytest.fixture
def data():
    shifts = {"near": world(2), "far": world(3)}
    return BenchmarkData(world(0), world(1), shifts, torch.eye(3, 6), 10.0)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A file with untrained weights of the bundled model."""
    folder = Path(tutorials_lib.__file__).with_name("models")
    open_clip.add_model_config(folder / "scene.json")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        state = open_clip.create_model("scene").state_dict()
    path = tmp_path_factory.mktemp("weights") / "scene.safetensors"
    save_file({key: value.contiguous() for key, value in state.items()}, path)
    return path


@pytest.fixture(scope="module")
def clip(weights):
    return load_clip("scene", pretrained=weights, device="cpu")


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# --- The table


def test_each_fit_is_a_row(data, tmp_path):
    out = tmp_path / "new" / "table.csv"
    comparison = run_benchmark(
        data, out, run=RUN, probe=("l2", "tip"), components=3, device="cpu", **SMALL
    )
    rows = rows_of(out)
    assert len(rows) == 1 + 2 * 2 * 2 * 2 == len(comparison.records)
    for row, record in zip(rows, comparison.records, strict=True):
        assert (row["probe"], row["features"]) == (record.probe, record.features)
        assert json.loads(row["chosen"]) == record.chosen
        assert float(row["source"]) == record.accuracy["source"]
        mean = (float(row["near"]) + float(row["far"])) / 2
        assert float(row["shift average"]) == pytest.approx(mean)
    zero_shot = comparison.records[0]
    assert zero_shot.probe == "zero-shot" and math.isnan(zero_shot.validation_accuracy)
    assert zero_shot.accuracy["source"] == pytest.approx(
        (data.source.vectors[:, :3].argmax(1) == data.source.labels).mean()
    )


def test_a_run_goes_on_where_it_stopped(data, tmp_path, monkeypatch):
    """Also when the last row was cut off; the table is the same to the byte."""
    out = tmp_path / "table.csv"
    run_benchmark(data, out, run=RUN, components=3, **SMALL)
    whole = out.read_bytes()
    lines = whole.splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:5]) + lines[5][:20])
    fitted = []
    add = few_shot_benchmark._Table.add
    monkeypatch.setattr(
        few_shot_benchmark._Table,
        "add",
        lambda self, run, record: (fitted.append(record), add(self, run, record)),
    )
    run_benchmark(data, out, run=RUN, components=3, **SMALL)
    assert out.read_bytes() == whole
    assert len(fitted) == len(lines) - 5
    fitted.clear()
    run_benchmark(data, out, run=RUN, components=3, **SMALL)
    assert not fitted and out.read_bytes() == whole


def test_a_table_holds_several_runs(data, tmp_path):
    out = tmp_path / "table.csv"
    first = run_benchmark(data, out, run=RUN, components=3, **SMALL)
    other = run_benchmark(data, out, run={**RUN, "model": "n"}, components=3, **SMALL)
    fewer = run_benchmark(data, out, run=RUN, components=2, **SMALL)
    assert len(rows_of(out)) == 3 * len(first.records)
    assert other.records[1:] == first.records[1:] != fewer.records[1:]
    narrow = run_benchmark(data, out, run=RUN, components=3, **{**SMALL, "shots": (2,)})
    assert {record.shots for record in narrow.records} == {0, 2}
    assert len(rows_of(out)) == 3 * len(first.records)


def test_another_table_is_not_overwritten(data, tmp_path):
    out = tmp_path / "table.csv"
    out.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has the columns a,b, this run writes dataset,"):
        run_benchmark(data, out, run=RUN, components=3, **SMALL)
    assert out.read_text(encoding="utf-8") == "a,b\n1,2\n"
    with pytest.raises(ValueError, match=r"probe must be among l2, l1, .* got 'svm'"):
        run_benchmark(data, tmp_path / "b.csv", run=RUN, probe=("svm",), **SMALL)


def test_directions_hold_most_of_the_variance():
    """Variances 16, 4, 1.44, 0.01: two hold 93 %; 16, 4, 0.25, 0.01: two hold 98 %."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(100, 4))
    z = np.linalg.qr(z - z.mean(0))[0] * 10
    assert few_shot_benchmark._directions(z * [4, 2, 1.2, 0.1]) == 3
    assert few_shot_benchmark._directions(z * [4, 2, 0.5, 0.1]) == 2


# --- Scenes


def test_scenes_are_embedded_by_class_and_domain(clip):
    data = embed_scenes(
        clip, shifts=("line", "clutter"), per_class=2, test_per_class=1, progress=False
    )
    assert data.train.vectors.shape == (48, clip.embed_dim)
    np.testing.assert_array_equal(data.source.labels, np.arange(24))
    assert list(data.shifts) == ["line", "clutter"]
    assert data.weights.shape == (24, clip.embed_dim)
    assert data.scale == pytest.approx(1 / clip.temperature)
    assert not np.allclose(data.shifts["line"].vectors, data.source.vectors)
    again = embed_scenes(clip, shifts=(), per_class=2, test_per_class=1, progress=False)
    np.testing.assert_array_equal(again.train.vectors, data.train.vectors)
    with pytest.raises(ValueError, match=r"shifts of scenes are new-light, line.*got 'v2'"):
        embed_scenes(clip, shifts=("v2",))


def test_labels_of_scenes_are_colour_and_shape(monkeypatch, clip):
    """Class 3·colour + shape, as the zero-shot prompts are ordered."""
    seen = []
    monkeypatch.setattr(scenes, "render", lambda batch: seen.append(batch) or render(batch))
    data = embed_scenes(clip, shifts=(), per_class=1, test_per_class=1, progress=False)
    for batch, part in zip(seen, (data.train, data.source), strict=True):
        np.testing.assert_array_equal(3 * batch.colour[:, 0] + batch.shape[:, 0], part.labels)
        assert (batch.n_objects == 1).all()


render = scenes.render


def test_the_command_runs_on_scenes(weights, tmp_path, capsys):
    out = tmp_path / "scenes.csv"
    main(
        f"--pretrained {weights} --device cpu --per-class 4 --test-per-class 1 --shots 1 "
        f"--seeds 2 --features raw PCA-whitening --components 5 --shifts line --out {out}".split()
    )
    assert "PCA-whitening" in capsys.readouterr().out
    rows = rows_of(out)
    assert [row["probe"] for row in rows] == ["zero-shot", *["l2"] * 4]
    assert {row["dataset"] for row in rows} == {"scenes"} and "line" in rows[0]


# --- Folders


@pytest.fixture
def textures(tmp_path):
    """A data set of two colours in CoOp's layout, with one picture that cannot be read."""
    folder = tmp_path / "data" / "dtd"
    (folder / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    split = {"train": [], "val": [], "test": []}
    for part, number in (("train", 4), ("val", 2), ("test", 3)):
        for label, name in enumerate(("red", "blue")):
            for index in range(number):
                path = folder / "images" / f"{part}_{name}_{index}.png"
                pixels = rng.integers(0, 90, (20, 20, 3), dtype=np.uint8)
                pixels[..., 2 * label] += 150
                Image.fromarray(pixels).save(path)
                split[part].append([path.name, label, name])
    (folder / "images" / "train_red_0.png").write_bytes(b"")
    (folder / "split_zhou_DescribableTextures.json").write_text(json.dumps(split), "utf-8")
    return tmp_path / "data"


def test_folders_are_embedded_once_and_bad_pictures_left_out(clip, textures, tmp_path):
    options = dict(store=tmp_path / "store", progress=False)
    with pytest.warns(RuntimeWarning, match=r"train_red_0\.png"):
        data = embed_dataset(clip, "dtd", textures, **options)
    np.testing.assert_array_equal(np.bincount(data.train.labels), [5, 6])
    assert data.train.vectors.shape == (11, clip.embed_dim)
    assert np.isfinite(data.train.vectors).all() and len(data.source.labels) == 6
    (store,) = (tmp_path / "store").iterdir()
    size = (store / "vectors").stat().st_size
    with pytest.warns(RuntimeWarning):
        again = embed_dataset(clip, "dtd", textures, **options)
    np.testing.assert_array_equal(again.train.vectors, data.train.vectors)
    assert (store / "vectors").stat().st_size == size


def test_images_of_each_class_can_be_limited(clip, textures, tmp_path):
    data = embed_dataset(
        clip, "dtd", textures, per_class=1, test_per_class=2, store=tmp_path, progress=False
    )
    np.testing.assert_array_equal(np.bincount(data.train.labels), [1, 1])
    np.testing.assert_array_equal(np.bincount(data.source.labels), [2, 2])


def test_shifts_belong_to_imagenet(clip, textures):
    with pytest.raises(ValueError, match="belong to imagenet, not to dtd"):
        embed_dataset(clip, "dtd", textures, shifts=("v2",))


def test_the_command_names_what_is_missing(capsys):
    with pytest.raises(SystemExit):
        main(["--dataset", "dtd"])
    assert "needs --root" in capsys.readouterr().err
