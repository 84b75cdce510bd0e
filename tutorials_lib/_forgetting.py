"""Maps that forget something of a caption, and encoders that cannot tell what was forgotten.

`tutorials_lib.captions` is where to import all of it from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence

import torch

from tutorials_lib._caption_words import CaptionWords, MentionWords, read_words, write_phrase

__all__ = [
    "PseudoOptimal",
    "bag_of_words",
    "drop_adjectives",
    "drop_order_within_type",
    "merge_synonyms",
    "pseudo_optimal",
]

EncodeTexts = Callable[[list[str]], torch.Tensor]
Forget = Callable[[str], Hashable]


def bag_of_words(caption: str) -> tuple[str, ...]:
    """Forget the order of the words; keep how often each occurs.

    Works on any text: capitals, full stops and commas are ignored, and "an" counts as "a", because
    the article follows the word that happens to come next.

    Returns
    -------
    tuple of str
        The words, sorted.
    """
    words = caption.lower().replace(".", " ").replace(",", " ").split()
    return tuple(sorted("a" if word == "an" else word for word in words))


def drop_order_within_type(caption: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Forget which object has which concept, and all wording: a multiset for each type.

    Two captions have the same one if SWAPs, other words and another template lead from one to the
    other. The link is kept as it stands: "left" differs from "right".

    Parameters
    ----------
    caption
        A caption that ``scenes.parse_caption`` reads.

    Returns
    -------
    tuple of pairs
        For "colour", "shape", "size" and "link" the concepts, sorted. An open shape counts as
        "object"; other open places leave no trace.

    Raises
    ------
    TypeError, ValueError
        If the caption cannot be read.
    """
    words = read_words(caption)
    found: dict[str, tuple[str, ...]] = {}
    for kind in ("colour", "shape", "size"):
        said = (getattr(mention, kind) for mention in words.mentions)
        found[kind] = tuple(sorted(phrase.concept for phrase in said if phrase is not None))
    found["link"] = () if words.link is None else (words.link.concept,)
    return tuple(found.items())


def drop_adjectives(caption: str) -> str:
    """Forget colours and sizes; "a large red cube" becomes "a cube", and the rest stays.

    Parameters
    ----------
    caption
        A caption that ``scenes.parse_caption`` reads.

    Returns
    -------
    str
        A caption.

    Raises
    ------
    TypeError, ValueError
        If the caption cannot be read.
    """
    words = read_words(caption)
    mentions = tuple(MentionWords(mention.shape) for mention in words.mentions)
    return dataclasses.replace(words, mentions=mentions).text()


def merge_synonyms(caption: str) -> str:
    """Forget which word stands for a concept; "a violet block" becomes "a purple cube".

    Template, order and "that is" stay.

    Parameters
    ----------
    caption
        A caption that ``scenes.parse_caption`` reads.

    Returns
    -------
    str
        A caption in the usual words.

    Raises
    ------
    TypeError, ValueError
        If the caption cannot be read.
    """
    words = read_words(caption)
    mentions = tuple(_in_usual_words(mention) for mention in words.mentions)
    link = None if words.link is None else write_phrase(words.link.concept)
    merged: CaptionWords = dataclasses.replace(words, mentions=mentions, link=link)
    return merged.text()


def _in_usual_words(mention: MentionWords) -> MentionWords:
    usual = {
        kind: write_phrase(phrase.concept)
        for kind in ("shape", "size", "colour")
        if (phrase := getattr(mention, kind)) is not None
    }
    return dataclasses.replace(mention, **usual)


class PseudoOptimal:
    """An encoder that agrees with another on a support and forgets off it; `pseudo_optimal`.

    Called with N texts it returns what the other encoder makes of their `representative`.
    """

    def __init__(
        self,
        encoder: EncodeTexts,
        forget: Forget,
        support: Sequence[str],
        *,
        key: Forget | None = None,
        off_class: str = "raise",
    ) -> None:
        if isinstance(support, str):
            raise TypeError("support must be a list of captions, got one string")
        if off_class not in ("raise", "keep"):
            raise ValueError(f"off_class must be 'raise' or 'keep', got {off_class!r}")
        self._encoder, self._forget, self._key = encoder, forget, key
        self._off_class = off_class
        self._support = {text if key is None else key(text) for text in support}
        self._of_class: dict[Hashable, str] = {}
        for text in support:
            self._of_class.setdefault(forget(text), text)

    def representative(self, text: str) -> str:
        """Return the caption in whose place a text is encoded; the text itself on the support.

        Raises
        ------
        ValueError
            If nothing on the support is like the text and ``off_class`` is ``"raise"``.
        """
        if (text if self._key is None else self._key(text)) in self._support:
            return text
        found = self._of_class.get(self._forget(text))
        if found is None and self._off_class == "raise":
            raise ValueError(
                f"no caption of the support agrees with {text!r} in what is not forgotten, "
                f"{self._forget(text)!r}; extend the support, or pass off_class='keep' to encode "
                "such texts as they are"
            )
        return text if found is None else found

    def __call__(self, texts: Sequence[str]) -> torch.Tensor:
        """Encode N texts; shape (N, d)."""
        if isinstance(texts, str):
            raise TypeError("texts must be a list of captions, got one string")
        return self._encoder([self.representative(text) for text in texts])


def pseudo_optimal(
    encoder: EncodeTexts,
    forget: Forget,
    support: Sequence[str],
    *,
    key: Forget | None = None,
    off_class: str = "raise",
) -> PseudoOptimal:
    """Build an encoder with the same loss that cannot tell a hard negative from a caption.

    The loss sees the captions of the support S only. Equal to ``encoder`` on S, the new encoder
    has the same loss, whatever it does elsewhere. Here it sends a text t outside S to
    ``encoder(r(t))``, where r(t) is the first caption of S with ρ(r(t)) = ρ(t). If hard negatives
    of S lie outside S and keep ρ, it scores them as captions of S.

    Parameters
    ----------
    encoder
        From a list of N texts to a tensor (N, d).
    forget
        ρ, from a text to something hashable, such as `bag_of_words`.
    support
        Captions that occur.
    key
        What must agree for a text to count as one of the support, such as ``scenes.canonical``
        for any wording of a meaning that occurs. None asks for the very same string.
    off_class
        What to do with a text outside S of which S holds nothing with the same ρ: ``"raise"``, or
        ``"keep"`` to encode it as ``encoder`` does.

    Returns
    -------
    PseudoOptimal
        A function from a list of N texts to a tensor (N, d), with a method ``representative``.

    Raises
    ------
    TypeError
        If the support is one string.
    ValueError
        If ``off_class`` is none of the two.
    """
    return PseudoOptimal(encoder, forget, support, key=key, off_class=off_class)
