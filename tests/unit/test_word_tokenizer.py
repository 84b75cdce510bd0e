"""The tokenizer of words: what text towers rely on, and nothing lost in silence."""

from __future__ import annotations

import pickle
import zlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tutorials_lib
from tutorials_lib._scene_captions import Claim, Mention, sample_wordings, vocabulary, write_caption
from tutorials_lib._word_tokenizer import WordTokenizer

FILE = Path(tutorials_lib.__file__).parent / "models" / "scene_vocabulary.txt"
WORDS = FILE.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def tokenizer() -> WordTokenizer:
    return WordTokenizer.from_file(FILE)


def test_the_file_knows_every_word_of_a_caption(tokenizer):
    assert set(vocabulary()) <= set(tokenizer.words)
    claim = Claim(Mention(0, 4, "large"), Mention(None, 7, "small"), "right")
    captions = [write_caption(claim, wording) for wording in sample_wordings(500, seed=0)]
    encoded = tokenizer.encode_report(captions)
    assert encoded.truncated == [] and encoded.unknown == {}
    assert tokenizer.decode(encoded.ids) == captions


def test_the_ids_of_the_file_never_move():
    """Trained text towers index their embeddings by them; new words may only be appended."""
    assert zlib.crc32("\n".join(WORDS[:142]).encode()) == 4240570356


def test_layout_of_the_ids():
    tokenizer = WordTokenizer(["red", "cube", "a"], context_length=7)
    assert tokenizer("a red dog").tolist() == [[2, 5, 3, 1, 6, 0, 0]]
    assert tokenizer.vocab_size == 7
    assert (tokenizer.pad_id, tokenizer.unknown_id, tokenizer.start_id, tokenizer.end_id) == (
        *range(3),
        6,
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from([*WORDS, "zebra"]), max_size=25), max_size=4))
def test_rows_of_any_texts(texts):
    """The largest id is the end token, once in each row; padding follows; words come back."""
    tokenizer = WordTokenizer(WORDS)
    ids, truncated, unknown = tokenizer.encode_report([" ".join(words) for words in texts])
    assert ids.dtype == torch.int64 and ids.shape == (len(texts), 20)
    for row, words in enumerate(texts):
        end = int(ids[row].argmax())
        assert int(ids[row, end]) == tokenizer.vocab_size - 1
        assert end == min(len(words), 18) + 1
        assert int(ids[row, 0]) == tokenizer.start_id and not ids[row, end + 1 :].any()
        kept = ["<unknown>" if word == "zebra" else word for word in words[:18]]
        assert tokenizer.decode(ids[row]) == " ".join(kept)
        assert (row in truncated) == (len(words) > 18)
        assert unknown.get(row, []) == [word for word in words if word == "zebra"]


def test_case_and_punctuation_do_not_matter(tokenizer):
    plain = tokenizer("a red cube and a blue sphere")
    assert torch.equal(tokenizer("A red cube, and a BLUE sphere."), plain)
    assert torch.equal(tokenizer("a red cube;and a blue  sphere "), plain)


def test_texts_that_differ_after_the_cut_only_are_reported(tokenizer):
    start = "a " * 18
    encoded = tokenizer.encode_report(["a red cube", start + "red", start + "blue"])
    assert encoded.truncated == [1, 2]
    assert torch.equal(encoded.ids[1], encoded.ids[2])
    assert int(encoded.ids[1, -1]) == tokenizer.end_id
    assert tokenizer.encode_report(start).truncated == []


def test_another_context_length(tokenizer):
    assert tokenizer("a cube", 4).shape == (1, 4)
    assert (
        tokenizer(["a cube"] * 3, context_length=3).tolist()
        == [[tokenizer.start_id, tokenizer.words.index("a") + 3, tokenizer.end_id]] * 3
    )
    assert tokenizer([]).shape == (0, 20)
    with pytest.raises(ValueError, match="context_length must be an integer >= 2, got 1"):
        tokenizer("a cube", 1)
    with pytest.raises(ValueError, match="context_length must be an integer >= 2, got 0"):
        tokenizer("a cube", 0)


def test_a_pickled_tokenizer_gives_the_same_ids(tokenizer):
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert torch.equal(copy("a red zebra"), tokenizer("a red zebra"))
    assert copy.vocab_size == tokenizer.vocab_size and copy.words == tokenizer.words


def test_a_file_with_windows_line_ends_reads_the_same(tokenizer, tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes("\r\n".join(WORDS).encode())
    assert WordTokenizer.from_file(str(path), context_length=9).words == tokenizer.words


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["red", "red"], ValueError, r"distinct.*\['red'\]"),
        ([], ValueError, "at least one, got none"),
        (["Red"], ValueError, "lower case.*'Red'"),
        (["light blue"], ValueError, "without spaces.*'light blue'"),
        (["red."], ValueError, "punctuation.*'red.'"),
        ([""], ValueError, "not empty"),
        ([3], TypeError, "words must be strings, got 3"),
    ],
)
def test_words_that_no_text_could_hold_are_refused(words, error, message):
    with pytest.raises(error, match=message):
        WordTokenizer(words)


def test_what_is_no_text_is_refused(tokenizer):
    with pytest.raises(TypeError, match="got int in row 1"):
        tokenizer(["a cube", 3])


def test_decoding_refuses_ids_that_do_not_exist(tokenizer):
    with pytest.raises(ValueError, match=f"between 0 and {tokenizer.vocab_size - 1}, got 999"):
        tokenizer.decode([2, 999])
    with pytest.raises(ValueError, match=r"a row or a batch, got shape \(\)"):
        tokenizer.decode(torch.tensor(3))
