"""Two causal models of captions: token by token, and a sentence in one step.

`tutorials_lib.captions` is where to import all of it from.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tutorials_lib._caption_latents import (
    CaptionLatents,
    LatentLaw,
    SentenceLatents,
    chance_from,
)
from tutorials_lib._scene_grammar import LEXICON, Claim, Wording, vocabulary, write_caption
from tutorials_lib._scene_latents import Scenes
from tutorials_lib._token_law import EOS, Law, concepts_to_say, token_law
from tutorials_lib._validation import as_generator

__all__ = ["SentenceSCM", "TokenSCM"]

LENGTH = 32  # positions at which one can intervene; captions have at most 17 words
_VOCABULARY = frozenset(vocabulary())


class TokenSCM(LatentLaw):
    """A caption is a string of tokens w_1, ..., w_K, EOS, and each token is a variable.

    Its law depends on the latents and on the prefix w_1, ..., w_{k−1}:

    - the template, the order of the mentions and of their words come from the latents;
    - which word stands for a concept is decided where it is first said, uniformly, and repeated
      where the concept is said again;
    - "a" or "an" is said before the noun is, and the noun then agrees with it: after "an" follows
      "object" or "item", after "a" "thing";
    - a phrase that has begun is finished: "to" is followed by "the left of".

    Interventions set a token whatever the law says, and what follows is generated from the prefix
    as it then is. A token of the same type takes the place of the one that was meant ("blue" for
    "red"); an adjective that was passed over is said behind the noun, "that is red", if the
    grammar allows; a beginning of another phrase is finished as that phrase. Where no caption
    begins with the prefix, or nothing is left to say, the caption ends.

    Parameters
    ----------
    reverse, apart, templates
        The law of the latents given the claim, as in `LatentLaw`.

    Notes
    -----
    Each token is a function of the latents, the prefix and its own noise u_k, uniform on [0, 1):
    the first token, in the order of `next_token`, at which the sum of probabilities exceeds u_k.
    This fixes what would have been said; the law of captions alone does not.
    """

    def next_token(self, latents: CaptionLatents, prefix: Sequence[str] | str = ()) -> Law:
        """Return the law of the next token, given the latents and the tokens before it.

        Parameters
        ----------
        latents
            The latents.
        prefix
            The tokens so far, as a list or as text; any words of the vocabulary, in any order.

        Returns
        -------
        dict of str to float
            Tokens of positive probability, which sums to 1.

        Raises
        ------
        ValueError
            If a token is not in the vocabulary, or the prefix holds EOS.
        """
        words = prefix.split() if isinstance(prefix, str) else list(prefix)
        for word in words:
            if word not in _VOCABULARY:
                raise ValueError(f"prefix must hold words of scenes.vocabulary(), got {word!r}")
        return token_law(latents, words)

    def noise(self, *, seed: int | torch.Generator) -> tuple[float, ...]:
        """Draw the exogenous noise u_1, u_2, ... of one caption."""
        draws = torch.rand(LENGTH + 1, generator=as_generator(seed), dtype=torch.float64)
        return tuple(draws.tolist())

    def generate(
        self,
        latents: CaptionLatents,
        noise: Sequence[float],
        *,
        do: Mapping[int, str] | None = None,
    ) -> str:
        """Generate the caption of given latents and noise; deterministic.

        Parameters
        ----------
        latents
            The latents.
        noise
            u_1, u_2, ..., as many as `noise` draws.
        do
            Interventions: from positions, counted from 1, to tokens, EOS among them. EOS has the
            position behind the last word; one behind that has no effect.

        Returns
        -------
        str
            The caption, without EOS.

        Raises
        ------
        ValueError
            If there is no such position or token, or the noise is too short.
        """
        do = _check_do(do)
        if len(noise) <= LENGTH:
            raise ValueError(f"noise needs {LENGTH + 1} numbers, got {len(noise)}; see `noise`")
        words: list[str] = []
        while True:
            place = len(words) + 1
            if place in do:
                token = do[place]
            else:
                token = _at(token_law(latents, words), noise[place - 1])
            if token == EOS:
                return " ".join(words)
            words.append(token)

    def sample(
        self,
        latents: CaptionLatents,
        *,
        seed: int | torch.Generator,
        do: Mapping[int, str] | None = None,
    ) -> str:
        """Draw a caption given the latents, as `generate` with fresh noise."""
        return self.generate(latents, self.noise(seed=seed), do=do)

    def counterfactual(
        self,
        caption: str,
        latents: CaptionLatents,
        *,
        do: Mapping[int, str] | None = None,
        instead: CaptionLatents | None = None,
        seed: int | torch.Generator,
    ) -> str:
        """Return what the caption would have been under other tokens or other latents.

        The noise is drawn from its law given the caption and the latents, and used again. Without
        an intervention the caption comes out as it is.

        Parameters
        ----------
        caption
            What was said.
        latents
            The latents it was said of.
        do
            Interventions on tokens, as in `generate`.
        instead
            Other latents; None for the same.
        seed
            A seed or a generator; settles what the caption leaves open of the noise.

        Raises
        ------
        ValueError
            If the caption has probability 0 under the latents, or an intervention is none.
        """
        noise = list(self.noise(seed=seed))
        words = caption.split()
        for place, token in enumerate([*words, EOS]):
            law = token_law(latents, words[:place])
            if token not in law:
                said = " ".join(words[:place])
                raise ValueError(
                    f"the caption {caption!r} has probability 0 under these latents: after "
                    f"{said!r} can come {', '.join(map(repr, law))}, not {token!r}"
                )
            tokens = list(law)
            below = sum(law[other] for other in tokens[: tokens.index(token)])
            noise[place] = below + noise[place] * law[token]
        return self.generate(latents if instead is None else instead, noise, do=do)

    def log_prob(
        self, caption: str, latents: CaptionLatents, *, do: Mapping[int, str] | None = None
    ) -> float:
        """Return the logarithm, in nats, of the probability of a caption given the latents.

        Parameters
        ----------
        caption
            A caption; −inf if it is not possible.
        latents
            The latents.
        do
            Interventions on tokens, as in `generate`.
        """
        do = _check_do(do)
        total, words = 0.0, caption.split()
        for place, token in enumerate([*words, EOS]):
            law = {do[place + 1]: 1.0} if place + 1 in do else token_law(latents, words[:place])
            if token not in law:
                return -math.inf
            total += math.log(law[token])
        return total

    def law(self, claim: Claim, *, do: Mapping[int, str] | None = None) -> Law:
        """Return the law of captions given z_inv, exactly, by following every token.

        Parameters
        ----------
        claim
            The meaning.
        do
            Interventions on tokens, as in `generate`.

        Returns
        -------
        dict of str to float
            Captions of positive probability.
        """
        do = _check_do(do)
        found: Law = {}
        for latents, weight in self.arrangements(claim).items():
            open_ends = [((), weight)]
            while open_ends:
                words, p = open_ends.pop()
                if len(words) + 1 in do:
                    law = {do[len(words) + 1]: 1.0}
                else:
                    law = token_law(latents, words)
                for token, chance in law.items():
                    if token == EOS:
                        text = " ".join(words)
                        found[text] = found.get(text, 0.0) + p * chance
                    else:
                        open_ends.append(((*words, token), p * chance))
        return found


class SentenceSCM(LatentLaw):
    """A caption is one variable, g(z_inv, z_dp, z_pr); tokens are none.

    The words are latents too, part of z_dp. Given z_inv, captions have the same law as in
    `TokenSCM`, so no data tell the two models apart. They differ in their interventions: here one
    can set latents only, and the whole caption follows.

    Parameters
    ----------
    reverse, apart, templates
        The law of the latents given the claim, as in `LatentLaw`; words are uniform.
    """

    def sample_latents(
        self, claims: Sequence[Claim] | Scenes, *, seed: int | torch.Generator, **mention: float
    ) -> list[SentenceLatents]:
        """Draw latents for each of N claims or scenes, as `TokenSCM.sample_latents`, and words."""
        generator = as_generator(seed)
        drawn = super().sample_latents(claims, seed=generator, **mention)
        chance = chance_from(generator)
        counts = [len(choices) for choices in LEXICON.values()]
        return [_with_words(latents, tuple(map(chance.randrange, counts))) for latents in drawn]

    def generate(self, latents: SentenceLatents, *, do: Mapping[str, Any] | None = None) -> str:
        """Generate the caption of given latents; deterministic.

        Parameters
        ----------
        latents
            The latents.
        do
            Interventions: from names of latents (``"claim"``, ``"reversed"``, ``"apart"``,
            ``"template"``, ``"words"``) to values. The other latents stay.

        Raises
        ------
        ValueError
            If a name is not that of a latent; a position of a token is none.
        """
        if do:
            latents = dataclasses.replace(latents, **_check_names(do))
        wording = Wording(latents.template, latents.words, latents.apart, latents.reversed)
        return write_caption(latents.claim, wording)

    def log_prob(self, caption: str, latents: SentenceLatents) -> float:
        """Return 0 for the caption that the latents fix, −inf for any other."""
        return 0.0 if caption == self.generate(latents) else -math.inf

    def law(self, claim: Claim, *, do: Mapping[str, Any] | None = None) -> Law:
        """Return the law of captions given z_inv, exactly, by writing every wording.

        Parameters
        ----------
        claim
            The meaning.
        do
            Interventions on latents, as in `generate`; but z_dp follows a claim that is set.

        Returns
        -------
        dict of str to float
            Captions of positive probability.
        """
        do = _check_names(do or {})
        claim = do.get("claim", claim)  # order and place of the adjectives depend on it
        used = _concepts(claim)
        counts = [len(choices) if concept in used else 1 for concept, choices in LEXICON.items()]
        every = list(itertools.product(*map(range, counts)))
        found: Law = {}
        for latents, weight in self.arrangements(claim).items():
            for words in every:
                text = self.generate(_with_words(latents, words), do=do)
                found[text] = found.get(text, 0.0) + weight / len(every)
        return found


def _with_words(latents: CaptionLatents, words: tuple[int, ...]) -> SentenceLatents:
    return SentenceLatents(latents.claim, latents.reversed, latents.apart, latents.template, words)


def _concepts(claim: Claim) -> set[str]:
    """Return every concept that a caption of a claim can need a word for, in either order."""
    links = {claim.relation or "and", claim.turned().relation or "and"}
    return links.union(
        *(concepts_to_say(mention).values() for mention in (claim.first, claim.second) if mention)
    )


def _check_names(do: Mapping[str, Any]) -> Mapping[str, Any]:
    names = [field.name for field in dataclasses.fields(SentenceLatents)]
    for name in do:
        if name not in names:
            raise ValueError(
                f"do must name latents, {', '.join(names)}; {name!r} is none. In this model tokens "
                "are no variables; TokenSCM has them"
            )
    return do


def _check_do(do: Mapping[int, str] | None) -> Mapping[int, str]:
    for place, token in (do or {}).items():
        if not (isinstance(place, int) and 1 <= place <= LENGTH):
            raise ValueError(f"positions in do are integers, counted from 1, got {place!r}")
        if token not in _VOCABULARY and token != EOS:
            raise ValueError(f"do must set words of scenes.vocabulary() or EOS, got {token!r}")
    return do or {}


def _at(law: Law, noise: float) -> str:
    """Return the first token at which the sum of probabilities exceeds the noise."""
    total = 0.0
    for token, p in law.items():
        total += p
        if noise < total:
            return token
    return token  # the sum is 1 up to rounding
