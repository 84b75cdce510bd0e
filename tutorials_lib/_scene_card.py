"""Bring trained scene models into the library: weights, learning curves, scores for the card."""

from __future__ import annotations

import csv
import dataclasses
import os
import shutil
from pathlib import Path

from tutorials_lib import clip
from tutorials_lib.scene_scores import SceneScores, ScoreExamples, scene_scores, score_examples

__all__ = ["score_model", "ship"]

# Scenes of one score. The standard error of an accuracy is then at most 0.0145.
SIZE = 1200


def score_model(
    name: str, examples: ScoreExamples, *, pretrained: Path | None = None
) -> SceneScores:
    """Score a bundled model, or weights of its kind from a file, on the CPU."""
    model = clip.load_clip(name, pretrained=pretrained, device="cpu")
    return scene_scores(
        lambda images: clip.embed_images(model, images, progress=False).vectors,
        lambda texts: clip.embed_texts(model, texts, progress=False).vectors,
        temperature=model.temperature,
        examples=examples,
    )


def ship(out: Path, models: Path, *, seed: int = 0) -> None:
    """Copy one seed's weights into the library and write the scores and curves of all seeds.

    Parameters
    ----------
    out
        Folder of finished runs, as `train_scene_clip` leaves it.
    models
        The library's folder of models. Gets ``<name>.safetensors``, ``scores.csv`` and
        ``curves.csv``.
    seed
        Whose weights are shipped.

    Raises
    ------
    FileNotFoundError
        If there is no run of this seed.
    """
    weights = sorted(out.glob("*-seed*.safetensors"))
    shipped = [path for path in weights if path.stem.endswith(f"-seed{seed}")]
    if not shipped:
        raise FileNotFoundError(f"{out} holds no finished run of seed {seed}")
    for path in shipped:
        shutil.copyfile(path, models / f"{path.stem.removesuffix(f'-seed{seed}')}.safetensors")
    examples = score_examples(size=SIZE)
    rows = []
    for path in weights:
        name, _, number = path.stem.rpartition("-seed")
        scores = dataclasses.asdict(score_model("scene", examples, pretrained=path))
        rounded = {key: round(value, 4) for key, value in scores.items()}
        rows.append({"model": name, "seed": int(number)} | rounded)
    rows.sort(key=lambda row: (row["model"], row["seed"]))
    _write(models / "scores.csv", rows)
    curves = []
    for path in sorted(out.glob("*-seed*.csv")):
        with open(path, encoding="utf-8", newline="") as file:
            curves += csv.DictReader(file)
    _write(models / "curves.csv", curves)


def _write(path: Path, rows: list[dict]) -> None:
    partial = path.with_suffix(".partial")
    with open(partial, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(partial, path)
