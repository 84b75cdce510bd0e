"""Train the small CLIP of the book, and its siblings.

    python -m tutorials_lib.train_scene_clip                      # the main model
    python -m tutorials_lib.train_scene_clip scene-swap --seed 1  # another one
    python -m tutorials_lib.train_scene_clip --all --seeds 3      # all that the book speaks of
    python -m tutorials_lib.train_scene_clip --ship               # into the library, with scores

A run has two stages. The *start* sees single objects, with captions that often leave out colour or
shape: without it the image tower finds colours at once and shapes late. It lasts until shapes are
told apart, which from some seeds takes several times as long as from others. The second stage mixes
single objects with pairs. The four models "scene", "scene-restricted", "scene-swap" and
"scene-swap-restricted" of one seed branch off one start and see equally many samples, so that they
differ in their data and their negatives alone.

Everything follows from the seed: on one machine with one thread a run gives the same weights each
time. A run that was interrupted goes on where its last entry in the log was written.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

import open_clip
import torch
from safetensors.torch import save_file
from torch.nn import functional

from tutorials_lib import scenes
from tutorials_lib._progress import progress_bar
from tutorials_lib._scene_card import ship
from tutorials_lib._validation import resolve_device
from tutorials_lib._word_tokenizer import WordTokenizer
from tutorials_lib.scene_scores import scene_scores, score_examples

__all__ = ["RECIPES", "Recipe", "Settings", "contrastive_step_loss", "main", "train_scene_clip"]

# The rendered scenes are the same for every seed, which drives weights, order and captions. The
# scores have scenes of their own.
_POOL_SEED = 2**41

MODELS = Path(__file__).with_name("models")


@dataclass(frozen=True)
class Recipe:
    """What distinguishes one model of the family from another.

    Attributes
    ----------
    support
        Of the pairs, see ``scenes.sample_scenes``.
    negatives
        ``None``, or ``"swap"``: each caption of two differently coloured objects also comes with
        its colours exchanged, as one more caption for every image of the batch to reject.
    own_weight
        Weight of the choice between a caption and its own negative; see `contrastive_step_loss`.
    exclude
        Combinations of colour and shape that no scene holds.
    nameless
        Share of objects with a colour that has no name.
    """

    support: str = "full"
    negatives: str | None = None
    own_weight: float = 2.0
    exclude: tuple[tuple[str, str], ...] = ()
    nameless: float = 0.1


RECIPES = {
    "scene": Recipe(),
    "scene-restricted": Recipe(support="restricted"),
    "scene-swap": Recipe(negatives="swap"),
    "scene-swap-restricted": Recipe(support="restricted", negatives="swap"),
    "scene-held-out": Recipe(exclude=scenes.HELD_OUT, nameless=0.35),
}

# How often captions mention what they may leave out.
_START_MENTIONS = {"mention_shape": 0.75, "mention_colour": 0.75, "mention_size": 0.2}
_MENTIONS = {
    "mention_shape": 0.9,
    "mention_colour": 0.9,
    "mention_size": 0.15,
    "mention_relation": 0.3,
    "mention_second": 0.9,
}


@dataclass(frozen=True)
class Settings:
    """Numbers that all models of the family share."""

    batch_size: int = 64
    # A start goes on after its least length until this share of shapes is right, and fails at
    # its limit: a tower that is blind to shapes when the second stage begins remains so.
    start_samples: int = 100_000
    start_shape: float = 0.9
    start_limit: int = 600_000
    samples: int = 240_000
    # Scenes are rendered once and come again with fresh captions.
    start_pool: int = 40_000
    single_pool: int = 35_000
    pair_pool: int = 75_000
    singles: float = 0.4
    learning_rate: float = 2e-3
    scale_learning_rate: float = 2e-2
    weight_decay: float = 0.02
    warmup_steps: int = 200
    entry_every: int = 20_000
    score_size: int = 480


def contrastive_step_loss(
    f_x: torch.Tensor,
    f_t: torch.Tensor,
    scale: torch.Tensor,
    *,
    f_negative: torch.Tensor | None = None,
    owners: torch.Tensor | None = None,
    own_weight: float = 0.0,
) -> torch.Tensor:
    """InfoNCE of a batch, sum of both directions, with hard negatives on the images' side.

    Hard negatives stand in the denominator of every image. Besides, each image that owns one
    chooses between its caption and that negative alone: the mean of these log-losses over the
    negatives is added ``own_weight`` times. In the denominators alone a negative is one caption
    among a hundred, and the towers, each of which gains nothing by binding before the other does,
    do not begin to bind within the samples of these runs.

    Parameters
    ----------
    f_x, f_t
        Unit embeddings of B images and their captions, shape (B, d).
    scale
        1/τ.
    f_negative
        Embeddings of further captions that belong to no image, shape (H, d); ``None`` for none.
    owners
        Row of the image that each negative was made for, shape (H,).
    own_weight
        Weight of the choices between two.

    Returns
    -------
    torch.Tensor
        The loss in nats, a scalar.
    """
    targets = torch.arange(len(f_x), device=f_x.device)
    captions = f_t if f_negative is None else torch.cat([f_t, f_negative])
    loss = functional.cross_entropy(scale * f_x @ captions.T, targets)
    loss = loss + functional.cross_entropy(scale * f_t @ f_x.T, targets)
    if f_negative is not None and own_weight:
        margin = scale * (f_x[owners] * (f_t[owners] - f_negative)).sum(1)
        loss = loss + own_weight * functional.softplus(-margin).mean()
    return loss


def train_scene_clip(
    name: str = "scene",
    *,
    seed: int = 0,
    out: Path = Path("scene-clip"),
    settings: Settings | None = None,
    device: str | torch.device | None = "cpu",
    progress: bool = True,
) -> Path:
    """Train one model of the family; see the module's text.

    Parameters
    ----------
    name
        One of `RECIPES`.
    seed
        Drives weights, order and captions. Runs of one seed share their start.
    out
        Folder for weights, log and rendered scenes; made when missing.
    settings
        Numbers of the recipe; ``None`` takes those of the shipped models.
    device
        Where to train.
    progress
        Whether to show progress bars.

    Returns
    -------
    Path
        ``out/<name>-seed<seed>.safetensors``, in half precision. ``out/curves.csv`` has the scores
        as training went, ``out/log.txt`` what was done when.

    Raises
    ------
    ValueError
        If the name is unknown.
    FloatingPointError
        If the loss stops being finite.
    RuntimeError
        If the start has not learned shapes at its limit.
    """
    if name not in RECIPES:
        raise ValueError(f"name must be one of {', '.join(RECIPES)}, got {name!r}")
    recipe, settings = RECIPES[name], settings or Settings()
    run = _Run(name, recipe, seed, Path(out), settings, resolve_device(device), progress)
    weights = run.out / f"{name}-seed{seed}.safetensors"
    run.log(f"{name}, seed {seed}: {settings}")
    model = run.train()
    state = {key: value.half().contiguous() for key, value in model.state_dict().items()}
    information = {"name": name, "seed": str(seed), "settings": json.dumps(vars(settings))}
    partial = weights.with_suffix(".partial")
    save_file(state, partial, metadata=information)
    os.replace(partial, weights)
    run.log(f"{name}, seed {seed}: wrote {weights.name}")
    return weights


class _Run:
    """One run: its model, its data, its log, and where it stands."""

    def __init__(
        self,
        name: str,
        recipe: Recipe,
        seed: int,
        out: Path,
        settings: Settings,
        device: torch.device,
        progress: bool,
    ) -> None:
        self.name, self.recipe, self.seed, self.out = name, recipe, seed, out
        self.settings, self.device, self.progress = settings, device, progress
        self.tokenizer = WordTokenizer.from_file(MODELS / "scene_vocabulary.txt")
        # A sibling's start is everything that its recipe's single objects depend on.
        held = "-held-out" if recipe.exclude else ""
        self.start_name = f"start{held}"
        out.mkdir(parents=True, exist_ok=True)
        self.examples = score_examples(size=settings.score_size)

    def log(self, text: str) -> None:
        """Add a line to the log."""
        with open(self.out / "log.txt", "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    def train(self) -> torch.nn.Module:
        """Return the trained model, with or without the help of a start made before."""
        start = self.out / f"{self.start_name}-seed{self.seed}.pt"
        model = _new_model(self.seed).to(self.device)
        if not start.is_file():
            self._stage(model, self.start_name, self.settings.start_samples, first=True)
            _save(start, {"model": model.state_dict()})
        model.load_state_dict(
            torch.load(start, map_location=self.device, weights_only=True)["model"]
        )
        self._stage(model, self.name, self.settings.samples, first=False)
        return model.eval()

    def _pool(self, count: int, *, singles: bool) -> tuple[scenes.Scenes, torch.Tensor]:
        """Scenes and their images, rendered once per folder and kept on the disk."""
        support = "full" if singles else self.recipe.support
        generator = torch.Generator().manual_seed(_POOL_SEED + singles)
        batch = scenes.sample_scenes(
            count,
            singles=float(singles),
            nameless=self.recipe.nameless,
            allowed=scenes.combinations(exclude=self.recipe.exclude),
            support=support,
            seed=generator,
        )
        held = "-held-out" if self.recipe.exclude else ""
        kind = "single" if singles else "pair"
        path = self.out / f"{kind}-{support}{held}-{count}.pt"
        if path.is_file():
            return batch, torch.load(path, mmap=True, weights_only=True)
        parts = progress_bar(
            range(0, count, 512), show=self.progress, desc=f"rendering {count} scenes"
        )
        images = torch.cat([scenes.render(batch[low : low + 512]) for low in parts])
        _save(path, images)
        return batch, torch.load(path, mmap=True, weights_only=True)

    def _stage(self, model: torch.nn.Module, name: str, samples: int, *, first: bool) -> None:
        """Run one stage of training in place, from its last entry in the log if there is one."""
        settings = self.settings
        steps = samples // settings.batch_size
        last = max(steps, settings.start_limit // settings.batch_size) if first else steps
        generator = torch.Generator().manual_seed(2 * self.seed + first)
        if first:
            pools = [self._pool(settings.start_pool, singles=True)]
            parts = [settings.batch_size]
        else:
            pools = [
                self._pool(settings.single_pool, singles=True),
                self._pool(settings.pair_pool, singles=False),
            ]
            alone = round(settings.singles * settings.batch_size)
            parts = [alone, settings.batch_size - alone]
        model.train()
        optimiser = torch.optim.AdamW(
            [
                {"params": [p for p in model.parameters() if p.ndim >= 2]},
                {
                    "params": [
                        p
                        for key, p in model.named_parameters()
                        if p.ndim < 2 and key != "logit_scale"
                    ],
                    "weight_decay": 0.0,
                },
                {
                    "params": [model.logit_scale],
                    "weight_decay": 0.0,
                    "lr": settings.scale_learning_rate,
                },
            ],
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            betas=(0.9, 0.98),
        )

        def rate(step: int) -> float:
            warm = min(1.0, (step + 1) / settings.warmup_steps)
            return warm if first else warm * 0.5 * (1 + math.cos(math.pi * step / steps))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
        state_path = self.out / f"{name}-seed{self.seed}.state.pt"
        done, seconds, rows = 0, 0.0, []
        if state_path.is_file():
            state = torch.load(state_path, map_location=self.device, weights_only=True)
            if state["settings"] != vars(settings):
                raise ValueError(
                    f"{state_path} was written by a run with other settings: "
                    f"{state['settings']}; give them, or another folder"
                )
            model.load_state_dict(state["model"])
            optimiser.load_state_dict(state["optimiser"])
            schedule.load_state_dict(state["schedule"])
            generator.set_state(state["generator"].cpu())
            done, seconds, rows = state["done"], state["seconds"], state["rows"]
            self.log(f"{name}, seed {self.seed}: going on at step {done}")

        orders = [torch.empty(0, dtype=torch.int64)] * len(pools)
        if done:
            orders = state["orders"]
        entry_steps = max(1, settings.entry_every // settings.batch_size)
        recent: list[float] = []
        began = time.perf_counter()
        bar = progress_bar(
            range(done, last),
            show=self.progress,
            desc=f"{name} seed {self.seed}",
            initial=done,
            total=last,
        )
        for step in bar:
            if step >= steps and rows[-1]["shape"] >= settings.start_shape:
                break
            images, captions, negatives, owners = [], [], [], []
            for place, ((pool, pictures), part) in enumerate(zip(pools, parts, strict=True)):
                if len(orders[place]) < part:
                    orders[place] = torch.randperm(len(pool), generator=generator)
                rows_now, orders[place] = orders[place][:part], orders[place][part:]
                images.append(pictures[rows_now])
                told, hard = self._captions(pool[rows_now], generator, first=first)
                owners += [len(captions) + row for row in hard]
                captions += told
                negatives += hard.values()
            f_x = model.encode_image(_pixels(torch.cat(images), self.device), normalize=True)
            tokens = self.tokenizer(captions + negatives).to(self.device)
            f_t = model.encode_text(tokens, normalize=True)
            loss = contrastive_step_loss(
                f_x,
                f_t[: len(captions)],
                model.logit_scale.exp(),
                f_negative=f_t[len(captions) :] if negatives else None,
                owners=torch.tensor(owners, device=self.device),
                own_weight=self.recipe.own_weight,
            )
            recent.append(loss.item())
            if not math.isfinite(recent[-1]):
                raise FloatingPointError(
                    f"the loss of {name} is not finite at step {step}; lower learning_rate"
                )
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()
            with torch.no_grad():
                model.logit_scale.clamp_(0, math.log(100))
            if (step + 1) % entry_steps == 0 or step + 1 in (steps, last):
                took = seconds + time.perf_counter() - began
                row = self._entry(model, name, (step + 1) * settings.batch_size, took, recent)
                rows.append(row)
                bar.set_postfix(zero_shot=row["zero_shot"], swap=row["swap"], loss=row["loss"])
                recent.clear()
                _save(
                    state_path,
                    {
                        "settings": vars(settings),
                        "model": model.state_dict(),
                        "optimiser": optimiser.state_dict(),
                        "schedule": schedule.state_dict(),
                        "generator": generator.get_state(),
                        "orders": orders,
                        "done": step + 1,
                        "seconds": took,
                        "rows": rows,
                    },
                )
                _write_rows(self.out / f"{name}-seed{self.seed}.csv", rows)
        bar.close()
        if first and rows[-1]["shape"] < settings.start_shape:
            raise RuntimeError(
                f"the start of seed {self.seed} tells {rows[-1]['shape']:.2f} of the shapes apart "
                f"after {rows[-1]['samples']} samples, and needs {settings.start_shape}; raise "
                "start_limit (--start-limit), or take another seed"
            )

    def _captions(
        self, batch: scenes.Scenes, generator: torch.Generator, *, first: bool
    ) -> tuple[list[str], dict[int, str]]:
        """Captions of scenes, and by row the hard negatives that the recipe adds."""
        mentions = _START_MENTIONS if first else _MENTIONS
        claims = scenes.claims_of(batch, seed=generator, **mentions)
        wordings = scenes.sample_wordings(len(claims), seed=generator)
        captions = [scenes.write_caption(c, w) for c, w in zip(claims, wordings, strict=True)]
        if first or self.recipe.negatives is None:
            return captions, {}
        negatives = {}
        for row, (claim, wording) in enumerate(zip(claims, wordings, strict=True)):
            swapped = scenes.swap(claim, "colour")
            if swapped is None:
                continue
            # With two different shapes it is false. Else it can be true too: of "a red cube and a
            # large blue cube" if both are large.
            shapes = {claim.first.shape, claim.second.shape}
            if None in shapes or len(shapes) == 1:
                if bool(scenes.describes(swapped, batch[row])):
                    continue
            negatives[row] = scenes.write_caption(swapped, wording)
        return captions, negatives

    def _entry(
        self, model: torch.nn.Module, name: str, samples: int, took: float, recent: list[float]
    ) -> dict[str, float | int | str]:
        """One row of the learning curves, scored on scenes that training does not use."""
        model.eval()
        scores = scene_scores(
            lambda images: model.encode_image(_pixels(images, self.device), normalize=True),
            lambda texts: model.encode_text(self.tokenizer(texts).to(self.device), normalize=True),
            temperature=math.exp(-model.logit_scale.item()),
            examples=self.examples,
        )
        model.train()
        row: dict[str, float | int | str] = {
            "model": name,
            "seed": self.seed,
            "samples": samples,
            "seconds": round(took),
            "loss": round(sum(recent) / len(recent), 4),
        }
        row |= {key: round(value, 4) for key, value in dataclasses.asdict(scores).items()}
        self.log(", ".join(f"{key} {value}" for key, value in row.items()))
        return row


def _new_model(seed: int) -> torch.nn.Module:
    """Make a fresh model; open_clip draws from the global generator, which is put back."""
    with contextlib.suppress(KeyError):
        open_clip.get_model_config("scene")
    open_clip.add_model_config(MODELS / "scene.json")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = open_clip.create_model("scene")
    return model.to(memory_format=torch.channels_last)


def _pixels(images: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Turn uint8 images into what the model sees: [-1, 1], channels last."""
    images = images.to(device).contiguous(memory_format=torch.channels_last)
    return images.float() / 127.5 - 1.0


def _save(path: Path, content: object) -> None:
    """Write a file that is whole or not there."""
    partial = path.with_name(path.name + ".partial")
    torch.save(content, partial)
    os.replace(partial, path)


def _write_rows(path: Path, rows: list[dict[str, float | int | str]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", nargs="?", default="scene", choices=[*RECIPES])
    parser.add_argument("--all", action="store_true", help="train every model of the family")
    parser.add_argument(
        "--ship", action="store_true", help="train nothing; copy seed SEED into the library"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=None, help="train seeds 0 to SEEDS - 1")
    parser.add_argument("--out", type=Path, default=Path("scene-clip"))
    parser.add_argument("--samples", type=int, default=Settings.samples)
    parser.add_argument("--start-samples", type=int, default=Settings.start_samples)
    parser.add_argument("--start-shape", type=float, default=Settings.start_shape)
    parser.add_argument("--start-limit", type=int, default=Settings.start_limit)
    parser.add_argument("--threads", type=int, default=1, help="more than 1: not bit for bit")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    if options.ship:
        ship(options.out, MODELS, seed=options.seed)
        return
    settings = Settings(
        samples=options.samples,
        start_samples=options.start_samples,
        start_shape=options.start_shape,
        start_limit=options.start_limit,
    )
    seeds = [options.seed] if options.seeds is None else range(options.seeds)
    for name in [*RECIPES] if options.all else [options.name]:
        for seed in seeds:
            path = train_scene_clip(
                name, seed=seed, out=options.out, settings=settings, device=options.device
            )
            print(path)


if __name__ == "__main__":
    main()
