"""The store: nothing wrong is ever returned, whatever was cut, damaged, or written at once."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutorials_lib import _embedding_store
from tutorials_lib._embedding_store import EmbeddingStore, StoreError

MODEL = {"name": "tiny", "fingerprint": "f" * 64, "dim": 3}
KEYS = [EmbeddingStore.key_of(bytes([index])) for index in range(7)]
VECTORS = np.arange(21, dtype=np.float32).reshape(7, 3)


def fill(folder, *, batches=((0, 3), (3, 5), (5, 7))) -> EmbeddingStore:
    store = EmbeddingStore(folder)
    with store.writing(**MODEL):
        for start, stop in batches:
            store.append(KEYS[start:stop], VECTORS[start:stop])
    return store


def test_vectors_come_back_to_the_bit_in_a_fresh_object(tmp_path):
    fill(tmp_path / "new" / "store")
    store = EmbeddingStore(tmp_path / "new" / "store")
    assert len(store) == 7
    assert store.verify() == []
    assert "7 rows, tiny" in repr(store)
    for key, vector in zip(KEYS, VECTORS, strict=True):
        np.testing.assert_array_equal(store.get(key), vector)
    assert store.get(EmbeddingStore.key_of(b"another")) is None


def test_looking_at_a_store_that_is_not_there_writes_nothing(tmp_path):
    store = EmbeddingStore(tmp_path / "store")
    assert len(store) == 0
    assert store.get(KEYS[0]) is None
    assert not (tmp_path / "store").exists()


def test_what_another_object_has_written_is_kept(tmp_path):
    early = EmbeddingStore(tmp_path)
    fill(tmp_path, batches=[(0, 3)])
    with early.writing(**MODEL):
        assert len(early) == 3
        early.append(KEYS[3:], VECTORS[3:])
    assert len(EmbeddingStore(tmp_path)) == 7


def test_a_new_vector_replaces_the_old_one(tmp_path):
    store = fill(tmp_path)
    with store.writing(**MODEL):
        store.append(KEYS[:1], VECTORS[:1] + 100)
    for reader in (store, EmbeddingStore(tmp_path)):
        np.testing.assert_array_equal(reader.get(KEYS[0]), VECTORS[0] + 100)
        np.testing.assert_array_equal(reader.get(KEYS[1]), VECTORS[1])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 84), st.integers(0, 224), st.binary(max_size=40), st.binary(max_size=40))
def test_a_store_cut_anywhere_loses_rows_but_never_gives_a_wrong_one(
    tmp_path_factory, n_vectors, n_index, more_vectors, more_index
):
    """What a crash leaves: both files cut at any byte, or with any bytes after the end."""
    folder = tmp_path_factory.mktemp("store")
    fill(folder)
    for name, size, more in (
        ("vectors", n_vectors, more_vectors),
        ("index", n_index, more_index),
    ):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[:size] + more)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store = EmbeddingStore(folder)
        held = [key for key in KEYS if key in store._rows]
        for key, vector in zip(KEYS, VECTORS, strict=True):
            try:
                found = store.get(key)
            except StoreError:
                continue
            if found is not None:
                np.testing.assert_array_equal(found, vector)
        # What is whole is kept, and writing goes on as if nothing had happened.
        assert set(KEYS[: min(n_vectors // 12, n_index // 32)]) <= set(held)
        with store.writing(**MODEL):
            store.append(KEYS, VECTORS)
        again = EmbeddingStore(folder)
        np.testing.assert_array_equal([again.get(key) for key in KEYS], VECTORS)
    assert all("in the index" in str(warning.message) for warning in caught)


def test_a_damaged_vector_is_noticed(tmp_path):
    fill(tmp_path)
    data = bytearray((tmp_path / "vectors").read_bytes())
    data[12 * 4 + 5] ^= 1
    (tmp_path / "vectors").write_bytes(data)
    store = EmbeddingStore(tmp_path)
    assert store.verify() == [4]
    with pytest.raises(StoreError, match=r"row 4 .* does not agree with its checksum"):
        store.get(KEYS[4])
    np.testing.assert_array_equal(store.get(KEYS[5]), VECTORS[5])


def test_a_damaged_record_counts_as_absent(tmp_path):
    fill(tmp_path)
    data = bytearray((tmp_path / "index").read_bytes())
    data[32 * 2] ^= 1
    (tmp_path / "index").write_bytes(data)
    with pytest.warns(RuntimeWarning, match="1 records in the index"):
        store = EmbeddingStore(tmp_path)
    assert [key in store._rows for key in KEYS] == [True, True, False, True, True, True, True]
    np.testing.assert_array_equal(store.get(KEYS[6]), VECTORS[6])


@pytest.mark.parametrize("change", [{"fingerprint": "0" * 64}, {"dim": 4}])
def test_another_model_is_refused_by_name(tmp_path, change):
    store = fill(tmp_path)
    with (
        pytest.raises(StoreError, match=r"embeddings of tiny .*, not of other .*another folder"),
        store.writing(**{**MODEL, "name": "other", **change}),
    ):
        pytest.fail("the store must not open")
    assert len(EmbeddingStore(tmp_path)) == 7


def test_descriptions_that_make_no_sense_are_refused(tmp_path):
    fill(tmp_path)
    text = (tmp_path / "model.json").read_text(encoding="utf-8")
    (tmp_path / "model.json").write_text(text[:20], encoding="utf-8")
    with pytest.raises(StoreError, match="cannot be read"):
        EmbeddingStore(tmp_path)
    (tmp_path / "model.json").write_text(text.replace("1", "9", 1), encoding="utf-8")
    with pytest.raises(StoreError, match="format not known"):
        EmbeddingStore(tmp_path)
    (tmp_path / "model.json").unlink()
    with pytest.raises(StoreError, match=r"no model\.json"):
        EmbeddingStore(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="is a file"):
        EmbeddingStore(tmp_path / "file")


def test_only_one_writes_and_the_lock_is_given_back(tmp_path):
    store = fill(tmp_path)
    other = EmbeddingStore(tmp_path)
    with store.writing(**MODEL):
        with (
            pytest.raises(StoreError, match="another process is writing"),
            other.writing(**MODEL),
        ):
            pytest.fail("two writers")
        np.testing.assert_array_equal(other.get(KEYS[2]), VECTORS[2])  # reading needs no lock
    with pytest.raises(ZeroDivisionError), store.writing(**MODEL):
        raise ZeroDivisionError
    with other.writing(**MODEL):
        pass
    with pytest.raises(StoreError, match="not open for writing"):
        store.append(KEYS[:1], VECTORS[:1])


def test_vectors_that_do_not_fit_are_refused(tmp_path):
    store = fill(tmp_path)
    with store.writing(**MODEL):
        with pytest.raises(ValueError, match=r"shape \(1, 3\)"):
            store.append(KEYS[:1], VECTORS)
        with pytest.raises(ValueError, match="finite"):
            store.append(KEYS[:1], VECTORS[:1] * np.nan)
    assert len(store) == 7


WRITER = """
import sys, numpy as np
from tutorials_lib import _embedding_store
from tutorials_lib._embedding_store import EmbeddingStore
store = EmbeddingStore(sys.argv[1])
with store.writing("tiny", "f" * 64, 3):
    for index in range(10**9):
        row = np.full((1, 3), index, dtype=np.float32)
        store.append([store.key_of(str(index).encode())], row)
        if index == 20:
            print("going", flush=True)
"""


def test_a_killed_process_leaves_a_store_that_goes_on(tmp_path):
    """The lock holds against another process, and goes with it."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "going\n"
        with (
            pytest.raises(StoreError, match="another process"),
            EmbeddingStore(tmp_path).writing(**MODEL),
        ):
            pytest.fail("two writers")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    store = EmbeddingStore(tmp_path)
    assert len(store) > 20
    for index in range(len(store)):
        assert (store.get(store.key_of(str(index).encode())) == index).all()
    with store.writing(**MODEL):
        store.append(KEYS, VECTORS)
    assert EmbeddingStore(tmp_path).verify() == []


# --- Files whose content is known


def old_file(path, data: bytes, age: float = 100.0):
    path.write_bytes(data)
    stamp = time.time() - age
    os.utime(path, (stamp, stamp))
    return path


def test_a_file_is_known_until_it_changes(tmp_path):
    folder, path = tmp_path / "store", old_file(tmp_path / "é 图.png", b"abc")
    store = EmbeddingStore(folder)
    key = store.key_of(b"abc")
    with store.writing(**MODEL):
        assert store.known_key(path) is None
        store.remember(path, path.stat(), key)
        store.remember(path, path.stat(), key)
    assert (folder / "files").read_bytes().count(b"\n") == 1
    again = EmbeddingStore(folder)
    assert again.known_key(path) == key
    assert again.known_key(str(path)) == key
    old_file(path, b"abc", age=50)
    assert again.known_key(path) is None
    with pytest.raises(FileNotFoundError):
        path.unlink()
        again.known_key(path)


def test_a_file_that_has_just_been_written_is_not_relied_on(tmp_path):
    """It could change again within the resolution of its time stamp."""
    path = old_file(tmp_path / "a.png", b"abc", age=0)
    store = EmbeddingStore(tmp_path / "store")
    with store.writing(**MODEL):
        store.remember(path, path.stat(), store.key_of(b"abc"))
        assert store.known_key(path) is None


def test_damaged_lines_about_files_are_left_out(tmp_path):
    folder = tmp_path / "store"
    paths = [old_file(tmp_path / f"{index}.png", bytes([index])) for index in range(3)]
    store = EmbeddingStore(folder)
    with store.writing(**MODEL):
        for path, key in zip(paths, KEYS, strict=False):
            store.remember(path, path.stat(), key)
    lines = (folder / "files").read_bytes().splitlines(keepends=True)
    damaged = lines[1].replace(b".png", b".pnj")
    (folder / "files").write_bytes(lines[0] + damaged + lines[2][:-5])
    again = EmbeddingStore(folder)
    assert [again.known_key(path) for path in paths] == [KEYS[0], None, None]
    with again.writing(**MODEL):
        again.remember(paths[2], paths[2].stat(), KEYS[2])
    assert EmbeddingStore(folder).known_key(paths[2]) == KEYS[2]


# --- Stores that somebody changes under an open object


def test_a_store_deleted_under_an_open_object_can_be_filled_anew(tmp_path):
    """The description is written again, so that the next process can read the store."""
    folder = tmp_path / "store"
    store = fill(folder)
    shutil.rmtree(folder)
    with store.writing(**MODEL):
        assert len(store) == 0
        store.append(KEYS[:2], VECTORS[:2])
    for reader in (store, EmbeddingStore(folder)):
        assert len(reader) == 2
        np.testing.assert_array_equal(reader.get(KEYS[1]), VECTORS[1])
    shutil.rmtree(folder)
    with store.writing(**{**MODEL, "fingerprint": "e" * 64, "dim": 2}):
        store.append(KEYS[:1], VECTORS[:1, :2])
    assert EmbeddingStore(folder).get(KEYS[0]).shape == (2,)


def test_a_store_replaced_by_a_longer_one_is_read_from_the_start(tmp_path):
    folder = tmp_path / "store"
    early = fill(folder, batches=[(0, 3)])
    assert early.get(KEYS[0]) is not None
    folder.rename(tmp_path / "old")
    with EmbeddingStore(folder).writing(**MODEL) as other:
        other.append(KEYS[::-1], VECTORS[::-1] + 100)
    with early.writing(**MODEL):
        for key, vector in zip(KEYS, VECTORS, strict=True):
            np.testing.assert_array_equal(early.get(key), vector + 100)


def test_vectors_that_are_gone_are_damaged_rows_and_no_crash(tmp_path):
    fill(tmp_path)
    store = EmbeddingStore(tmp_path)
    os.truncate(tmp_path / "vectors", 20)
    with pytest.raises(StoreError, match="not there any more"):
        store.get(KEYS[5])
    assert store.verify() == list(range(7))


@pytest.mark.parametrize("dim", ["2.5", "true", '"3"', "0"])
def test_a_length_of_vectors_is_a_whole_number(tmp_path, dim):
    text = '{"format": 1, "name": "x", "fingerprint": "f", "dim": %s}'
    (tmp_path / "model.json").write_text(text % dim, encoding="utf-8")
    with pytest.raises(StoreError, match=r"model\.json"):
        EmbeddingStore(tmp_path)


def test_folders_that_cannot_be_written_to_or_locked_say_so(tmp_path, monkeypatch):
    """Not every error of a lock means that another process holds it."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StoreError, match="cannot be written to"):
        with EmbeddingStore(tmp_path / "file" / "store").writing(**MODEL):
            pass

    def no_locks(descriptor):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(_embedding_store, "_take_lock", no_locks)
    with pytest.raises(StoreError, match=r"cannot be locked.*No locks available"):
        with EmbeddingStore(tmp_path / "store").writing(**MODEL):
            pass
