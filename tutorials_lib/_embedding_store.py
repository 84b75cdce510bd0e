"""Embeddings of image files on disk, found again by what the files hold.

A store is a folder that belongs to one model:

==============  ================================================================================
``model.json``  which model, and the length of its vectors
``vectors``     float32, little-endian, one row after the other
``index``       one record a row: the file's content (BLAKE2b), the row's CRC-32, its own CRC-32
``files``       paths, sizes and times of files whose content is known, so that it is not read
``lock``        held by the one process that writes
==============  ================================================================================

A row counts once its index record is complete. What a crash has left beyond the last such row is
cut off or written over by the next writer, and a record or a row that does not agree with its
checksum counts as absent. Files that a reader may have mapped are never renamed or shortened.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tutorials_lib._validation import check_integer

__all__ = ["EmbeddingStore", "StoreError"]

FORMAT = 1
_KEY_BYTES = 24
_RECORD = np.dtype([("key", f"V{_KEY_BYTES}"), ("vector_crc", "<u4"), ("record_crc", "<u4")])
# A file changed again within the resolution of its time stamp looks unchanged, so stamps
# younger than this many nanoseconds are not relied on (FAT counts in two seconds).
_STAMP_MARGIN = 3_000_000_000
# What systems say of a lock that another process holds.
_HELD = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)


class StoreError(RuntimeError):
    """A store that is locked, damaged, or belongs to another model."""


class EmbeddingStore:
    """Embeddings of image files in a folder, for one model.

    Reading needs no lock, and the vectors are mapped, not loaded. Writing happens inside
    `writing`, by one process at a time; file systems without locks are refused.

    Parameters
    ----------
    folder
        Where the store is or will be; created when something is first written.

    Raises
    ------
    StoreError
        If the folder holds a store of another format, or a description that cannot be read.

    Examples
    --------
    >>> store = EmbeddingStore("embeddings")  # doctest: +SKIP
    >>> embed_images(clip, "photographs", store=store)  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise StoreError(f"{str(self.folder)!r} is a file, not the folder of a store")
        self._writing = False
        self._model: dict[str, Any] | None = None
        self._forget()
        self._refresh()

    def _forget(self) -> None:
        self._identity: tuple[int, int] | None = None
        self._rows: dict[bytes, int] = {}
        self._crc: dict[int, int] = {}
        self._n_records = 0
        self._vectors: np.ndarray | None = None
        self._files: dict[str, tuple[int, int, bytes]] = {}
        self._files_read = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        name = "no model yet" if self._model is None else self._model["name"]
        return f"EmbeddingStore({str(self.folder)!r}, {len(self)} rows, {name})"

    @staticmethod
    def key_of(data: bytes) -> bytes:
        """Return the key of a file that holds ``data``."""
        return hashlib.blake2b(data, digest_size=_KEY_BYTES).digest()

    def known_key(self, path: str | Path) -> bytes | None:
        """Return the key of a file that has not changed since it was read, without reading it.

        A file counts as unchanged if its size and the time of its last change are those noted;
        ``None`` for all others.

        Raises
        ------
        OSError
            If a file that is noted is not there any more.
        """
        known = self._files.get(os.path.abspath(path))
        if known is None:
            return None
        status = os.stat(path)
        return known[2] if (status.st_size, status.st_mtime_ns) == known[:2] else None

    def get(self, key: bytes) -> np.ndarray | None:
        """Return a copy of the vector of a key, float32; ``None`` if there is none.

        Raises
        ------
        StoreError
            If the row does not agree with its checksum, or somebody has shortened the file.
        """
        row = self._rows.get(key)
        if row is None:
            return None
        vector = np.array(self._mapped()[row], dtype=np.float32)
        if zlib.crc32(vector.astype("<f4").tobytes()) != self._crc[row]:
            raise StoreError(
                f"row {row} of the store {str(self.folder)!r} is damaged: it does not agree with "
                "its checksum; embed_images computes such rows anew"
            )
        return vector

    def verify(self) -> list[int]:
        """Return the rows that do not agree with their checksums; reads everything."""
        damaged = []
        for key, row in self._rows.items():
            try:
                self.get(key)
            except StoreError:
                damaged.append(row)
        return sorted(damaged)

    def check_model(self, name: str, fingerprint: str, dim: int) -> None:
        """Refuse a model other than the one whose embeddings the store holds.

        Parameters
        ----------
        name
            What the model is called; used in messages.
        fingerprint
            Hash of its weights, configuration, precision and preprocessing.
        dim
            Length of its vectors.

        Raises
        ------
        StoreError
            If the store belongs to another one; the message names both.
        """
        check_integer("dim", dim, 1)
        held = self._model
        if held is not None and (held["fingerprint"], held["dim"]) != (fingerprint, dim):
            raise StoreError(
                f"the store {str(self.folder)!r} holds embeddings of {held['name']} "
                f"(dimension {held['dim']}, fingerprint {held['fingerprint'][:12]}), not of "
                f"{name} (dimension {dim}, fingerprint {fingerprint[:12]}): weights, "
                "configuration, precision or preprocessing differ; take another folder"
            )

    @contextmanager
    def writing(self, name: str, fingerprint: str, dim: int) -> Iterator[EmbeddingStore]:
        """Hold the lock, cut off what a crash has left, and allow `append`.

        Parameters are those of `check_model`.

        Raises
        ------
        StoreError
            If another process, or another store object, is writing, if the folder cannot be
            written to or locked, or if the store belongs to another model.
        """
        with _locked(self.folder / "lock"):
            self._refresh()
            self.check_model(name, fingerprint, dim)
            if self._model is None:
                model = {"format": FORMAT, "name": name, "fingerprint": fingerprint, "dim": dim}
                _write_whole(self.folder / "model.json", json.dumps(model, indent=1) + "\n")
                self._model = model
            self._cut_tails()
            with (
                open(self.folder / "vectors", "r+b") as self._vector_file,
                open(self.folder / "index", "ab") as self._index_file,
                open(self.folder / "files", "ab") as self._path_file,
            ):
                self._identity = _identity(self.folder / "index")
                self._vector_file.seek(self._n_records * 4 * dim)
                self._writing = True
                try:
                    yield self
                finally:
                    self._writing = False
                    for file in (self._vector_file, self._index_file, self._path_file):
                        file.flush()
                        os.fsync(file.fileno())

    def append(self, keys: list[bytes], vectors: np.ndarray) -> None:
        """Write vectors, then their index records; a crash in between loses the batch only.

        Parameters
        ----------
        keys
            N keys. A key that the store holds gets its new vector.
        vectors
            Shape (N, dim).
        """
        self._require_writing()
        rows = np.ascontiguousarray(vectors, dtype="<f4")
        if rows.shape != (len(keys), self._model["dim"]):
            raise ValueError(
                f"vectors must have shape ({len(keys)}, {self._model['dim']}), got {rows.shape}"
            )
        if not np.isfinite(rows).all():
            raise ValueError("vectors must be finite")
        records = np.zeros(len(keys), dtype=_RECORD)
        for position, key in enumerate(keys):
            crc = zlib.crc32(rows[position].tobytes())
            records[position] = (np.void(key), crc, _record_crc(key, crc))
        self._vector_file.write(rows.tobytes())
        self._vector_file.flush()
        self._index_file.write(records.tobytes())
        self._index_file.flush()
        self._take(records)

    def remember(self, path: str | Path, status: os.stat_result, key: bytes) -> None:
        """Note the content of a file, given its state from before it was read."""
        self._require_writing()
        if time.time_ns() - status.st_mtime_ns < _STAMP_MARGIN:
            return
        name = os.path.abspath(path)
        entry = (status.st_size, status.st_mtime_ns, key)
        if self._files.get(name) == entry:
            return
        # json writes the odd bytes that a file name may hold as escapes, so ASCII suffices.
        text = json.dumps([name, entry[0], entry[1], key.hex()]).encode("ascii")
        self._path_file.write(b"%08x %s\n" % (zlib.crc32(text), text))
        self._path_file.flush()
        self._files[name] = entry

    def _require_writing(self) -> None:
        if not self._writing:
            raise StoreError("the store is not open for writing; use `with store.writing(...)`")

    def _refresh(self) -> None:
        """Read what has been written since this object last looked."""
        before = self._model
        self._read_model()
        identity = _identity(self.folder / "index")
        if self._model != before or identity != self._identity:
            # Somebody has deleted the store, and perhaps made another one in its place.
            self._forget()
            self._identity = identity
        if self._model is None:
            return
        row_bytes = 4 * self._model["dim"]
        complete = min(
            _size(self.folder / "index") // _RECORD.itemsize,
            _size(self.folder / "vectors") // row_bytes,
        )
        if complete < self._n_records:
            # A store that somebody has shortened or emptied is read from the start.
            self._rows, self._crc, self._n_records, self._vectors = {}, {}, 0, None
        if complete > self._n_records:
            with open(self.folder / "index", "rb") as file:
                file.seek(self._n_records * _RECORD.itemsize)
                data = file.read((complete - self._n_records) * _RECORD.itemsize)
            self._take(np.frombuffer(data, dtype=_RECORD))
        self._read_files()

    def _read_model(self) -> None:
        path = self.folder / "model.json"
        if not path.exists():
            if _size(self.folder / "index"):
                raise StoreError(
                    f"{str(self.folder)!r} holds an index but no model.json, so it is not known "
                    "which model its vectors are from; take another folder or delete this one"
                )
            self._model = None
            return
        try:
            model = json.loads(path.read_text(encoding="utf-8"))
            known = model["format"] == FORMAT and isinstance(model["name"], str)
            known = known and isinstance(model["fingerprint"], str)
            known = known and type(model["dim"]) is int and model["dim"] >= 1
        except (ValueError, KeyError, TypeError) as error:
            message = f"{str(path)!r} cannot be read as the description of a store"
            raise StoreError(message) from error
        if not known:
            raise StoreError(f"{str(path)!r} describes a store of a format not known here")
        self._model = model

    def _take(self, records: np.ndarray) -> None:
        n_damaged = 0
        for record in records:
            key, vector_crc = record["key"].tobytes(), int(record["vector_crc"])
            if _record_crc(key, vector_crc) == int(record["record_crc"]):
                self._rows[key] = self._n_records
                self._crc[self._n_records] = vector_crc
            else:
                n_damaged += 1
            self._n_records += 1
        if n_damaged:
            warnings.warn(
                f"{n_damaged} records in the index of the store {str(self.folder)!r} are damaged "
                "and count as absent",
                RuntimeWarning,
                stacklevel=4,
            )

    def _read_files(self) -> None:
        path = self.folder / "files"
        if _size(path) < self._files_read:
            self._files, self._files_read = {}, 0
        if not path.exists():
            return
        with open(path, "rb") as file:
            file.seek(self._files_read)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._files_read += end
        for line in data[:end].splitlines():
            # A damaged line only means that a file is read once more.
            if line[:9] == b"%08x " % zlib.crc32(line[9:]):
                name, size, stamp, key = json.loads(line[9:])
                self._files[name] = (size, stamp, bytes.fromhex(key))

    def _cut_tails(self) -> None:
        """Shorten the files to what is complete; only a writer does this, under the lock."""
        complete = self._n_records * _RECORD.itemsize
        for name, size in (("index", complete), ("files", self._files_read)):
            if _size(self.folder / name) > size:
                os.truncate(self.folder / name, size)
        # A mapped file cannot be shortened on Windows, so left-over vectors are written over.
        (self.folder / "vectors").touch()

    def _mapped(self) -> np.ndarray:
        if self._vectors is None or len(self._vectors) < self._n_records:
            try:
                self._vectors = np.memmap(
                    self.folder / "vectors",
                    dtype="<f4",
                    mode="r",
                    shape=(self._n_records, self._model["dim"]),
                )
            except (OSError, ValueError) as error:
                raise StoreError(
                    f"the vectors of the store {str(self.folder)!r} are not there any more "
                    f"({error}); embed_images computes them anew"
                ) from error
        return self._vectors


def _record_crc(key: bytes, vector_crc: int) -> int:
    return zlib.crc32(key + vector_crc.to_bytes(4, "little"))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _identity(path: Path) -> tuple[int, int] | None:
    """Tell a file from another one that has taken its place."""
    if not path.exists():
        return None
    status = path.stat()
    return status.st_dev, status.st_ino


def _write_whole(path: Path, text: str) -> None:
    """Write a small file so that it is there whole or not at all."""
    draft = path.with_name(path.name + ".new")
    with open(draft, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that the operating system gives back when the process ends, however it ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+b")
    except OSError as error:
        raise StoreError(
            f"the store {str(path.parent)!r} cannot be written to: {error}; take a folder that "
            "you may write to, or embed without a store"
        ) from error
    with file:
        try:
            _take_lock(file.fileno())
        except OSError as error:
            if error.errno not in _HELD:
                raise StoreError(
                    f"the store {str(path.parent)!r} cannot be locked: {error}; take a folder on "
                    "a file system with locks, such as a local disk"
                ) from error
            raise StoreError(
                f"another process is writing to the store {str(path.parent)!r}; wait until it has "
                "finished, or give each process a store of its own"
            ) from error
        try:
            yield
        finally:
            _release_lock(file.fileno())


if os.name == "nt":
    import msvcrt

    def _take_lock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _release_lock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _take_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _release_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
