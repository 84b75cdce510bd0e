"""What a plain English caption can mean, and when two of them mean the same.

`tutorials_lib.captions` is where to import what is public.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tutorials_lib._english import EnglishCaption, parse_english
from tutorials_lib._english_words import RELATION_WORDS

__all__ = ["readings", "same_meaning_english"]

Nodes = frozenset[int]
Fact = tuple[str, Nodes, int]  # a relation, its heads, and the group that it leads to
_POSTURE = "posture: "


@dataclass(frozen=True)
class _Chain:
    """What is known of a caption that is read up to some phrase.

    ``groups`` are sets of phrases that stand side by side, ``open`` those groups that a later
    link can still attach to, the innermost last.
    """

    groups: tuple[Nodes, ...] = (frozenset((0,)),)
    open: tuple[int, ...] = (0,)
    facts: tuple[Fact, ...] = ()


def readings(caption: EnglishCaption) -> list[frozenset[tuple[str, Nodes, Nodes]]]:
    """List what the links of a caption can say of its phrases.

    A relation without a verb can attach to any phrase, or phrases side by side, before it that no
    other attachment has closed, or to all phrases before it, as in "(a dog next to a cat) on a
    sofa". "And" can go on with any of them. "Is" speaks of its subject, "that is" of the phrase
    before it. What "and" sets side by side is not said to stand in any relation.

    Parameters
    ----------
    caption
        A caption.

    Returns
    -------
    list of frozenset
        For each reading the facts: a relation and the two sets of phrases, by index, that it
        holds between. A posture, such as sitting, is a fact of one set and the empty set.
    """
    starts = caption.clause_starts()
    chains = [_Chain()]
    for at in range(len(caption.links)):
        chains = [longer for chain in chains for longer in _extended(caption, chain, at, starts)]
    return list({_facts(chain): None for chain in chains})


def _extended(
    caption: EnglishCaption, chain: _Chain, at: int, starts: set[int]
) -> Iterator[_Chain]:
    link, new = caption.links[at], frozenset((at + 1,))
    groups, last = chain.groups, len(chain.groups)
    if link.coordinates:
        if at + 1 in starts:
            yield _Chain((*groups, new), (last,), chain.facts)
            return
        for depth, group in enumerate(chain.open):
            wider = (*groups[:group], groups[group] | new, *groups[group + 1 :])
            yield _Chain(wider, chain.open[: depth + 1], chain.facts)
        return
    if link.copula == "is":
        places = [(frozenset(caption.subject("is", at)), chain.open[:1])]
    elif link.copula:
        places = [(frozenset((at,)), chain.open)]
    else:
        places = [(groups[g], chain.open[: i + 1]) for i, g in enumerate(chain.open)]
        places += [(frozenset((at,)), chain.open), (frozenset(range(at + 1)), chain.open[:1])]
    for heads, still_open in dict(places).items():
        facts = (*chain.facts, (link.words, heads, last))
        if link.posture:
            facts = (*facts, (_POSTURE + link.posture, heads, -1))
        yield _Chain((*groups, new), (*still_open, last), facts)


def _facts(chain: _Chain) -> frozenset[tuple[str, Nodes, Nodes]]:
    found = set()
    for words, heads, group in chain.facts:
        if group < 0:
            found.add((words, heads, frozenset()))
            continue
        relation, two = RELATION_WORDS[words], chain.groups[group]
        pair = (two, heads) if relation.turned else (heads, two)
        if relation.symmetric:
            pair = tuple(sorted(pair, key=sorted))  # type: ignore[assignment]
        found.add((relation.concept, *pair))
    return frozenset(found)


def same_meaning_english(one: str, other: str) -> bool:
    """Say whether two plain English captions can mean the same.

    They can if they share a reading. The order of what "and" joins and the direction of a
    symmetric relation do not count; nor do articles, "is", and the choice between synonyms. So
    what is said to differ does so under every reading, as a hard negative has to.

    Parameters
    ----------
    one, other
        Captions that `parse_english` reads.

    Returns
    -------
    bool
        Whether they share a reading.

    Raises
    ------
    TypeError, ValueError
        As `parse_english`.
    """
    mine, others = _labels(one), _labels(other)
    return mine == others and not _meanings(one).isdisjoint(_meanings(other))


def _labels(text: str) -> list[Any]:
    return sorted(_sortable(label) for label in parse_english(text).labels())


def _sortable(label: tuple[str, str, frozenset[str]]) -> tuple[str, str, tuple[str, ...]]:
    return label[0], label[1], tuple(sorted(label[2]))


@functools.lru_cache(maxsize=512)
def _meanings(text: str) -> frozenset[Any]:
    """Return the readings in a form that does not depend on the order of the phrases."""
    caption = parse_english(text)
    labels = [_sortable(label) for label in caption.labels()]
    # Like phrases can be numbered in any way, so the least of all numberings stands for them.
    alike = [
        [at for at, mine in enumerate(labels) if mine == label] for label in sorted(set(labels))
    ]
    numberings = []
    for orders in itertools.product(*(itertools.permutations(group) for group in alike)):
        order = itertools.chain.from_iterable(orders)
        numberings.append({old: new for new, old in enumerate(order)})
    return frozenset(
        min(_numbered(reading, numbers) for numbers in numberings) for reading in readings(caption)
    )


def _numbered(reading: frozenset[tuple[str, Nodes, Nodes]], numbers: dict[int, int]) -> Any:
    symmetric = {relation.concept for relation in RELATION_WORDS.values() if relation.symmetric}
    facts = []
    for concept, *sides in reading:
        pair = [tuple(sorted(numbers[at] for at in side)) for side in sides]
        facts.append((concept, *(sorted(pair) if concept in symmetric else pair)))
    return tuple(sorted(facts))
