"""Building a CLIP model from a name, with the activation and preprocessing of its weights."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
import open_clip
import torch
from open_clip.tokenizer import HFTokenizer, SimpleTokenizer
from safetensors.torch import save_file
from torch import nn

from tutorials_lib._arrays import as_float64
from tutorials_lib._clip_sources import HEADER, PREPROCESS_DEFAULTS, Source, resolve
from tutorials_lib._clip_weights import check_shapes, need_network
from tutorials_lib._validation import check_integer, resolve_device
from tutorials_lib._word_tokenizer import WordTokenizer

__all__ = ["Clip", "load_clip", "save_clip"]

PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# What an evaluation transform of open_clip knows.
PREPROCESS_CHOICES = {
    "interpolation": ("bicubic", "bilinear"),
    "resize_mode": ("shortest", "longest", "squash"),
}


@dataclass(frozen=True, eq=False, repr=False)
class Clip:
    """A CLIP model, ready to embed.

    Attributes
    ----------
    model
        The open_clip model, in evaluation mode, its weights without gradients.
    preprocess
        open_clip's evaluation transform: a Pillow image to a normalised tensor.
    tokenizer
        Turns a list of texts into ids, shape (N, context_length).
    name, pretrained
        What the model was loaded as.
    device
        Where its weights are.
    precision
        ``"fp32"``, ``"fp16"`` or ``"bf16"``: what it computes in. Embeddings are float32.
    embed_dim
        Length of an embedding.
    image_size
        Side of the images that it sees, in pixels; (height, width) if they are not square.
    context_length
        Number of tokens that it reads of a text, start and end included.
    config
        The open_clip configuration, with ``quick_gelu`` as it was used.
    preprocess_cfg
        Mean, standard deviation, size, interpolation and manner of resizing.
    """

    model: nn.Module
    preprocess: Callable[[Any], torch.Tensor]
    tokenizer: Callable[[list[str]], torch.Tensor]
    name: str
    pretrained: str | None
    device: torch.device
    precision: str
    embed_dim: int
    image_size: int | tuple[int, int]
    context_length: int
    config: dict[str, Any]
    preprocess_cfg: dict[str, Any]

    def __repr__(self) -> str:
        weights = f", {self.pretrained}" if self.pretrained else ""
        return (
            f"Clip({self.name}{weights}: {self.embed_dim} dimensions, images of "
            f"{self.image_size}, texts of {self.context_length} tokens, {self.precision} on "
            f"{self.device})"
        )

    @property
    def temperature(self) -> float:
        """The temperature 1/exp(logit_scale) that cosines are divided by."""
        return float(torch.exp(-self.model.logit_scale.detach().float().cpu()))

    @property
    def fingerprint(self) -> str:
        """A hash of weights, configuration, precision and preprocessing, 64 hexadecimal digits.

        Computed from the weights as they are now, about a second for a gigabyte.
        """
        digest = hashlib.blake2b(digest_size=32)
        described = {"config": self.config, "preprocess": self.preprocess_cfg}
        digest.update(_canonical(described).encode())
        for key, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy())
        return digest.hexdigest()


def load_clip(
    name: str | Path = "scene",
    *,
    pretrained: str | Path | None = None,
    device: str | torch.device | None = None,
    precision: str = "fp32",
    cache_dir: str | Path | None = None,
    quick_gelu: bool | None = None,
    preprocess_cfg: Mapping[str, Any] | None = None,
) -> Clip:
    """Load a CLIP model for embedding: evaluation mode, no gradients, the right activation.

    Files in the cache are used without asking the network; without both, one error is raised
    within seconds.

    Parameters
    ----------
    name
        One of `bundled_models`; a model of open_clip such as ``"ViT-B-32"``, or with its weights
        ``"ViT-B-32/openai"``; ``"hf-hub:owner/repository"``; or a file that `save_clip` wrote.
    pretrained
        For models of open_clip, the tag of published weights or a file with weights: safetensors,
        or plain tensors saved by ``torch.save``.
    device
        ``None`` for the best there is, or a name such as ``"cpu"``, ``"cuda:0"``, ``"mps"``.
    precision
        ``"fp32"``, ``"bf16"`` or, not on the CPU, ``"fp16"``.
    cache_dir
        Where downloaded weights lie; ``None`` for the hub's own place.
    quick_gelu
        Which activation the weights were trained with. Needed only for files of weights whose
        header and configuration do not say: QuickGELU, x·sigmoid(1.702 x), and GELU give
        different embeddings, and the weights do not show which it was.
    preprocess_cfg
        Entries to set in the preprocessing: ``mean`` and ``std`` (three numbers each, of pixels in
        [0, 1]), ``interpolation`` (``"bicubic"`` or ``"bilinear"``), ``resize_mode``
        (``"shortest"``, ``"longest"`` or ``"squash"``), ``fill_color`` (0 to 255). For files of
        weights that were trained with others than those that the published weights of the model
        agree on (else OpenAI's).

    Returns
    -------
    Clip
        The model with its preprocessing and tokenizer.

    Raises
    ------
    ValueError
        If a name or tag is not known (the nearest ones are named), if weights and configuration
        do not fit (the keys are named), if the activation cannot be known or contradicts what the
        weights say, if weights are NaN or infinite, if an entry of ``preprocess_cfg`` makes no
        sense, or if fp16 is asked for on the CPU.
    TypeError
        If an argument has another type.
    FileNotFoundError
        If there is no such file.
    RuntimeError
        If weights are neither cached nor to be had, or if the device is not available.
    """
    target = resolve_device(device)
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if precision == "fp16" and target.type == "cpu":
        raise ValueError(
            "precision 'fp16' is for GPUs: on the CPU it is slow and many operations lack it; use "
            "'bf16' or 'fp32', or another device"
        )
    if quick_gelu is not None and not isinstance(quick_gelu, bool):
        raise TypeError(f"quick_gelu must be True, False or None, got {quick_gelu!r}")
    chosen = _check_preprocess({} if preprocess_cfg is None else preprocess_cfg)
    cache = None if cache_dir is None else str(cache_dir)
    source = resolve(name, pretrained, cache, quick_gelu)
    model = _build(source, precision)
    preprocess = {**PREPROCESS_DEFAULTS, **source.preprocess, **chosen}
    size = model.visual.image_size
    preprocess["size"] = tuple(size) if isinstance(size, list | tuple) else (size, size)
    tokenizer = _make_tokenizer(source, cache)
    height, width = preprocess["size"]
    return Clip(
        model=model.to(target).eval().requires_grad_(False),
        preprocess=open_clip.image_transform(
            preprocess["size"] if height != width else height,
            is_train=False,
            **{key: preprocess[key] for key in PREPROCESS_DEFAULTS},
        ),
        tokenizer=tokenizer,
        name=source.name,
        pretrained=source.pretrained,
        device=target,
        precision=precision,
        embed_dim=int(source.config["embed_dim"]),
        image_size=height if height == width else (height, width),
        context_length=int(tokenizer.context_length),
        config=source.config,
        preprocess_cfg=preprocess,
    )


def save_clip(clip: Clip, path: str | Path) -> None:
    """Write a model to one safetensors file that ``load_clip(path)`` reads.

    The header holds the configuration with the activation, the preprocessing and the tokenizer,
    so the embeddings after reloading are those from before. The file appears whole or not at all.

    Parameters
    ----------
    clip
        The model; its weights are written in the precision that they have.
    path
        Where to; must end in ``.safetensors``.

    Raises
    ------
    ValueError
        If the path ends otherwise.
    TypeError
        If the tokenizer is not one that `load_clip` makes.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ValueError(f"path must end in '.safetensors', got {str(path)!r}")
    if isinstance(clip.tokenizer, WordTokenizer):
        tokenizer = {
            "words": clip.tokenizer.words,
            "context_length": clip.tokenizer.context_length,
        }
    elif isinstance(clip.tokenizer, SimpleTokenizer | HFTokenizer):
        tokenizer = {}
    else:
        raise TypeError(
            f"a tokenizer of type {type(clip.tokenizer).__name__} cannot be saved; allowed are "
            "those that load_clip makes"
        )
    header = {
        "format": "pt",
        HEADER: _canonical(
            {
                "name": clip.name,
                "pretrained": clip.pretrained,
                "config": clip.config,
                "preprocess": clip.preprocess_cfg,
                "tokenizer": tokenizer,
            }
        ),
    }
    weights = {
        key: tensor.detach().to("cpu", copy=True).contiguous()
        for key, tensor in clip.model.state_dict().items()
    }
    draft = path.with_name(path.name + ".new")
    save_file(weights, draft, metadata=header)
    os.replace(draft, path)


def _check_preprocess(given: Any) -> dict[str, Any]:
    """Check entries of a preprocessing; returns them as numbers and strings of Python."""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"preprocess_cfg must be a dictionary of entries to set, got {type(given).__name__}"
        )
    unknown = sorted(str(key) for key in set(given) - set(PREPROCESS_DEFAULTS))
    if unknown:
        raise ValueError(
            f"preprocess_cfg may hold {', '.join(PREPROCESS_DEFAULTS)}, got {', '.join(unknown)}"
        )
    checked = dict(given)
    for key in {"mean", "std"} & set(given):
        values = as_float64(f"preprocess_cfg[{key!r}]", given[key])
        if values.shape != (3,) or (key == "std" and not (values > 0).all()):
            raise ValueError(
                f"preprocess_cfg[{key!r}] must hold three numbers"
                f"{' > 0' if key == 'std' else ''}, of red, green and blue, got {given[key]!r}"
            )
        checked[key] = tuple(values.tolist())
    for key, allowed in PREPROCESS_CHOICES.items():
        if key in given and given[key] not in allowed:
            raise ValueError(
                f"preprocess_cfg[{key!r}] must be one of {', '.join(map(repr, allowed))}, got "
                f"{given[key]!r}"
            )
    if "fill_color" in given:
        checked["fill_color"] = check_integer(
            "preprocess_cfg['fill_color']", given["fill_color"], 0
        )
        if checked["fill_color"] > 255:
            raise ValueError(
                f"preprocess_cfg['fill_color'] must lie between 0 and 255, got "
                f"{given['fill_color']}"
            )
    return checked


def _canonical(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True)


def _build(source: Source, precision: str) -> nn.Module:
    with tempfile.TemporaryDirectory() as folder, _without_false_alarms():
        described = {"model_cfg": deepcopy(source.config)}
        Path(folder, "open_clip_config.json").write_text(json.dumps(described), encoding="utf-8")
        model = open_clip.create_model(
            f"local-dir:{folder}",
            load_weights=False,
            pretrained_text=False,
            precision=precision,
            device="cpu",
        )
    check_shapes(model, source.path)
    try:
        open_clip.load_checkpoint(model, str(source.path))
    except (RuntimeError, KeyError, StopIteration) as error:
        lines = str(error).strip().splitlines()
        shown = " ".join(line.strip()[:300] for line in lines[:6])
        raise ValueError(
            f"the weights in {str(source.path)!r} do not fit the model {source.name!r}: {shown}"
        ) from error
    damaged = [
        key
        for key, tensor in model.state_dict().items()
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all())
    ]
    if damaged:
        raise ValueError(
            f"the weights in {str(source.path)!r} hold NaN or infinite values in "
            f"{len(damaged)} tensors: {', '.join(damaged[:5])}"
        )
    return model


@contextmanager
def _without_false_alarms() -> Iterator[None]:
    """Keep back open_clip's warnings that a model without weights yet has no weights."""

    def wanted(record: logging.LogRecord) -> bool:
        return "open_clip" not in record.pathname or record.levelno >= logging.ERROR

    root = logging.getLogger()
    root.addFilter(wanted)
    try:
        yield
    finally:
        root.removeFilter(wanted)


def _make_tokenizer(source: Source, cache: str | None) -> Any:
    text = source.config["text_cfg"]
    if "words" in source.tokenizer:
        tokenizer: Any = WordTokenizer(
            source.tokenizer["words"], context_length=source.tokenizer["context_length"]
        )
    elif text.get("hf_tokenizer_name"):
        return _hub_tokenizer(source.name, text, cache)
    else:
        tokenizer = SimpleTokenizer(
            context_length=text.get("context_length", open_clip.tokenizer.DEFAULT_CONTEXT_LENGTH),
            **text.get("tokenizer_kwargs", {}),
        )
    room = text.get("vocab_size", 49408)
    if tokenizer.vocab_size > room:
        raise ValueError(
            f"the tokenizer of {source.name!r} has {tokenizer.vocab_size} tokens, its text tower "
            f"only {room}: the configuration belongs to another tokenizer"
        )
    return tokenizer


def _hub_tokenizer(name: str, text: Mapping[str, Any], cache: str | None) -> Any:
    repository = text["hf_tokenizer_name"]
    options = {
        "context_length": text.get("context_length", open_clip.tokenizer.DEFAULT_CONTEXT_LENGTH),
        "cache_dir": cache,
        "tokenizer_mode": text.get("tokenizer_mode"),
        **text.get("tokenizer_kwargs", {}),
    }
    try:
        return HFTokenizer(repository, local_files_only=True, **options)
    except ImportError as error:
        raise RuntimeError(
            f"the tokenizer of {name!r} needs the package transformers: pip install transformers"
        ) from error
    except OSError:
        # Not cached. Ask whether there is a network before the client starts its retries.
        address = huggingface_hub.constants.ENDPOINT
        need_network(name, f"the tokenizer {repository}", address, cache)
        return HFTokenizer(repository, **options)
