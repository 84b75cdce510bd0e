"""Embed images and captions with any CLIP model of open_clip, bundled, published or your own.

A first embedding of text, and of a folder of photographs::

    from tutorials_lib.clip import embed_images, embed_texts, load_clip

    clip = load_clip()  # bundled; with a network load_clip("ViT-B-32", pretrained="openai")
    texts = embed_texts(clip, ["a red cube", "a blue sphere"]).vectors
    images = embed_images(clip, "photographs").vectors
    scores = images @ texts.T / clip.temperature

Embeddings are float32 on the CPU, of unit norm, in the order of the input. Nothing is left out: a
picture that cannot be read keeps its row, which is NaN, and is reported with its path and reason.
In fp32 they depend on the batch size by less than 1e-5 an entry.

Pictures become RGB before they are resized (transparent ones on white, EXIF orientation applied),
in threads that read ahead, and then go through exactly the model's own resizing, cropping and
normalisation. JPEGs are decoded in full: decoding them at a reduced size would be faster, and
changes embeddings.

What the tests of this module run, and what they cannot:

=====================================================================  =======================
loading from local files, bundled models, saving, activation, errors   on the CPU, no network
fp32 and bf16, all kinds of pictures and texts, the store              on the CPU
downloads from the hub, tokenizers of the package transformers         need a network
fp16                                                                   needs CUDA or MPS
=====================================================================  =======================
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tutorials_lib._clip_loading import Clip, load_clip, save_clip
from tutorials_lib._clip_weights import bundled_models
from tutorials_lib._embedding_pipeline import (
    NO_PATH,
    NOT_FINITE,
    ImageSink,
    check_batch,
    encode,
    evaluating,
    picture_source,
    read_in_order,
    read_picture,
    tokenize,
)
from tutorials_lib._embedding_store import EmbeddingStore, StoreError
from tutorials_lib._image_reading import (
    READING,
    ImageError,
    available_cores,
    make_geometry,
)
from tutorials_lib._progress import progress_bar
from tutorials_lib._validation import check_integer

__all__ = [
    "Clip",
    "EmbeddingStore",
    "Embeddings",
    "ImageError",
    "StoreError",
    "bundled_models",
    "embed_images",
    "embed_texts",
    "load_clip",
    "save_clip",
    "zero_shot_weights",
]


@dataclass(frozen=True, eq=False, repr=False)
class Embeddings:
    """Unit vectors of images or texts, and what is to be known about their rows.

    Attributes
    ----------
    vectors
        Shape (N, dim), float32, on the CPU, in the order of the input. Rows of unit norm, or NaN
        where `failed` says why.
    failed
        Row to reason, with the path if there is one.
    truncated
        Rows of texts that were longer than the model reads; the rest of them was not seen.
    identical
        Groups of rows whose texts differ, but not to the model: after truncation, through unknown
        words, or by case and spaces. Their vectors are equal.
    unknown
        Row to words that a tokenizer of whole words does not know.
    paths
        Path of each row, ``None`` for pictures in memory; ``None`` altogether if no row has one.
    from_store
        How many rows came from the store.
    """

    vectors: torch.Tensor
    failed: dict[int, str] = field(default_factory=dict)
    truncated: tuple[int, ...] = ()
    identical: tuple[tuple[int, ...], ...] = ()
    unknown: dict[int, list[str]] = field(default_factory=dict)
    paths: tuple[Path | None, ...] | None = None
    from_store: int = 0

    def __len__(self) -> int:
        return len(self.vectors)

    def __repr__(self) -> str:
        counts = {
            "failed": len(self.failed),
            "truncated": len(self.truncated),
            "groups identical to the model": len(self.identical),
            "with unknown words": len(self.unknown),
            "from the store": self.from_store,
        }
        notes = "".join(f", {count} {what}" for what, count in counts.items() if count)
        return f"Embeddings({len(self)} × {self.vectors.shape[1]}{notes})"


def embed_images(
    clip: Clip,
    images: Any,
    *,
    batch_size: int = 64,
    workers: int | None = None,
    progress: bool = True,
    store: EmbeddingStore | None = None,
    on_error: str = "report",
) -> Embeddings:
    """Embed images, reading them in parallel.

    Parameters
    ----------
    clip
        The model.
    images
        A folder, read with those below it in the order of relative paths; a list or generator of
        paths, Pillow images, arrays of shape (height, width), (height, width, 3) or (height,
        width, 4), or tensors of shape (3, height, width); or a batch: a tensor of shape
        (N, 3, height, width) or an array of shape (N, height, width, 3). Arrays and tensors hold
        uint8 or floats in [0, 1], not normalised. A tensor that has the model's size already is
        normalised and used as it is; all else is rounded to 8 bits and resized like a picture.
    batch_size
        Images that the model sees at a time.
    workers
        Threads that read and resize pictures; ``None`` for one a core (eight at most), 0 for
        reading in between.
    progress
        Whether a bar appears after five seconds.
    store
        Where embeddings of files are kept and found again, also after a crash. Needs paths.
    on_error
        ``"report"``: rows of unreadable pictures are NaN, with a reason in ``failed`` and one
        warning; ``"raise"``: the first of them raises.

    Returns
    -------
    Embeddings
        N rows, in the order of the input; shape (0, dim) for no images.

    Raises
    ------
    TypeError
        If ``images`` is a single picture or has no order, if pictures in memory meet a store, or
        if ``store`` is none.
    ValueError
        If a folder holds no picture, or a tensor has the wrong shape or values out of range.
    FileNotFoundError
        If there is no such folder.
    ImageError
        If a picture cannot be read and ``on_error`` is ``"raise"``.
    StoreError
        If the store belongs to another model or is being written by another process.
    """
    check_integer("batch_size", batch_size, 1)
    workers = available_cores() if workers is None else check_integer("workers", workers, 0)
    if on_error not in ("report", "raise"):
        raise ValueError(f"on_error must be 'report' or 'raise', got {on_error!r}")
    if not (store is None or isinstance(store, EmbeddingStore)):
        raise TypeError(
            f"store must be an EmbeddingStore or None, got {type(store).__name__}; write "
            "store=EmbeddingStore(folder)"
        )
    items, expected = picture_source(images)
    if isinstance(images, torch.Tensor):
        check_batch(images, batch_size)
        images = images.detach()
    sink = ImageSink(clip, expected, store, on_error)
    with ExitStack() as stack:
        stack.enter_context(evaluating(clip.model))
        if store is not None:
            name = f"{clip.name}/{clip.pretrained}" if clip.pretrained else clip.name
            fingerprint = f"{clip.fingerprint}-{READING}"
            stack.enter_context(store.writing(name, fingerprint, clip.embed_dim))
        bar = stack.enter_context(
            progress_bar(show=progress, total=expected, unit=" images", leave=False)
        )
        height, width = clip.preprocess_cfg["size"]
        if isinstance(images, torch.Tensor) and images.shape[2:] == (height, width):
            if store is not None:
                raise TypeError(NO_PATH)
            for start in range(0, len(images), batch_size):
                sink.take_tensor(start, images[start : start + batch_size])
                bar.update(min(batch_size, len(images) - start))
        else:
            read = partial(read_picture, geometry=make_geometry(clip.preprocess), store=store)
            for picture in read_in_order(items, read, workers, 2 * batch_size):
                sink.take(picture, batch_size)
                bar.update()
            sink.flush()
    sink.warn()
    return Embeddings(
        vectors=sink.rows.table(sink.n_rows),
        failed=dict(sorted(sink.failed.items())),
        paths=tuple(sink.paths) if any(path is not None for path in sink.paths) else None,
        from_store=sink.from_store,
    )


def embed_texts(
    clip: Clip, texts: Iterable[str], *, batch_size: int = 256, progress: bool = True
) -> Embeddings:
    """Embed captions, and tell which of them the model does not see in full.

    Parameters
    ----------
    clip
        The model.
    texts
        A list or another iterable of strings.
    batch_size
        Captions that the model sees at a time. Captions with equal tokens are computed once.
    progress
        Whether a bar appears after five seconds.

    Returns
    -------
    Embeddings
        N rows, in the order of the input; shape (0, dim) for no texts. One warning tells if rows
        were truncated or hold unknown words.

    Raises
    ------
    TypeError
        If ``texts`` is one string, has no order, or holds anything but strings.
    """
    check_integer("batch_size", batch_size, 1)
    texts = _text_list(texts)
    # Each caption is tokenised once, and each row of tokens encoded once, however often it occurs.
    occurrences: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        occurrences.setdefault(text, []).append(row)
    distinct = list(occurrences)
    tokens = tokenize(clip.tokenizer, distinct, progress)
    members: dict[bytes, list[int]] = {}
    for index in range(len(distinct)):
        members.setdefault(tokens.ids[index].tobytes(), []).append(index)
    groups = list(members.values())
    first = torch.from_numpy(tokens.ids[[indices[0] for indices in groups]])
    unique = torch.empty(len(groups), clip.embed_dim)
    with (
        evaluating(clip.model),
        progress_bar(show=progress, total=len(groups), unit=" captions", leave=False) as bar,
    ):
        for start in range(0, len(groups), batch_size):
            ids = first[start : start + batch_size].to(clip.device)
            unique[start : start + batch_size] = encode(clip.model.encode_text, ids)
            bar.update(len(ids))

    def rows_of(indices: Iterable[int]) -> list[int]:
        return sorted(row for index in indices for row in occurrences[distinct[index]])

    group_of = np.empty(len(texts), dtype=np.int64)
    for number, indices in enumerate(groups):
        group_of[rows_of(indices)] = number
    vectors = unique[torch.from_numpy(group_of)]
    truncated = rows_of(tokens.truncated)
    unknown = {row: words for index, words in tokens.unknown.items() for row in rows_of([index])}
    failed = dict.fromkeys(torch.nonzero(vectors.isnan().any(dim=1)).flatten().tolist(), NOT_FINITE)
    _warn_about_texts(len(texts), truncated, unknown, failed, clip)
    return Embeddings(
        vectors=vectors,
        failed=failed,
        truncated=tuple(truncated),
        identical=tuple(tuple(rows_of(indices)) for indices in groups if len(indices) > 1),
        unknown=dict(sorted(unknown.items())),
    )


def zero_shot_weights(
    clip: Clip,
    names: Iterable[str],
    *,
    templates: Sequence[str] = ("a photo of {}",),
    progress: bool = True,
) -> torch.Tensor:
    """Return one unit vector a class: the mean over templates, scaled to unit norm.

    As in Radford et al., "Learning transferable visual models from natural language supervision"
    (2021), section 3.1.4: embeddings, not probabilities, are averaged.

    Parameters
    ----------
    clip
        The model.
    names
        C names of classes.
    templates
        Sentences with ``{}`` where the name goes.
    progress
        Whether a bar appears after five seconds.

    Returns
    -------
    torch.Tensor
        Shape (C, dim), float32.

    Raises
    ------
    TypeError
        If names or templates are a single string.
    ValueError
        If there is no template, or one has no ``{}``.
    """
    names = _text_list(names, "names")
    templates = _text_list(templates, "templates")
    if not templates or any("{}" not in template for template in templates):
        raise ValueError(f"templates must hold '{{}}' each, and be at least one, got {templates}")
    texts = [template.replace("{}", name) for name in names for template in templates]
    vectors = embed_texts(clip, texts, progress=progress).vectors
    means = vectors.reshape(len(names), len(templates), clip.embed_dim).mean(dim=1)
    return torch.nn.functional.normalize(means, dim=-1)


def _text_list(texts: Iterable[str], name: str = "texts") -> list[str]:
    if isinstance(texts, str | bytes):
        raise TypeError(f"{name} must be a list of strings, got one string; write [{texts!r}]")
    if isinstance(texts, dict | set | frozenset) or not isinstance(texts, Iterable):
        raise TypeError(f"{name} must be a list of strings, got {type(texts).__name__}")
    texts = [str(text) if isinstance(text, np.str_) else text for text in texts]
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(
                f"{name} must be strings, got {text!r} ({type(text).__name__}) in row {row}"
            )
    return texts


def _warn_about_texts(
    n_texts: int,
    truncated: list[int],
    unknown: dict[int, list[str]],
    failed: dict[int, str],
    clip: Clip,
) -> None:
    notes = []
    if truncated:
        notes.append(
            f"{len(truncated)} of {n_texts} texts are longer than the {clip.context_length} "
            f"tokens that the model reads and were cut: rows {_some(truncated)}"
        )
    if unknown:
        words = sorted({word for found in unknown.values() for word in found})
        notes.append(
            f"{len(unknown)} of {n_texts} texts hold words that the model does not know: "
            f"{_some(words)}"
        )
    if failed:
        notes.append(f"{NOT_FINITE} for the texts in rows {_some(list(failed))}")
    if notes:
        warnings.warn("; ".join(notes), RuntimeWarning, stacklevel=3)


def _some(values: Sequence[Any]) -> str:
    more = f", and {len(values) - 8} more" if len(values) > 8 else ""
    return ", ".join(str(value) for value in values[:8]) + more
