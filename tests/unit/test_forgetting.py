"""Maps that forget: what they merge and what they keep; encoders that agree where it counts."""

from __future__ import annotations

import pytest
import torch

from tutorials_lib import captions, scenes


@pytest.fixture(scope="module")
def texts() -> list[str]:
    batch = scenes.sample_scenes(1500, singles=0.3, seed=0)
    return scenes.caption_scenes(batch, seed=1, mention_size=0.4, mention_shape=0.8)


def test_a_bag_of_words_is_blind_to_swaps_and_to_nothing_that_changes_a_word(texts):
    for caption in texts[:400]:
        bag = captions.bag_of_words(caption)
        for edit in captions.edits(caption):
            assert (captions.bag_of_words(edit.after) == bag) == (edit.operator == "swap"), edit
    assert captions.bag_of_words("An elephant, a dog.") == ("a", "a", "dog", "elephant")


def test_the_typed_multiset_is_blind_to_wording_and_swaps_only(texts):
    for row, caption in enumerate(texts[:400]):
        claim, forget = scenes.parse_caption(caption), captions.drop_order_within_type
        wording = scenes.sample_wordings(1, seed=row)[0]
        if wording.reversed and claim.relation is not None:
            claim = claim.turned()  # so that it is written as it stood
        assert forget(scenes.write_caption(claim, wording)) == forget(caption)
        for edit in captions.edits(caption):
            assert (forget(edit.after) == forget(caption)) == (edit.operator == "swap"), edit
    assert dict(captions.drop_order_within_type("a small red thing behind a cube")) == {
        "colour": ("red",),
        "shape": ("cube", "object"),
        "size": ("small",),
        "link": ("behind",),
    }


def test_dropping_adjectives_keeps_shapes_relation_and_words(texts):
    drop = captions.drop_adjectives
    assert drop("A large red object behind a ball that is blue.") == "An object behind a ball."
    for caption in texts:
        claim, less = scenes.parse_caption(caption), scenes.parse_caption(drop(caption))
        assert less.first == scenes.Mention(claim.first.shape)
        assert less.relation == claim.relation
        assert drop(drop(caption)) == drop(caption)
        assert set(drop(caption).split()) <= {*caption.split(), "a", "an"}


def test_merging_synonyms_keeps_the_meaning_and_all_else(texts):
    merge = captions.merge_synonyms
    caption = "A photo of a thing that is violet along with a big block."
    assert merge(caption) == "A photo of an object that is purple and a large cube."
    for text in texts:
        assert scenes.parse_caption(merge(text)) == scenes.parse_caption(text)
        assert merge(merge(text)) == merge(text)
    for row, claim in enumerate(map(scenes.parse_caption, texts[:200])):
        one, two = scenes.sample_wordings(2, seed=row)
        other = scenes.Wording(one.template, two.words, one.apart, one.reversed)
        assert merge(scenes.write_caption(claim, one)) == merge(scenes.write_caption(claim, other))


def test_what_is_blind_to_an_operator_is_blind_to_its_orbit(texts):
    """ρ∘Op = ρ gives ρ∘Opⁿ = ρ, for both maps that forget the order."""
    for caption in texts[:200]:
        orbit = list(captions.orbit(caption))
        for forget in (captions.bag_of_words, captions.drop_order_within_type):
            assert len({forget(text) for text in orbit}) == 1


# --- Pseudo-optimal encoders


class Table:
    """An encoder with one random unit vector for each meaning."""

    def __init__(self) -> None:
        self.rows: dict[str, torch.Tensor] = {}

    def __call__(self, texts: list[str]) -> torch.Tensor:
        for text in texts:
            if (meaning := scenes.canonical(text)) not in self.rows:
                seed = torch.Generator().manual_seed(len(self.rows))
                vector = torch.randn(8, generator=seed)
                self.rows[meaning] = vector / vector.norm()
        return torch.stack([self.rows[scenes.canonical(text)] for text in texts])


def restricted() -> tuple[list[str], list[str]]:
    """Captions of two objects in one binding only, and their colour swaps."""
    support, negatives = [], []
    for i, one in enumerate(scenes.COLOURS):
        for two in scenes.COLOURS[i + 1 :]:
            support.append(f"a {one} cube and a {two} sphere")
            negatives.append(f"a {two} cube and a {one} sphere")
    return support, negatives


@pytest.mark.parametrize("forget", [captions.bag_of_words, captions.drop_order_within_type])
def test_a_pseudo_optimal_encoder_is_equal_on_the_support_and_blind_off_it(forget):
    """So every loss on the support is equal, and SWAP is a tie for whatever image."""
    support, negatives = restricted()
    encoder = Table()
    blind = captions.pseudo_optimal(encoder, forget, support)
    assert torch.equal(blind(support), encoder(support))
    assert torch.equal(blind(negatives), encoder(support))
    assert not torch.isclose(encoder(negatives), encoder(support)).all(1).any()
    assert [blind.representative(text) for text in negatives] == support
    assert all(
        captions.swap_concepts(t).after == n for t, n in zip(support, negatives, strict=True)
    )
    images = torch.randn(len(support), 8, generator=torch.Generator().manual_seed(0))
    right = (images * blind(support)).sum(1)
    wrong = (images * blind(negatives)).sum(1)
    assert torch.equal(right, wrong)


def test_with_a_key_every_wording_of_the_support_is_on_it():
    support, _ = restricted()
    encoder = Table()
    blind = captions.pseudo_optimal(
        encoder, captions.drop_order_within_type, support, key=scenes.canonical
    )
    other = "There is a green ball along with a red block."
    assert blind.representative(other) == other
    swapped = "There is a red ball along with a green block."
    assert blind.representative(swapped) == "a red cube and a green sphere"


def test_on_full_support_nothing_is_forgotten():
    support, negatives = restricted()
    encoder = Table()
    whole = captions.pseudo_optimal(encoder, captions.bag_of_words, support + negatives)
    assert torch.equal(whole(negatives), encoder(negatives))


def test_a_text_like_none_of_the_support_raises_or_is_kept():
    support, _ = restricted()
    encoder = Table()
    blind = captions.pseudo_optimal(encoder, captions.bag_of_words, support)
    with pytest.raises(ValueError, match="no caption of the support agrees with 'a red cube'"):
        blind(["a red cube"])
    kept = captions.pseudo_optimal(encoder, captions.bag_of_words, support, off_class="keep")
    assert torch.equal(kept(["a red cube"]), encoder(["a red cube"]))
    with pytest.raises(ValueError, match="off_class must be"):
        captions.pseudo_optimal(encoder, captions.bag_of_words, support, off_class="error")
    for call in (lambda: blind("a red cube"), lambda: captions.pseudo_optimal(encoder, len, "a")):
        with pytest.raises(TypeError, match="list of captions"):
            call()
