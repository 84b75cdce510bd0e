"""What embedding does between the input and the model: reading ahead, batches, tokens."""

from __future__ import annotations

import itertools
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from open_clip.tokenizer import SimpleTokenizer
from PIL import Image
from torch import nn

from tutorials_lib._clip_loading import PRECISIONS, Clip
from tutorials_lib._embedding_store import EmbeddingStore, StoreError
from tutorials_lib._image_reading import TOLERANCE, ImageError, as_rgb, decode, list_images
from tutorials_lib._progress import progress_bar
from tutorials_lib._word_tokenizer import WordTokenizer

__all__ = [
    "NOT_FINITE",
    "NO_PATH",
    "ImageSink",
    "Picture",
    "Rows",
    "Tokens",
    "check_batch",
    "encode",
    "evaluating",
    "normalised",
    "picture_source",
    "read_in_order",
    "read_picture",
    "tokenize",
]

NOT_FINITE = "the model gives NaN, infinite or zero values"
NO_PATH = (
    "store= keeps the embeddings of files, found by what they hold, so images must be paths or a "
    "folder; embed pictures in memory without a store"
)
# Pictures that a worker takes at a time: small ones would else be read faster than handed over.
CHUNK = 8
# Captions tokenised at a time.
BLOCK = 1024


@dataclass
class Picture:
    """One picture on its way: pixels to be encoded, a vector from the store, or a reason."""

    row: int
    path: Path | None = None
    pixels: np.ndarray | None = None
    vector: np.ndarray | None = None
    reason: str | None = None
    key: bytes | None = None
    status: os.stat_result | None = None
    damaged: bool = False


@dataclass
class Tokens:
    """Ids of N texts, shape (N, context_length), and what they do not show of the texts."""

    ids: np.ndarray
    truncated: list[int]
    unknown: dict[int, list[str]]


class Rows:
    """A float32 tensor that grows by rows; rows not yet given are NaN."""

    def __init__(self, dim: int, expected: int | None) -> None:
        self._table = torch.full((expected or 0, dim), float("nan"))

    def put(self, rows: Sequence[int], vectors: torch.Tensor) -> None:
        """Write vectors into rows."""
        self._reserve(max(rows) + 1)
        self._table[torch.as_tensor(rows)] = vectors

    def table(self, n_rows: int) -> torch.Tensor:
        """Return the first rows."""
        self._reserve(n_rows)
        return self._table if len(self._table) == n_rows else self._table[:n_rows].clone()

    def _reserve(self, n_rows: int) -> None:
        if n_rows > len(self._table):
            grown = torch.full((max(n_rows, 2 * len(self._table)), self._table.shape[1]), np.nan)
            grown[: len(self._table)] = self._table
            self._table = grown


def picture_source(images: Any) -> tuple[Iterable[Any], int | None]:
    """Turn what `embed_images` accepts into pictures in order, and their number if it is known.

    Raises
    ------
    TypeError
        If it is a single picture, or has no order.
    """
    if isinstance(images, str | Path):
        found = list_images(images)
        return found, len(found)
    single = (
        isinstance(images, Image.Image | bytes)
        or (isinstance(images, np.ndarray) and images.ndim < 4 and images.dtype != object)
        or (isinstance(images, torch.Tensor) and images.ndim < 4)
    )
    if single and not (isinstance(images, np.ndarray) and images.dtype.kind == "U"):
        raise TypeError(
            f"images must be a folder, a list of pictures, or a batch with four axes, got a "
            f"single {type(images).__name__}; put it into a list: [image]"
        )
    if isinstance(images, np.ndarray) and images.ndim == 4 and images.shape[3] not in (1, 3, 4):
        raise ValueError(
            f"an array of pictures must have shape (N, height, width, 3), got {images.shape}; "
            "a batch with channels first must be a tensor"
        )
    scalar = isinstance(images, np.ndarray) and images.ndim == 0
    if isinstance(images, dict | set | frozenset) or not isinstance(images, Iterable) or scalar:
        raise TypeError(
            f"images must be a folder, a list, a generator or a batch, got {type(images).__name__}"
        )
    return images, len(images) if hasattr(images, "__len__") else None


def check_batch(images: torch.Tensor, batch_size: int) -> None:
    """Refuse a batch of another shape or type, or with values that are no pixels.

    Raises
    ------
    TypeError
        If it holds other integers than uint8.
    ValueError
        If its shape is not (N, 3, height, width), or a finite float lies outside [0, 1].
    """
    if images.ndim != 4 or images.shape[1] != 3:
        hint = "; channels come second" if images.ndim == 4 and images.shape[3] == 3 else ""
        raise ValueError(
            f"a batch must have shape (N, 3, height, width), got {tuple(images.shape)}{hint}"
        )
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise TypeError(
            f"a batch must hold uint8, or floats in [0, 1], got {str(images.dtype)[6:]}"
        )
    if not images.is_floating_point():
        return
    for start in range(0, len(images), batch_size):
        part = images[start : start + batch_size].detach()
        # NaN and infinite values concern single rows, and are reported with these.
        finite = part[torch.isfinite(part)]
        if not finite.numel():
            continue
        low, high = (float(value) for value in finite.aminmax())
        if low < -TOLERANCE or high > 1 + TOLERANCE:
            raise ValueError(
                f"float images must lie in [0, 1], got values from {low:.6g} to {high:.6g} in rows "
                f"{start} to {start + len(part) - 1}; pass pixels that are not normalised, or "
                "uint8 from 0 to 255"
            )


def read_picture(
    row: int,
    item: Any,
    geometry: Callable[[Image.Image], np.ndarray],
    store: EmbeddingStore | None,
) -> Picture:
    """Read one picture, or find its vector in the store; never raises for a bad picture."""
    picture = Picture(row)
    try:
        if isinstance(item, str | os.PathLike):
            picture.path = Path(item)
            image = _read_file(picture, store)
        else:
            image = as_rgb(item)
        if image is not None:
            picture.pixels = geometry(image)
    except ImageError as error:
        picture.reason = str(error)
    except (OSError, ValueError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        picture.reason = reason if picture.path is None else f"{picture.path}: {reason}"
    return picture


def _read_file(picture: Picture, store: EmbeddingStore | None) -> Image.Image | None:
    if store is not None:
        # From before the file is read: a change in between must not go unnoticed.
        picture.status = os.stat(picture.path)
        picture.key = store.known_key(picture.path)
        if picture.key is not None and _find(picture, store):
            return None
    data = picture.path.read_bytes()
    if store is not None:
        picture.key = store.key_of(data)
        if _find(picture, store):
            return None
    return decode(data, str(picture.path))


def _find(picture: Picture, store: EmbeddingStore) -> bool:
    try:
        picture.vector = store.get(picture.key)
    except StoreError:
        picture.damaged = True
    return picture.vector is not None


def read_in_order(
    items: Iterable[Any], read: Callable[[int, Any], Picture], workers: int, ahead: int
) -> Iterator[Picture]:
    """Read pictures in threads, at most about ``ahead`` before they are needed, in order."""
    numbered = enumerate(items)
    if workers == 0:
        for row, item in numbered:
            yield read(row, item)
        return

    def read_chunk(chunk: list[tuple[int, Any]]) -> list[Picture]:
        return [read(row, item) for row, item in chunk]

    waiting: deque = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="read-picture") as pool:
        try:
            while chunk := list(itertools.islice(numbered, CHUNK)):
                waiting.append(pool.submit(read_chunk, chunk))
                if len(waiting) * CHUNK >= ahead:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def normalised(clip: Clip, batch: torch.Tensor) -> torch.Tensor:
    """Turn pixels, shape (N, 3, height, width), uint8 or in [0, 1], into what the model reads.

    The same operations in the same order as in open_clip's transform, on a whole batch, and in
    one place: fresh memory for every step costs more than the arithmetic.
    """
    # First to the device, where 8 bits travel faster; the caller's tensor must not change.
    pixels = batch.to(clip.device).to(torch.float32, copy=True)
    if batch.dtype == torch.uint8:
        pixels.div_(255)
    mean, std = (
        torch.tensor(clip.preprocess_cfg[key], device=clip.device).reshape(3, 1, 1)
        for key in ("mean", "std")
    )
    return pixels.sub_(mean).div_(std).to(PRECISIONS[clip.precision])


def encode(tower: Callable[[torch.Tensor], torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
    """Return unit vectors in float32 on the CPU; rows that are not finite or zero are NaN."""
    with torch.inference_mode():
        features = tower(batch).float()
        length = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
        # 0/0 is NaN, and so is what an infinite entry leaves.
        return torch.where(torch.isfinite(length), features / length, torch.nan).cpu()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Keep a model in evaluation mode for a while."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


class ImageSink:
    """Takes pictures in order, encodes them in batches, and keeps the account of rows."""

    def __init__(
        self, clip: Clip, expected: int | None, store: EmbeddingStore | None, on_error: str
    ) -> None:
        self.clip = clip
        self.store = store
        self.on_error = on_error
        self.rows = Rows(clip.embed_dim, expected)
        self.n_rows = 0
        self.waiting: list[Picture] = []
        self.failed: dict[int, str] = {}
        self.paths: list[Path | None] = []
        self.from_store = 0
        self.n_damaged = 0

    def take(self, picture: Picture, batch_size: int) -> None:
        """Account for the next picture; encode when a batch is full."""
        if self.store is not None and picture.path is None:
            raise TypeError(NO_PATH)
        self.n_rows += 1
        self.paths.append(picture.path)
        self.n_damaged += picture.damaged
        if picture.reason is not None:
            self._fail(picture.row, picture.reason)
        elif picture.vector is not None:
            self.rows.put([picture.row], torch.from_numpy(picture.vector))
            self.from_store += 1
            self.store.remember(picture.path, picture.status, picture.key)
        else:
            self.waiting.append(picture)
        if len(self.waiting) >= batch_size:
            self.flush()

    def flush(self) -> None:
        """Encode the pictures that wait, and store them."""
        if not self.waiting:
            return
        batch = torch.from_numpy(np.stack([picture.pixels for picture in self.waiting]))
        vectors = self._encode(
            [picture.row for picture in self.waiting], batch.permute(0, 3, 1, 2).contiguous()
        )
        if self.store is not None:
            good = [
                index
                for index, picture in enumerate(self.waiting)
                if picture.row not in self.failed
            ]
            self.store.append([self.waiting[index].key for index in good], vectors[good].numpy())
            for index in good:
                picture = self.waiting[index]
                self.store.remember(picture.path, picture.status, picture.key)
        self.waiting = []

    def take_tensor(self, start: int, batch: torch.Tensor) -> None:
        """Encode a part of a tensor that needs no resizing."""
        rows = range(start, start + len(batch))
        self.n_rows += len(batch)
        self.paths += [None] * len(batch)
        if batch.is_floating_point():
            finite = torch.isfinite(batch).flatten(1).all(dim=1)
            for index in torch.nonzero(~finite).flatten().tolist():
                self._fail(start + index, "the image holds NaN or infinite values")
        self._encode(rows, batch)

    def warn(self) -> None:
        """Warn once if rows have failed, and once if rows of the store were damaged."""
        if self.n_damaged:
            warnings.warn(
                f"{self.n_damaged} rows of the store {str(self.store.folder)!r} did not agree "
                "with their checksums and were computed anew",
                RuntimeWarning,
                stacklevel=3,
            )
        if self.failed:
            shown = [f"row {row} ({reason})" for row, reason in list(self.failed.items())[:3]]
            more = len(self.failed) - len(shown)
            warnings.warn(
                f"{len(self.failed)} of {self.n_rows} images could not be embedded, and their "
                f"rows are NaN: {'; '.join(shown)}{f'; and {more} more' if more else ''}",
                RuntimeWarning,
                stacklevel=3,
            )

    def _encode(self, rows: Sequence[int], batch: torch.Tensor) -> torch.Tensor:
        vectors = encode(self.clip.model.encode_image, normalised(self.clip, batch))
        self.rows.put(rows, vectors)
        for index in torch.nonzero(vectors.isnan().any(dim=1)).flatten().tolist():
            if rows[index] not in self.failed:
                path = self.paths[rows[index]]
                self._fail(rows[index], f"{path}: {NOT_FINITE}" if path else NOT_FINITE)
        return vectors

    def _fail(self, row: int, reason: str) -> None:
        if self.on_error == "raise":
            raise ImageError(f"row {row}: {reason}")
        self.failed[row] = reason


def tokenize(tokenizer: Any, texts: Sequence[str], progress: bool) -> Tokens:
    """Turn texts into ids, and find the rows that were cut and the words that are not known."""
    length = int(tokenizer.context_length)
    tokens = Tokens(np.zeros((len(texts), length), dtype=np.int64), [], {})
    with progress_bar(show=progress, total=len(texts), unit=" captions read", leave=False) as bar:
        for start in range(0, len(texts), BLOCK):
            block = list(texts[start : start + BLOCK])
            ids, truncated, unknown = _tokenize_block(tokenizer, block, length)
            tokens.ids[start : start + BLOCK] = ids
            tokens.truncated += [start + row for row in truncated]
            tokens.unknown.update({start + row: words for row, words in unknown.items()})
            bar.update(len(block))
    return tokens


def _tokenize_block(
    tokenizer: Any, texts: list[str], length: int
) -> tuple[np.ndarray, list[int], dict[int, list[str]]]:
    if isinstance(tokenizer, WordTokenizer):
        report = tokenizer.encode_report(texts)
        return report.ids.numpy(), report.truncated, report.unknown
    if isinstance(tokenizer, SimpleTokenizer) and tokenizer.reduction_fn is None:
        return (*_tokenize_simple(tokenizer, texts, length), {})
    # With room for one more token, a text that was cut has another row; only the class token
    # that some tokenizers put last moves in any case.
    kept = length - 1 if getattr(tokenizer, "tokenizer_mode", "") == "clips" else length
    ids = np.asarray(tokenizer(texts))
    longer = np.asarray(tokenizer(texts, context_length=length + 1))
    cut = (ids[:, :kept] != longer[:, :kept]).any(axis=1)
    return ids, np.flatnonzero(cut).tolist(), {}


def _tokenize_simple(
    tokenizer: SimpleTokenizer, texts: list[str], length: int
) -> tuple[np.ndarray, list[int]]:
    """As `SimpleTokenizer` does, which does not tell which rows it cuts."""
    ids = np.zeros((len(texts), length), dtype=np.int64)
    truncated = []
    for row, text in enumerate(texts):
        words = tokenizer.encode(text)
        if len(words) > length - 2:
            truncated.append(row)
        words = [tokenizer.sot_token_id, *words[: length - 2], tokenizer.eot_token_id]
        ids[row, : len(words)] = words
    return ids, truncated
