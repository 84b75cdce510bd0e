"""A tokenizer of whole words, for text towers that learn from the captions of scenes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from tutorials_lib._validation import check_integer

__all__ = ["Encoded", "WordTokenizer"]

_PUNCTUATION = str.maketrans(dict.fromkeys(".,;:!?", " "))
_PAD, _UNKNOWN, _START = range(3)


class Encoded(NamedTuple):
    """Token ids, and what they do not show of the texts.

    Attributes
    ----------
    ids
        Shape (N, context_length).
    truncated
        Rows whose text was too long.
    unknown
        Row to the words of its text that the tokenizer does not know; rows without are left out.
    """

    ids: torch.Tensor
    truncated: list[int]
    unknown: dict[int, list[str]]


class WordTokenizer:
    """Turns texts into ids of words, like the tokenizers of open_clip.

    Ids are 0 for padding, 1 for an unknown word, 2 for the start of a text, 3 and so on for the
    words. The end of a text has the largest id, because the text tower of open_clip reads its
    output off at the position of the largest id.

    Parameters
    ----------
    words
        The words in the order of their ids: lower case, without spaces and punctuation.
    context_length
        Number of tokens of a row, the start and the end included.

    Raises
    ------
    TypeError
        If a word is no string.
    ValueError
        If there is no word, a word occurs twice, a text can never hold it, or the context is
        shorter than 2.
    """

    def __init__(self, words: Iterable[str], *, context_length: int = 20) -> None:
        self.words = tuple(words)
        self.context_length = check_integer("context_length", context_length, 2)
        for word in self.words:
            if not isinstance(word, str):
                raise TypeError(f"words must be strings, got {word!r} ({type(word).__name__})")
            if self._split(word) != [word]:
                raise ValueError(
                    "words must be lower case, without spaces and punctuation, and not empty, "
                    f"got {word!r}"
                )
        self._ids = {word: index for index, word in enumerate(self.words, _START + 1)}
        if not self.words or len(self._ids) != len(self.words):
            twice = sorted({word for word in self.words if self.words.count(word) > 1})
            raise ValueError(f"words must be distinct and at least one, got {twice or 'none'}")
        self.pad_id, self.unknown_id, self.start_id = _PAD, _UNKNOWN, _START
        self.end_id = _START + 1 + len(self.words)
        self.vocab_size = self.end_id + 1

    @classmethod
    def from_file(cls, path: str | Path, *, context_length: int = 20) -> WordTokenizer:
        """Read the words from a UTF-8 file, one a line, in the order of their ids."""
        words = Path(path).read_text(encoding="utf-8").splitlines()
        return cls(words, context_length=context_length)

    def __repr__(self) -> str:
        return f"WordTokenizer({len(self.words)} words, context_length={self.context_length})"

    @staticmethod
    def _split(text: str) -> list[str]:
        return text.lower().translate(_PUNCTUATION).split()

    def __call__(
        self, texts: str | Sequence[str], context_length: int | None = None
    ) -> torch.Tensor:
        """Return the ids of one or several texts; long ones are cut and keep their end token.

        Parameters
        ----------
        texts
            A text or N texts. Case and the signs . , ; : ! ? are ignored.
        context_length
            Number of tokens of a row, if not the tokenizer's.

        Returns
        -------
        torch.LongTensor
            Shape (N, context_length), N = 1 for a single text.

        Raises
        ------
        TypeError
            If a text is no string.
        ValueError
            If the context is shorter than 2.
        """
        return self.encode_report(texts, context_length).ids

    def encode_report(
        self, texts: str | Sequence[str], context_length: int | None = None
    ) -> Encoded:
        """Return the ids together with the rows that were cut and the words that are unknown.

        Parameters and errors are those of a call.
        """
        if isinstance(texts, str):
            texts = [texts]
        if context_length is None:
            context_length = self.context_length
        length = check_integer("context_length", context_length, 2)
        rows: list[list[int]] = []
        truncated: list[int] = []
        unknown: dict[int, list[str]] = {}
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"texts must be strings, got {type(text).__name__} in row {row}")
            words = self._split(text)
            ids = [self._ids.get(word, _UNKNOWN) for word in words]
            if _UNKNOWN in ids:
                unknown[row] = [word for word in words if word not in self._ids]
            if len(ids) > length - 2:
                truncated.append(row)
                del ids[length - 2 :]
            padding = [_PAD] * (length - 2 - len(ids))
            rows.append([_START, *ids, self.end_id, *padding])
        return Encoded(torch.tensor(rows, dtype=torch.long).reshape(-1, length), truncated, unknown)

    def decode(self, ids: torch.Tensor | Sequence[int]) -> str | list[str]:
        """Turn ids back into words, up to the end token; an unknown word reads ``<unknown>``.

        Parameters
        ----------
        ids
            One row of ids, or a batch of shape (N, length).

        Returns
        -------
        str or list of str
            One text, or N texts.

        Raises
        ------
        ValueError
            If an id is out of range, or the ids are neither a row nor a batch.
        """
        table = torch.as_tensor(ids)
        if table.ndim not in (1, 2):
            raise ValueError(f"ids must be a row or a batch, got shape {tuple(table.shape)}")
        if table.ndim == 2:
            return [self._decode_row(row) for row in table.tolist()]
        return self._decode_row(table.tolist())

    def _decode_row(self, ids: list[int]) -> str:
        names = ("<unknown>", None, *self.words)
        words = []
        for index in ids:
            if not 0 <= index < self.vocab_size:
                raise ValueError(f"ids must lie between 0 and {self.vocab_size - 1}, got {index}")
            if index == self.end_id:
                break
            if index not in (_PAD, _START):
                words.append(names[index - 1])
        return " ".join(words)
