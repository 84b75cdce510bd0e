"""Re-run the table of broken assumptions and score what is recovered.

For each row a latent partial causal model (10 coupled latents, 5 modality-
specific ones on each side) makes pairs of observations, two encoders are
trained on them by the symmetric contrastive loss with a learned temperature,
and the embeddings are compared with the latents on fresh pairs. The encoders
always assume the same thing, whatever the data do:

* sphere rows: embeddings on the unit sphere, cosine critic; the score is the
  held-out R² of a linear map from embedding to latents;
* box rows: embeddings in (0, 1)^10, critic minus the l1 distance; the score is
  the MCC.

Run as a script it writes one line of CSV per finished run and skips runs that
are already there:

    python breaking_assumptions.py --jobs 2
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from tutorials_lib.contrastive import ContrastiveLoss, Encoder, train
from tutorials_lib.generators import LatentPartialCausalModel
from tutorials_lib.latents import (
    AdditiveLaplace,
    AdditiveNormal,
    ClippedLaplace,
    ClippedLaplaceStationary,
    Coupling,
    Normal,
    ProjectedLaplace,
    ProjectedNormal,
    TruncatedGeneralizedNormal,
    TruncatedLaplace,
    TruncatedNormal,
    UniformBox,
    UniformSphere,
    VonMisesFisher,
)
from tutorials_lib.metrics import linear_r2, mcc

LATENTS = 10
MODALITY_LATENTS = 5
KAPPA = 10.0
RATE = 10.0
BATCH_SIZE = 512
STEPS = 5000
LEARNING_RATE = 1e-2
EVALUATION_PAIRS = 20_000
COLUMNS = (
    "row",
    "space",
    "conditional",
    "metric",
    "seed",
    "score",
    "linear_baseline",
    "steps",
    "batch_size",
    "seconds",
)

# Published, in percent: what the source reports for these groups of rows.
PUBLISHED = {
    ("sphere", "met"): "99.5 ± 0.1",
    ("sphere", "violated"): "88.5 to 96.3",
    ("box", "met"): "99.1 ± 0.1",
    ("box", "violated"): "95.6 to 98.6",
}


class Row(NamedTuple):
    """One row of the table: what the data do and which encoders see them."""

    space: str
    conditional: str
    coupling: Coupling


# On the sphere the projected laws' scales give pairs the mean cosine of the
# von Mises-Fisher law, 0.634. In the box every law has, before truncation, the
# variance 2/rate² of the Laplace law. So rows differ in the shape of the noise,
# not in its amount.
_SCALE = math.sqrt(2) / RATE
_CUBIC_SCALE = _SCALE * math.sqrt(math.gamma(1 / 3) / math.gamma(3 / 3))

ROWS = {
    "sphere-vmf": Row(
        "sphere",
        "von Mises-Fisher",
        Coupling(UniformSphere(LATENTS), VonMisesFisher(KAPPA)),
    ),
    "sphere-laplace": Row(
        "sphere",
        "Laplace, projected",
        Coupling(UniformSphere(LATENTS), ProjectedLaplace(0.289)),
    ),
    "sphere-normal": Row(
        "sphere",
        "normal, projected",
        Coupling(UniformSphere(LATENTS), ProjectedNormal(0.387)),
    ),
    "sphere-unbounded": Row(
        "sphere",
        "normal, unbounded",
        Coupling(Normal(LATENTS, scale=LATENTS**-0.5), AdditiveNormal(0.387)),
    ),
    "box-clipped-laplace": Row(
        "box",
        "Laplace, clipped",
        Coupling(ClippedLaplaceStationary(LATENTS, RATE), ClippedLaplace(RATE)),
    ),
    "box-truncated-laplace": Row(
        "box",
        "Laplace, truncated",
        Coupling(UniformBox(LATENTS), TruncatedLaplace(RATE)),
    ),
    "box-truncated-normal": Row(
        "box",
        "normal, truncated",
        Coupling(UniformBox(LATENTS), TruncatedNormal(_SCALE)),
    ),
    "box-truncated-cubic": Row(
        "box",
        "generalised normal (shape 3), truncated",
        Coupling(
            UniformBox(LATENTS), TruncatedGeneralizedNormal(_CUBIC_SCALE, 3.0)
        ),
    ),
    "box-unbounded": Row(
        "box",
        "Laplace, unbounded",
        Coupling(Normal(LATENTS, scale=12**-0.5), AdditiveLaplace(RATE)),
    ),
}


def run_row(
    row: str,
    seed: int,
    *,
    steps: int = STEPS,
    batch_size: int = BATCH_SIZE,
    width: int = 192,
    depth: int = 2,
    progress: bool = False,
) -> dict[str, str | int | float]:
    """Train one pair of encoders on one row of the table and score it.

    Parameters
    ----------
    row
        A key of `ROWS`.
    seed
        Seeds mixing, encoders and data.
    steps, batch_size, width, depth
        Size of the training run and of the encoders.
    progress
        Whether to show a progress bar.

    Returns
    -------
    dict
        One value per name in `COLUMNS`. ``score`` is the mean over the two
        encoders of R² or MCC on fresh pairs; ``linear_baseline`` the same
        metric for the best linear map from the observations themselves, fitted
        with the latents in hand; ``seconds`` is processor time.

    Raises
    ------
    ValueError
        If ``row`` is unknown.
    """
    if row not in ROWS:
        raise ValueError(f"row must be one of {', '.join(ROWS)}, got {row!r}")
    space, conditional, coupling = ROWS[row]
    started = time.process_time()
    model = LatentPartialCausalModel(
        coupling, m_x=MODALITY_LATENTS, m_t=MODALITY_LATENTS, seed=seed
    )
    generator = torch.Generator().manual_seed(seed)
    sizes = {
        "codomain": space,
        "width": width,
        "depth": depth,
        "seed": generator,
    }
    encoder_x = Encoder(model.x_dim, LATENTS, **sizes)
    encoder_t = Encoder(model.t_dim, LATENTS, **sizes)
    kind = "cosine" if space == "sphere" else "l1"
    train(
        model.sample,
        encoder_x,
        encoder_t,
        ContrastiveLoss(kind, init_temperature=1.0),
        steps=steps,
        batch_size=batch_size,
        learning_rate=LEARNING_RATE,
        seed=generator,
        device="cpu",
        progress=progress,
    )
    pairs = model.sample(EVALUATION_PAIRS, seed=generator)
    with torch.no_grad():
        codes = encoder_x(pairs.x), encoder_t(pairs.t)
    latents, observations = (pairs.z_x, pairs.z_t), (pairs.x, pairs.t)
    if space == "sphere":
        metric = "R2"
        scores = [
            linear_r2(z, code).score
            for z, code in zip(latents, codes, strict=True)
        ]
        baselines = [
            linear_r2(z, x).score
            for z, x in zip(latents, observations, strict=True)
        ]
    else:
        metric = "MCC"
        scores = [
            mcc(z, code).score for z, code in zip(latents, codes, strict=True)
        ]
        baselines = [
            mcc(z, x, regression="linear").score
            for z, x in zip(latents, observations, strict=True)
        ]
    return {
        "row": row,
        "space": space,
        "conditional": conditional,
        "metric": metric,
        "seed": seed,
        "score": round(float(np.mean(scores)), 5),
        "linear_baseline": round(float(np.mean(baselines)), 5),
        "steps": steps,
        "batch_size": batch_size,
        "seconds": round(time.process_time() - started, 1),
    }


def read_results(path: Path) -> list[dict[str, str]]:
    """Return the finished runs in the CSV at ``path``, if there is one yet."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _append(path: Path, result: dict[str, str | int | float]) -> None:
    """Add one line in one write: an interrupted run leaves no half line."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    if not path.exists():
        writer.writeheader()
    writer.writerow(result)
    with path.open("ab", buffering=0) as file:
        file.write(text.getvalue().encode("utf-8"))
        os.fsync(file.fileno())


def _one_thread() -> None:
    torch.set_num_threads(1)


def main() -> None:
    """Run what is missing from the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).with_suffix(".csv")
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    arguments = parser.parse_args()

    done = {
        (run["row"], int(run["seed"]), int(run["steps"]))
        for run in read_results(arguments.out)
    }
    # Seeds outermost: a table cut short has every row, over fewer seeds.
    missing = [
        (row, seed)
        for seed in arguments.seeds
        for row in arguments.rows
        if (row, seed, arguments.steps) not in done
    ]
    with (
        ProcessPoolExecutor(
            arguments.jobs,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_one_thread,
        ) as pool,
        tqdm(total=len(missing), unit="run") as bar,
    ):
        runs = [
            pool.submit(run_row, row, seed, steps=arguments.steps)
            for row, seed in missing
        ]
        for run in as_completed(runs):
            _append(arguments.out, run.result())
            bar.update()


if __name__ == "__main__":
    main()
