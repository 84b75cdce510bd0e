"""Time `embed_images` against the shortest loop that one would write with open_clip.

Run as ``python -m tutorials_lib.bench_embedding``. Two comparisons, each the median of several
rounds in which both ways alternate, so that a busy machine slows both:

* tensors in memory: what the checks and the bookkeeping cost;
* a folder of JPEGs: what reading ahead in threads gains, without a store and with a full one.

Speed and processor time are relative to the bare loop; on a machine that is busy with other work
the processor time is the one to trust. The difference is the largest between embeddings.

The model has random weights and the shape of a bundled one, or that of ViT-B-32.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import open_clip
import torch
from PIL import Image

from tutorials_lib._clip_sources import PREPROCESS_DEFAULTS
from tutorials_lib._image_reading import available_cores
from tutorials_lib.clip import Clip, EmbeddingStore, embed_images

__all__ = ["main"]

SMALL = {
    "embed_dim": 64,
    "vision_cfg": {"image_size": 48, "layers": [1, 1, 1, 1], "width": 16, "head_width": 32},
    "text_cfg": {"context_length": 20, "vocab_size": 49408, "width": 32, "heads": 1, "layers": 1},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one table of images per second.

    Parameters
    ----------
    arguments
        Those of the command line: ``--model``, ``--images``, ``--files``, ``--side``,
        ``--batch-size``, ``--rounds``.
    """
    parser = argparse.ArgumentParser(description="Time embed_images against a bare loop.")
    parser.add_argument("--model", choices=("small", "ViT-B-32"), default="small")
    parser.add_argument("--images", type=int, default=1024, help="images in memory")
    parser.add_argument("--files", type=int, default=128, help="JPEG files")
    parser.add_argument("--side", type=int, default=640, help="width of a JPEG in pixels")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    clip = _random_clip(options.model)
    print(
        f"{options.model}, {torch.get_num_threads()} threads in torch, "
        f"{available_cores()} cores, batches of {options.batch_size}"
    )
    print(f"{'':32}{'images/s':>10}{'speed':>14}{'CPU time':>14}{'difference':>14}")
    _compare_memory(clip, options.images, options.batch_size, options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        _compare_folder(clip, Path(folder), options)


def _compare_memory(clip: Clip, n_images: int, batch_size: int, rounds: int) -> None:
    side = clip.image_size
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(
        0, 256, (n_images, 3, side, side), generator=generator, dtype=torch.uint8
    )
    mean, std = (torch.tensor(clip.preprocess_cfg[key]).reshape(3, 1, 1) for key in ("mean", "std"))

    def bare() -> torch.Tensor:
        with torch.no_grad():
            parts = [
                clip.model.encode_image(
                    (pixels[start : start + batch_size].float() / 255 - mean) / std, normalize=True
                )
                for start in range(0, n_images, batch_size)
            ]
        return torch.cat(parts)

    def ours() -> torch.Tensor:
        return embed_images(clip, pixels, batch_size=batch_size, progress=False).vectors

    _report("tensors", n_images, {"bare loop": bare, "embed_images": ours}, rounds)


def _compare_folder(clip: Clip, folder: Path, options: argparse.Namespace) -> None:
    pictures = folder / "pictures"
    paths = _write_pictures(pictures, options.files, options.side)
    store = EmbeddingStore(folder / "store")
    size = options.batch_size

    def bare() -> torch.Tensor:
        parts = []
        with torch.no_grad():
            for start in range(0, len(paths), size):
                images = [Image.open(path).convert("RGB") for path in paths[start : start + size]]
                batch = torch.stack([clip.preprocess(image) for image in images])
                parts.append(clip.model.encode_image(batch, normalize=True))
        return torch.cat(parts)

    def ours(**more: EmbeddingStore) -> torch.Tensor:
        return embed_images(clip, pictures, batch_size=size, progress=False, **more).vectors

    ours(store=store)
    ways = {"bare loop": bare, "embed_images": ours, "with a full store": lambda: ours(store=store)}
    _report("JPEG files", len(paths), ways, options.rounds)


def _report(
    what: str, n_images: int, ways: dict[str, Callable[[], torch.Tensor]], rounds: int
) -> None:
    wall: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    results = {name: way() for name, way in ways.items()}
    for _ in range(rounds):
        for name, way in ways.items():
            start_wall, start_cpu = time.perf_counter(), time.process_time()
            way()
            wall[name].append(time.perf_counter() - start_wall)
            cpu[name].append(time.process_time() - start_cpu)
    reference, *_ = ways
    for name in ways:
        speed = n_images / statistics.median(wall[name])
        faster = _median_ratio(wall[reference], wall[name])
        work = _median_ratio(cpu[name], cpu[reference])
        difference = float((results[name] - results[reference]).abs().max())
        label = f"{what}, {name}"
        print(f"{label:32}{speed:10.0f}{faster:13.2f}×{work:13.2f}×{difference:14.0e}")


def _median_ratio(above: list[float], below: list[float]) -> float:
    """Compare within rounds: what else the machine does then, it does to both."""
    return statistics.median(one / other for one, other in zip(above, below, strict=True))


def _random_clip(name: str) -> Clip:
    config = SMALL if name == "small" else open_clip.get_model_config(name)
    torch.manual_seed(0)  # open_clip draws initial weights from the global generator
    model = open_clip.CLIP(**config).eval().requires_grad_(False)
    size = model.visual.image_size
    side = size[0] if isinstance(size, tuple) else size
    return Clip(
        model=model,
        preprocess=open_clip.image_transform(side, is_train=False, **PREPROCESS_DEFAULTS),
        tokenizer=open_clip.SimpleTokenizer(context_length=config["text_cfg"]["context_length"]),
        name=name,
        pretrained=None,
        device=torch.device("cpu"),
        precision="fp32",
        embed_dim=config["embed_dim"],
        image_size=side,
        context_length=config["text_cfg"]["context_length"],
        config=config,
        preprocess_cfg={**PREPROCESS_DEFAULTS, "size": (side, side)},
    )


def _write_pictures(folder: Path, n_files: int, width: int) -> list[Path]:
    """Write smooth noise as JPEGs of about the size of a photograph's."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    paths = []
    for index in range(n_files):
        coarse = rng.integers(0, 256, (width // 16, width // 12, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((width, width * 3 // 4), Image.Resampling.BICUBIC)
        paths.append(folder / f"{index:05}.jpg")
        image.save(paths[-1], quality=90)
    return paths


if __name__ == "__main__":
    main()
