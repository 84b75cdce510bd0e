"""The latents of a caption: what it means, how that is arranged, and what is wording only.

`tutorials_lib.captions` is where to import all of it from.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from tutorials_lib._scene_captions import claims_of
from tutorials_lib._scene_grammar import LEXICON, TEMPLATES, Claim, Mention
from tutorials_lib._scene_latents import Scenes
from tutorials_lib._validation import as_generator, check_integer, check_positive

__all__ = ["CaptionLatents", "LatentLaw", "SentenceLatents", "sample_claims"]


@dataclass(frozen=True)
class CaptionLatents:
    """What a caption is generated from, apart from the choice of words.

    Attributes
    ----------
    claim
        z_inv, shared with the image: the meaning. Every caption determines it up to
        ``scenes.same_meaning``.
    reversed
        Part of z_dp, which depends on the claim: whether the second mention comes first, under the
        turned relation. There is an order only where there are two mentions.
    apart
        Part of z_dp: for the mention that is written first and for the other, whether its
        adjective stands behind the noun. This is possible only for one adjective.
    template
        z_pr, private to the text: an index into the templates of captions.
    """

    claim: Claim
    reversed: bool = False
    apart: tuple[bool, bool] = (False, False)
    template: int = 0

    def mentions(self) -> tuple[tuple[Mention, ...], str | None]:
        """Return the mentions in the order in which they are written, and the link concept."""
        claim = self.claim.turned() if self.reversed else self.claim
        if claim.second is None:
            return (claim.first,), None
        return (claim.first, claim.second), claim.relation or "and"


@dataclass(frozen=True)
class SentenceLatents(CaptionLatents):
    """Latents that fix the whole caption.

    Attributes
    ----------
    words
        Part of z_dp, beside those of `CaptionLatents`: for each concept which of its words is
        used, as in ``scenes.Wording``.
    """

    words: tuple[int, ...] = (0,) * len(LEXICON)


class LatentLaw:
    """The law of `CaptionLatents` given the claim, which both models of captions share.

    With the defaults it is the law of ``scenes.sample_wordings``.

    Parameters
    ----------
    reverse
        Probability that the second mention comes first, or a function from a claim to it.
    apart
        Probability that a single adjective stands behind its noun.
    templates
        Probability of each template; None for equal ones.

    Raises
    ------
    TypeError, ValueError
        If a probability is none, or the templates' do not sum to 1.
    """

    def __init__(
        self,
        *,
        reverse: float | Callable[[Claim], float] = 0.5,
        apart: float = 0.2,
        templates: Sequence[float] | None = None,
    ) -> None:
        self.reverse = reverse if callable(reverse) else _probability("reverse", reverse)
        self.apart = _probability("apart", apart)
        if templates is None:
            templates = [1 / len(TEMPLATES)] * len(TEMPLATES)
        self.templates = tuple(_probability("templates", weight) for weight in templates)
        if len(self.templates) != len(TEMPLATES) or abs(sum(self.templates) - 1) > 1e-9:
            raise ValueError(
                f"templates needs {len(TEMPLATES)} probabilities that sum to 1, got "
                f"{len(self.templates)} with the sum {sum(self.templates):.6g}"
            )

    def sample_latents(
        self, claims: Sequence[Claim] | Scenes, *, seed: int | torch.Generator, **mention: float
    ) -> list[CaptionLatents]:
        """Draw latents for each of N claims, or for a true claim of each of N scenes.

        Parameters
        ----------
        claims
            Claims, such as those of `sample_claims`, or scenes.
        seed
            A seed or a generator.
        **mention
            With scenes, what to mention how often, as in ``scenes.claims_of``.

        Raises
        ------
        TypeError, ValueError
            As ``scenes.claims_of``; if ``mention`` comes with claims.
        """
        generator = as_generator(seed)
        if isinstance(claims, Scenes):
            claims = claims_of(claims, seed=generator, **mention)
        elif mention:
            raise ValueError(f"{', '.join(mention)} can be given with scenes only, not with claims")
        chance = chance_from(generator)
        return [self._draw(claim, chance) for claim in claims]

    def arrangements(self, claim: Claim) -> dict[CaptionLatents, float]:
        """Return all z_dp and z_pr that are possible with a claim, with their probabilities."""
        turn = self._reverse(claim)
        found: dict[CaptionLatents, float] = {}
        for reversed_, p_reversed in ((False, 1 - turn), (True, turn)):
            mentions, _ = CaptionLatents(claim, reversed_).mentions()
            flags = [self._apart(mention) for mention in (*mentions, None)[:2]]
            for apart in itertools.product((False, True), repeat=2):
                p_apart = 1.0
                for flag, chance in zip(apart, flags, strict=True):
                    p_apart *= chance if flag else 1 - chance
                for template, p_template in enumerate(self.templates):
                    p = p_reversed * p_apart * p_template
                    if p > 0:
                        found[CaptionLatents(claim, reversed_, apart, template)] = p
        return found

    def _draw(self, claim: Claim, chance: random.Random) -> CaptionLatents:
        reversed_ = chance.random() < self._reverse(claim)
        mentions, _ = CaptionLatents(claim, reversed_).mentions()
        flags = [chance.random() < self._apart(mention) for mention in (*mentions, None)[:2]]
        template = chance.choices(range(len(TEMPLATES)), self.templates)[0]
        return CaptionLatents(claim, reversed_, (flags[0], flags[1]), template)

    def _reverse(self, claim: Claim) -> float:
        if claim.second is None:
            return 0.0
        chance = self.reverse
        return _probability("reverse", chance(claim)) if callable(chance) else chance

    def _apart(self, mention: Mention | None) -> float:
        single = mention is not None and (mention.size is None) != (mention.colour is None)
        return self.apart if single else 0.0


def sample_claims(
    law: Mapping[Claim, float], n: int, *, seed: int | torch.Generator
) -> list[Claim]:
    """Draw claims, the z_inv of captions, from a law.

    Parameters
    ----------
    law
        From claims to probabilities, or to weights in proportion to them.
    n
        How many.
    seed
        A seed or a generator.

    Returns
    -------
    list of Claim
        N claims.

    Raises
    ------
    TypeError, ValueError
        If a weight is negative or all are zero.
    """
    weights = [check_positive("a weight of law", p, allow_zero=True) for p in law.values()]
    if sum(weights) <= 0:
        raise ValueError("law must give some claim a positive weight")
    return chance_from(seed).choices(list(law), weights, k=check_integer("n", n, 0))


def chance_from(seed: int | torch.Generator) -> random.Random:
    """Make a generator for single draws, which are slow with tensors."""
    return random.Random(int(torch.randint(2**62, (), generator=as_generator(seed))))


def _probability(name: str, value: float) -> float:
    number = check_positive(name, value, allow_zero=True)
    if number > 1:
        raise ValueError(f"{name} is a probability, from 0 to 1, got {value!r}")
    return number
