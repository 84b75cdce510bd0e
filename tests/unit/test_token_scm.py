"""Two models of captions: one law of captions, exact; different interventions."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from tutorials_lib import captions, scenes
from tutorials_lib.captions import EOS, CaptionLatents, SentenceSCM, TokenSCM

CLAIMS = [
    scenes.parse_caption(text)
    for text in (
        "a cube",
        "an object",
        "a red object",
        "a small purple cylinder",
        "a purple cube to the left of a purple cube",
        "an object and an object",
        "a small object behind a blue object",
        "a large grey sphere to the right of an object",
    )
]
LAWS = [
    {},
    {
        "reverse": lambda claim: 0.9 if claim.second.colour is None else 0.2,
        "apart": 0.7,
        "templates": [0.5, 0.25, 0.25, *[0.0] * 7],
    },
    {"reverse": 0.0, "apart": 1.0, "templates": [0.0] * 9 + [1.0]},
]


def latents_of(text: str, **others) -> CaptionLatents:
    return CaptionLatents(scenes.parse_caption(text), **others)


# --- One law


@pytest.mark.parametrize("claim", CLAIMS, ids=scenes.write_caption)
@pytest.mark.parametrize("law", LAWS, ids=("default", "uneven", "fixed"))
def test_both_models_have_the_same_law_of_captions(claim, law):
    """Token by token on the one side, `write_caption` over all wordings on the other."""
    token, sentence = TokenSCM(**law).law(claim), SentenceSCM(**law).law(claim)
    assert math.fsum(token.values()) == pytest.approx(1, abs=1e-12)
    assert token.keys() == sentence.keys()
    for text, p in sentence.items():
        assert token[text] == pytest.approx(p, abs=1e-12)
        assert scenes.same_meaning(text, claim)  # the caption determines z_inv


def test_the_law_is_the_sum_of_log_probs():
    """Over latents with their probabilities, for every caption of three claims."""
    model = TokenSCM()
    for claim in CLAIMS[1:6:2]:
        law = model.law(claim)
        total = 0.0
        for text, p in law.items():
            by_latents = math.fsum(
                weight * math.exp(model.log_prob(text, latents))
                for latents, weight in model.arrangements(claim).items()
            )
            assert by_latents == pytest.approx(p, abs=1e-12)
            total += by_latents
        assert total == pytest.approx(1, abs=1e-12)


def test_the_default_law_is_that_of_the_captions_of_scenes():
    """Against 20,000 wordings; by Hoeffding each frequency is off by more than 0.02 with
    probability below 2·exp(−16), and there are 60 of them."""
    claim = scenes.parse_caption("an object and an object")
    law = TokenSCM().law(claim)
    n = 20_000
    written = [
        scenes.write_caption(claim, wording) for wording in scenes.sample_wordings(n, seed=0)
    ]
    assert len(law) == len(set(written)) == 60
    for text, p in law.items():
        assert abs(written.count(text) / n - p) < 0.02


def test_the_next_token_has_a_law_after_any_words():
    """Sums to 1 after prefixes of captions and after 3,000 strings of random words."""
    model, words = TokenSCM(), scenes.vocabulary()
    generator = torch.Generator().manual_seed(0)
    some = [
        latents for claim in CLAIMS for latents in model.sample_latents([claim] * 5, seed=generator)
    ]
    for index in range(3000):
        length = int(torch.randint(8, (), generator=generator))
        picks = torch.randint(len(words), (length,), generator=generator).tolist()
        prefix = [words[i] for i in picks]
        if index % 2:
            said = model.sample(some[index % len(some)], seed=index).split()
            prefix = said[: 1 + index % len(said)] + prefix[:1]
        law = model.next_token(some[index % len(some)], prefix)
        assert math.fsum(law.values()) == pytest.approx(1, abs=1e-12)
        assert min(law.values()) > 0
    law = model.next_token(latents_of("an object"), ["an"])
    assert law == model.next_token(latents_of("an object"), "an") == {"object": 0.5, "item": 0.5}


def test_latents_are_drawn_from_their_law():
    """30,000 draws; each of 80 frequencies is off by 0.015 with probability below 3e-6."""
    model, claim = TokenSCM(), scenes.parse_caption("a red cube behind a blue ball")
    law = model.arrangements(claim)
    assert math.fsum(law.values()) == pytest.approx(1, abs=1e-12)
    n = 30_000
    drawn = model.sample_latents([claim] * n, seed=0)
    counts = dict.fromkeys(law, 0)
    for latents in drawn:
        counts[latents] += 1
    assert len(law) == 10 * 2 * 4
    assert max(abs(counts[latents] / n - p) for latents, p in law.items()) < 0.015


def test_latents_of_scenes_give_captions_true_of_them():
    batch = scenes.sample_scenes(300, singles=0.3, seed=0)
    for model in (TokenSCM(), SentenceSCM()):
        drawn = model.sample_latents(batch, seed=1, mention_size=0.5)
        if isinstance(model, TokenSCM):
            texts = [model.sample(latents, seed=row) for row, latents in enumerate(drawn)]
            assert len({row.template for row in drawn}) == 10
        else:
            texts = [model.generate(latents) for latents in drawn]
        assert captions.describes_each(texts, batch).all()
        for text, latents in zip(texts, drawn, strict=True):
            assert scenes.same_meaning(text, latents.claim)
            assert model.log_prob(text, latents) > -math.inf


def test_claims_are_drawn_from_the_law_that_is_given():
    """A share of 3/4 in 10,000 is off by 0.02 with probability below 2·exp(−8)."""
    drawn = captions.sample_claims({CLAIMS[0]: 3.0, CLAIMS[1]: 1.0, CLAIMS[2]: 0.0}, 10_000, seed=0)
    assert abs(drawn.count(CLAIMS[0]) / 10_000 - 0.75) < 0.02
    assert CLAIMS[2] not in drawn
    with pytest.raises(ValueError, match="positive weight"):
        captions.sample_claims({CLAIMS[0]: 0.0}, 1, seed=0)


def test_samples_follow_the_law_given_the_latents():
    """4,000 captions; frequencies off by 0.04 with probability below 2·exp(−12.8) each."""
    model, latents = TokenSCM(), latents_of("an object and an object", template=1)
    n = 4000
    drawn = [model.sample(latents, seed=seed) for seed in range(n)]
    for text in set(drawn):
        assert abs(drawn.count(text) / n - math.exp(model.log_prob(text, latents))) < 0.04
    total = math.fsum(math.exp(model.log_prob(text, latents)) for text in set(drawn))
    assert total == pytest.approx(1, abs=1e-12)


# --- Interventions


def test_a_changed_prefix_alters_what_follows():
    model = TokenSCM()
    lone = latents_of("an object")
    assert {model.sample(lone, seed=seed, do={1: "a"}) for seed in range(40)} == {"a thing"}
    assert {model.sample(lone, seed=seed, do={1: "an"}) for seed in range(40)} == {
        "an object",
        "an item",
    }
    twice = latents_of("a purple cube and a purple ball")
    for seed in range(20):
        words = model.sample(twice, seed=seed, do={2: "violet"}).split()
        assert words.count("violet") == 2 and "purple" not in words
    behind = latents_of("a cube behind a ball", template=9)
    noise = model.noise(seed=0)
    shape, ball = model.generate(behind, noise).split()[1], "a ball|a sphere|a globe".split("|")
    for token, rest in (("in", "front of"), ("along", "with"), ("left", "of"), ("on", "the floor")):
        text = model.generate(behind, noise, do={3: token})
        assert text.startswith(f"a {shape} {token} {rest}")
        assert token == "on" or any(f"{rest} {b} on the floor" in text for b in ball)


def test_an_adjective_that_was_passed_over_is_said_behind_the_noun():
    model, latents = TokenSCM(), latents_of("a red cube")
    assert model.sample(latents, seed=0, do={2: "box"}) == "a box that is red"
    assert model.sample(latents, seed=0, do={2: "blue", 3: "box"}) == "a blue box"
    latents = latents_of("a small red cube")
    text = model.sample(latents, seed=0, do={2: "red", 3: "cube"})
    assert text in ("a red cube that is small", "a red cube that is little")


def test_a_prefix_that_no_caption_has_ends_the_caption():
    model, latents = TokenSCM(), latents_of("a red cube", template=1)
    assert model.sample(latents, seed=0, do={2: "behind"}) == "a behind"
    assert model.sample(latents, seed=0, do={1: EOS}) == ""
    assert model.sample(latents, seed=0, do={6: EOS}) == "a photo of a red"
    assert (
        model.sample(latents, seed=0, do={1: "there", 4: "red", 5: "box"}) == "there is a red box"
    )
    every = dict.fromkeys(range(1, 33), "a")
    assert model.sample(latents, seed=0, do=every) == " ".join(["a"] * 32)


def test_one_law_of_captions_but_two_laws_under_interventions():
    """To see that w_1 = "a" tells of the template, to set it does not; a sentence has no w_1."""
    claim = scenes.parse_caption("an object on the floor")
    token, sentence = TokenSCM(), SentenceSCM()
    seen = {t: p for t, p in token.law(claim).items() if t.startswith("there")}
    seen = {text: p / math.fsum(seen.values()) for text, p in seen.items()}
    done = token.law(claim, do={1: "there"})
    assert math.fsum(done.values()) == pytest.approx(1, abs=1e-12)
    assert done == pytest.approx(seen)  # here the prefix tells all that is needed
    seen = {t: p for t, p in token.law(claim).items() if t.startswith("a ")}
    seen = {text: p / math.fsum(seen.values()) for text, p in seen.items()}
    done = token.law(claim, do={1: "a"})
    # Seen: 1/10 · 1/3 of the captions, among 4/10 + 2/10 · 1/3 that begin so. Done: in the five
    # templates that begin otherwise the object is begun, and in the bare one.
    assert seen["a thing"] == pytest.approx(1 / 14)
    assert done["a thing"] == pytest.approx(1 / 2)
    for do in ({1: "there"}, {1: "a"}):
        with pytest.raises(ValueError, match="tokens are no variables"):
            sentence.law(claim, do=do)
    # The nearest thing the sentence model has is another word everywhere.
    both = scenes.parse_caption("an object and an object")
    words = [0] * len(captions.SentenceLatents(both).words)
    done = sentence.law(both, do={"template": 0, "words": tuple(words)})
    assert set(done) == {"an object and an object"}


def test_interventions_on_latents_of_the_sentence_model():
    model = SentenceSCM()
    claim, other = scenes.parse_caption("a red cube"), scenes.parse_caption("a cube behind a ball")
    assert model.law(claim, do={"claim": other}) == model.law(other)
    latents = model.sample_latents([claim], seed=0)[0]
    assert model.generate(latents, do={"template": 3}).startswith("an image of a")
    assert model.log_prob(model.generate(latents), latents) == 0
    assert model.log_prob("a blue cube", latents) == -math.inf
    assert model.generate(latents) == model.generate(latents, do={})


def test_log_prob_under_an_intervention_is_the_law_under_it():
    model = TokenSCM()
    latents = latents_of("an object and a purple cube", template=1)
    for do in ({5: "thing"}, {4: "a"}, {7: "an"}, {2: "picture", 4: "an"}, {5: EOS}):
        drawn = {model.sample(latents, seed=seed, do=do) for seed in range(200)}
        total = math.fsum(math.exp(model.log_prob(text, latents, do=do)) for text in drawn)
        assert total == pytest.approx(1, abs=1e-12)


# --- Counterfactuals


def test_a_counterfactual_without_intervention_is_what_was_said():
    model = TokenSCM()
    for claim in CLAIMS:
        for row, latents in enumerate(model.sample_latents([claim] * 40, seed=0)):
            said = model.sample(latents, seed=row)
            assert model.counterfactual(said, latents, seed=row + 1) == said
            words = said.split()
            same = {place + 1: word for place, word in enumerate(words)}
            assert model.counterfactual(said, latents, do=same, seed=row + 1) == said


def test_counterfactuals_keep_the_noise():
    """What the intervention does not reach stays as it was said, whatever the seed."""
    model = TokenSCM()
    latents = latents_of("a red sphere to the left of a purple cube")
    for seed in range(30):
        said = model.sample(latents, seed=seed)
        instead = model.counterfactual(said, latents, do={2: "blue"}, seed=seed + 100)
        assert instead == said.replace("red", "blue")
    green = dataclasses.replace(
        latents, claim=scenes.replace_concept(latents.claim, 0, "colour", 1)
    )
    said = model.sample(latents, seed=0)
    instead = model.counterfactual(said, latents, instead=green, seed=5)
    assert instead == said.replace("red", "green")


def test_counterfactuals_average_to_the_law_under_the_intervention():
    """Noise given the caption, averaged over captions, is noise; 4,000 draws, 0.04 as above."""
    model, latents = TokenSCM(), latents_of("an object and an object", template=9)
    do, n = {1: "a"}, 4000
    drawn = []
    for seed in range(n):
        said = model.sample(latents, seed=seed)
        drawn.append(model.counterfactual(said, latents, do=do, seed=seed + n))
    for text in set(drawn):
        p = math.exp(model.log_prob(text, latents, do=do))
        assert abs(drawn.count(text) / n - p) < 0.04


def test_noise_settles_the_caption():
    model = TokenSCM()
    latents = latents_of("a small purple cube left of a grey object", template=2)
    noise = model.noise(seed=7)
    assert model.generate(latents, noise) == model.generate(latents, noise)
    assert model.generate(latents, noise) == model.sample(latents, seed=7)
    lowest = model.generate(latents, [0.0] * len(noise))
    assert lowest == "a picture of a small purple cube to the left of a grey object"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, z: m.sample(z, seed=0, do={0: "a"}), "counted from 1"),
        (lambda m, z: m.sample(z, seed=0, do={"template": 1}), "counted from 1"),
        (lambda m, z: m.sample(z, seed=0, do={1: "dog"}), "must set words"),
        (lambda m, z: m.next_token(z, ["dog"]), "got 'dog'"),
        (lambda m, z: m.next_token(z, [EOS]), "got '<eos>'"),
        (lambda m, z: m.generate(z, [0.5]), "noise needs 33"),
        (lambda m, z: m.counterfactual("a ball", z, seed=0), "probability 0 .* not 'ball'"),
        (lambda m, z: m.sample_latents([z.claim], seed=0, mention_size=1.0), "scenes only"),
        (lambda m, z: TokenSCM(apart=1.5), "apart is a probability"),
        (lambda m, z: TokenSCM(templates=[0.5, 0.5]), "10 probabilities"),
        (lambda m, z: TokenSCM(reverse=lambda c: 2.0).arrangements(CLAIMS[4]), "reverse is a"),
    ],
)
def test_what_is_not_possible_raises(call, message):
    with pytest.raises(ValueError, match=message):
        call(TokenSCM(), latents_of("a cube"))
