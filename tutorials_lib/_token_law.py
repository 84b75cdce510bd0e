"""The law of the next token of a caption: what a speaker says after any prefix."""

from __future__ import annotations

from collections.abc import Sequence

from tutorials_lib._caption_latents import CaptionLatents
from tutorials_lib._caption_words import concept_of, starts_with_vowel
from tutorials_lib._scene_grammar import LEXICON, RELATIONS, SIZES, TEMPLATES, Mention
from tutorials_lib._scene_latents import COLOURS, SHAPES

__all__ = ["EOS", "Law", "concepts_to_say", "token_law"]

EOS = "<eos>"
Law = dict[str, float]

_AROUND = tuple(tuple(part.split() for part in template.split("{}")) for template in TEMPLATES)
_BEGINNINGS = [before for before, _ in _AROUND if before]
_ENDING = next(after for _, after in _AROUND if after)
_LINKS = {link: [words.split() for words in LEXICON[link]] for link in ("and", *RELATIONS)}


def token_law(latents: CaptionLatents, words: Sequence[str]) -> Law:
    """Return the law of the token after any words; `TokenSCM` says what it depends on."""
    words = list(words)
    before, after = _AROUND[latents.template]
    if len(words) < len(before) and words == before[: len(words)]:
        return {before[len(words)]: 1.0}
    start = next((begin for begin in _BEGINNINGS if words[: len(begin)] == begin), [])
    # Nothing follows the mentions after another beginning than the template's own.
    law = _after_beginning(latents, words[len(start) :], after if start == before else [])
    if law is not None:
        return law
    others = [b for b in _BEGINNINGS if len(words) < len(b) and b[: len(words)] == words]
    return _uniform([begin[len(words)] for begin in others]) if others else {EOS: 1.0}


def _after_beginning(latents: CaptionLatents, words: list[str], after: list[str]) -> Law | None:
    """Return the law after the template's beginning; None if there is nothing to go on with."""
    mentions, link = latents.mentions()
    said: dict[str, str] = {}
    for place, mention in enumerate(mentions):
        if place == 1:
            phrases = [phrase for every in _LINKS.values() for phrase in every]
            complete = next((p for p in phrases if words[: len(p)] == p), None)
            if complete is None:
                return _in_link(words, _LINKS[link], phrases)
            words = words[len(complete) :]
        law, words = _in_mention(mention, latents.apart[place], words, said)
        if law is not None or words is None:
            return law
    ending = after or (_ENDING if words else [])
    if words != ending[: len(words)]:
        return None
    return {[*ending, EOS][len(words)]: 1.0}


def _in_link(words: list[str], own: list[list[str]], every: list[list[str]]) -> Law | None:
    """Begin or go on with a link: the one that is meant, else one that begins like this."""
    for phrases in (own, every, [_ENDING]):
        fitting = [p for p in phrases if len(words) < len(p) and p[: len(words)] == words]
        if fitting:
            return _uniform([phrase[len(words)] for phrase in fitting])
    return {EOS: 1.0} if words == _ENDING else None


def _in_mention(
    mention: Mention, apart: bool, words: list[str], said: dict[str, str]
) -> tuple[Law | None, list[str] | None]:
    """Read a mention; return the law if the words end in it, else the words after it.

    Both are None if it cannot be read, or has no way on. Adds to the words that are ``said``.
    """
    plan = concepts_to_say(mention)
    behind = {kind for kind in ("size", "colour") if kind in plan} if apart else set()
    if not words:
        law = _word_law(plan, {}, behind, said, None)
        vowel = sum(p for word, p in law.items() if starts_with_vowel(word))
        return {a: p for a, p in (("a", 1 - vowel), ("an", vowel)) if p > 0}, None
    if words[0] not in ("a", "an"):
        return None, None
    article, words = words[0], words[1:]
    has: dict[str, str] = {}
    while "shape" not in has:
        if not words:
            return _word_law(plan, has, behind, said, None if has else article), None
        kind, concept = _kind(words[0])
        if kind is None or kind in has or (kind == "size" and "colour" in has):
            return None, None
        has[kind] = said[concept] = words[0]
        words = words[1:]
    left = [kind for kind in ("size", "colour") if kind in plan and kind not in has]
    if (not words and left) or words[:1] == ["that"]:
        if len(words) < 2:
            return {["that", "is"][len(words)]: 1.0}, None
        if words[1] != "is":
            return None, None
        if len(words) == 2:
            return (_words_for(plan[left[0]], said, None) if left else None), None
        kind, concept = _kind(words[2])
        if kind in (None, "shape") or kind in has:
            return None, None
        said[concept] = words[2]
        words = words[3:]
    return None, words


def concepts_to_say(mention: Mention) -> dict[str, str]:
    """Return the concepts to be said, by kind."""
    plan = {"shape": "object" if mention.shape is None else SHAPES[mention.shape]}
    if mention.size is not None:
        plan["size"] = mention.size
    if mention.colour is not None:
        plan["colour"] = COLOURS[mention.colour]
    return plan


def _word_law(
    plan: dict[str, str],
    has: dict[str, str],
    behind: set[str],
    said: dict[str, str],
    article: str | None,
) -> Law:
    """Return the law of the next adjective or noun before the noun has been said."""
    allowed = ("colour",) if "colour" in has else ("size", "colour")
    ahead = [k for k in allowed if k in plan and k not in has and k not in behind]
    return _words_for(plan[ahead[0] if ahead else "shape"], said, article)


def _words_for(concept: str, said: dict[str, str], article: str | None) -> Law:
    """Repeat the word for a concept or choose one, in agreement with an article before it."""
    every = list(LEXICON[concept])
    words = [said[concept]] if concept in said else every
    if article is not None:
        for choices in (words, every):
            agree = [w for w in choices if starts_with_vowel(w) == (article == "an")]
            if agree:
                return _uniform(agree)
    return _uniform(words)


def _kind(word: str) -> tuple[str | None, str]:
    """Return the kind and the concept of an adjective or noun; (None, "") for other words."""
    concept = concept_of(word)
    if concept in COLOURS:
        return "colour", concept
    if concept in SIZES:
        return "size", concept
    return ("shape", concept) if concept in (*SHAPES, "object") else (None, "")


def _uniform(words: Sequence[str]) -> Law:
    law: Law = {}
    for word in words:
        law[word] = law.get(word, 0.0) + 1 / len(words)
    return law
