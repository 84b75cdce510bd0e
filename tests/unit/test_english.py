"""Plain English captions: what is read, what they mean, and edits that keep the language right."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from tutorials_lib._caption_edits import Edit, NoEdit
from tutorials_lib._english import parse_english
from tutorials_lib._english_edits import (
    add_english,
    concepts_english,
    english_edits,
    name_operator_english,
    replace_english,
    swap_english,
)
from tutorials_lib._english_meaning import readings, same_meaning_english
from tutorials_lib._english_places import ENGLISH_KINDS
from tutorials_lib._english_words import (
    ADJECTIVES,
    NOUN_FORMS,
    NOUNS,
    RELATION_WORDS,
    alternatives,
    indefinite_article,
)

SAME_FORM = ("sheep", "deer")
CAPTIONS = (
    "a dog",
    "A yellow and blue hydrant.",
    "Two sinks next to two mirrors.",
    "A red couch next to a brown chair in a living room.",
    "An orange and blue bus, a cat, and an orange are on a dining table.",
    "There are two dogs that are brown next to a unicorn",
    "there is a white sheep in a field",
    "The dog is brown and the cats are black.",
    "Two dogs are on a red sofa and an elephant is sitting next to a blue umbrella.",
    "A man wearing a red hat is holding an old umbrella near a stop sign.",
    "A photo of some scissors and food on a small wooden table",
    "a large, old, striped boat which is dirty is standing on grass",
    "Several people behind one bear to the left of a glass bowl",
    "The man and the woman are happy.",
)


def words(text: str) -> Counter[str]:
    """Count the words without articles and punctuation, "is" and "are" alike."""
    found = re.findall(r"[a-z]+", text.lower())
    return Counter("is" if w == "are" else w for w in found if w not in ("a", "an"))


def all_edits() -> list[Edit]:
    """Every edit of the captions; of the many nouns and objects every seventh."""
    kinds = tuple(kind for kind in ENGLISH_KINDS if kind != "noun")
    found = []
    for caption in CAPTIONS:
        found += english_edits(caption, operators=("swap", "replace"), kinds=kinds)
        found += english_edits(caption, operators=("swap",), kinds=("noun",))
        found += english_edits(caption, operators=("replace",), kinds=("noun",))[::7]
        found += english_edits(caption, operators=("add",))[::7]
    return found


@pytest.fixture(scope="module")
def edited() -> list[Edit]:
    return all_edits()


@pytest.mark.parametrize("caption", CAPTIONS)
def test_a_caption_is_written_again_as_it_was_read(caption):
    assert parse_english(caption).text() == caption
    assert parse_english(f"  {caption.replace(' ', '  ')} ").text() == caption


def test_every_word_of_the_lexicon_is_read():
    for form, nouns in NOUN_FORMS.items():
        for name, plural in nouns:
            tree = parse_english(f"two {form}" if plural or form in SAME_FORM else f"the {form}")
            assert tree.phrases[0].noun in {name for name, _ in nouns}
    for word in ADJECTIVES:
        text = f"{indefinite_article(word)} {word} dog"
        assert parse_english(text).phrases[0].adjectives.words == (word,)
    for relation in RELATION_WORDS:
        assert parse_english(f"a dog {relation} a cat").links[0].words == relation
    assert len({noun.concept for noun in NOUNS.values()}) >= 150


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a dog next to a dawg", "after 'a dog next to a' comes 'dawg', expected a noun"),
        ("a elephant", "write 'an' before it"),
        ("an unicorn", "write 'a' before it"),
        ("two dog", "'two' needs a plural"),
        ("a dogs", "'a' goes with one thing only"),
        ("a grass", "'a' goes with one thing only"),
        ("dog on a bench", "'dog' needs an article or a number"),
        ("the sheep are brown", "'the sheep' can be one or several"),
        ("a dog are brown", "expected 'is', which agrees with its subject"),
        ("A dog and a cat is on a sofa", "expected 'are', which agrees"),
        ("There is two dogs", "expected 'there are'"),
        ("the dog is brown is on a sofa", "'and' and another subject before a second verb"),
        ("a dog is", "it ends, expected adjectives"),
        ("a dog sitting", "it ends, expected a preposition"),
        ("a dog swims", "expected the end, 'and', a preposition"),
        ("", "at the beginning it ends"),
        ("a dog on a dog on a dog on a dog on a dog on a dog on a dog", "6 phrases are the most"),
    ],
)
def test_text_outside_the_grammar_is_refused_with_the_place(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_english(text)


def test_what_is_no_string_is_refused():
    with pytest.raises(TypeError, match="must be a string, got int"):
        parse_english(3)


def test_a_misspelt_word_brings_a_hint():
    with pytest.raises(ValueError, match="did you mean 'elephant'"):
        parse_english("an elefant")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a yellow and blue hydrant", "a blue and yellow fire hydrant", True),
        ("two sinks next to two mirrors", "two mirrors near two sinks", True),
        ("a dog on a cat", "a cat on a dog", False),
        ("a dog to the left of a cat", "a cat to the right of a dog", True),
        ("a dog above a cat", "a cat above a dog", False),
        ("a dog behind a cat", "a cat in front of a dog", True),
        ("the dog is brown and the cat is black", "a black cat and a brown dog", True),
        ("a big couch", "a large sofa", True),
        ("two dogs", "three dogs", False),
        ("a dog", "dogs", False),
        ("a dog sitting next to a cat", "a cat sitting next to a dog", False),
        # Both are on the sofa, in one reading.
        ("a dog next to a cat on a sofa", "a cat next to a dog on a sofa", True),
        # The verb says whose place it is.
        ("a dog on a mat is next to a cat".replace("mat", "rug"),
         "a dog next to a cat is on a rug", True),
        ("a dog is on a sofa and a cat is on a bench",
         "a cat is on a sofa and a dog is on a bench", False),
        ("a man and a woman wearing a hat", "a woman and a man wearing a hat", True),
        ("a man wearing a hat and a woman", "a woman wearing a hat and a man", False),
    ],
)  # fmt: skip
def test_which_captions_can_mean_the_same(one, other, same):
    assert same_meaning_english(one, other) is same
    assert same_meaning_english(other, one) is same


def test_the_readings_of_a_chain():
    """By hand: the cat's relation is the dog's, the sofa's, or that of both."""
    found = readings(parse_english("a dog on a sofa below a cat"))
    on = ("on", frozenset((0,)), frozenset((1,)))
    heads = (frozenset((0,)), frozenset((1,)), frozenset((0, 1)))
    expected = {frozenset((on, ("above", frozenset((2,)), head))) for head in heads}
    assert set(found) == expected and len(found) == 3
    assert len(readings(parse_english("a dog on a sofa is below a cat"))) == 1


def test_like_phrases_can_be_numbered_in_any_way():
    captions = ("a dog on a dog next to a cat", "a cat next to a dog on a dog")
    assert same_meaning_english(*captions)
    assert not same_meaning_english("a dog on a dog behind a cat", "a cat on a dog behind a dog")


@pytest.mark.parametrize(
    ("caption", "kind", "reason"),
    [
        ("A yellow and blue hydrant.", "colour", "said of the same thing, in no order"),
        ("two sinks next to two mirrors", "noun", "'next to' is symmetric"),
        ("two sinks next to two mirrors", "object", "'next to' is symmetric"),
        ("a red cat and a blue dog", "object", "'and' has no order"),
        ("a cat, a bird and a dog", "noun", "'and' has no order"),
        ("a dog next to a cat on a sofa", "noun", None),
        ("a man and a woman wearing a hat", "noun", None),
        ("a dog", "colour", "a swap needs two of the kind colour, there is none"),
        ("a red dog", "colour", "there is only one"),
        ("a red dog and a red cat", "colour", "in both places stands 'red'"),
        ("a dog behind a crowd of people", "noun", "what 'of' joins belongs together"),
        ("a dog behind a crowd of people", "relation", "what 'of' joins belongs together"),
        ("a dog on grass", "noun", "the words do not fit: 'a' goes with one thing only"),
    ],
)
def test_case_23_a_swap_without_another_meaning_is_rejected_with_the_reason(caption, kind, reason):
    """No entry of the pair gives an edit, for one reason or, among several pairs, another."""
    made = swap_english(caption, kind, places=None if reason else (0, 1))
    assert isinstance(made, NoEdit) and not made
    assert (reason or "") in made.reason and made.before == caption
    if reason is None:
        same = swap_english(caption, kind, places=(0, 1), allow_same_meaning=True)
        assert same and not same.changes_meaning


def test_case_23_the_same_swap_goes_through_where_the_meaning_changes():
    for before, kind, after in [
        ("A yellow hydrant and a blue car.", "colour", "A blue hydrant and a yellow car."),
        ("two sinks above two mirrors", "noun", "two mirrors above two sinks"),
        ("two sinks next to a mirror", "noun", "two mirrors next to a sink"),
        ("two red sinks next to two mirrors", "noun", "two red mirrors next to two sinks"),
    ]:
        made = swap_english(before, kind)
        assert made.after == after and made.changes_meaning
        assert not same_meaning_english(before, after)


def test_case_24_capitals_articles_spacing_and_number_stay_right(edited):
    """What is edited is read again, and reading refuses wrong articles, number and agreement."""
    assert len(edited) > 1500
    for edit in edited:
        assert parse_english(edit.after).text() == edit.after
        assert edit.after[0].isupper() == edit.before[0].isupper()
        assert edit.after.endswith(".") == edit.before.endswith(".")
        assert not re.search(r"\s[,.]|\s\s|,\S|^\s|\s$", edit.after)
        for article, word in re.findall(r"\b(an?) (\w+)", edit.after.lower()):
            assert article == indefinite_article(word)


@pytest.mark.parametrize(
    ("word", "article"),
    [
        *(("elephant", "an"), ("dog", "a"), ("hour", "an"), ("unicorn", "a"), ("honest", "an")),
        *(("uniform", "a"), ("umbrella", "an"), ("Orange", "an"), ("one", "a"), ("used", "a")),
        *(("uninteresting", "an"), ("horse", "a"), ("ugly", "an"), ("European", "a")),
    ],
)
def test_case_24_articles_go_by_the_sound(word, article):
    assert indefinite_article(word) == article


def test_case_24_examples():
    made = [
        replace_english("A dog is on a sofa.", "noun", "elephants"),
        replace_english("One dog is on a sofa.", "number", "three"),
        swap_english("An old man and a young woman", "adjective"),
        swap_english("Two dogs are behind an apple.", "object"),
        swap_english("A unicorn under an umbrella", "noun"),
        replace_english("a big apple", "size", "enormous", allow_same_meaning=True),
        add_english("The dog is brown.", "object", "an hour"),
        add_english("A red apple", "size", "big"),
        add_english("a dog that is brown", "object", "an elephant"),
        add_english("A dog.", "relation", "next to an old tree"),
    ]
    assert [edit.after for edit in made] == [
        "An elephant is on a sofa.",
        "Three dogs are on a sofa.",
        "A young man and an old woman",
        "An apple is behind two dogs.",
        "An umbrella under a unicorn",
        "an enormous apple",
        "The dog and an hour are brown.",
        "A big red apple",
        "an elephant and a dog that is brown",
        "A dog next to an old tree.",
    ]


def test_every_edit_that_changes_the_meaning_does(edited):
    for edit in edited:
        assert edit.changes_meaning
        assert not same_meaning_english(edit.before, edit.after)


def test_a_swap_keeps_the_words_and_undoes_itself():
    """Words up to articles, is and are; nouns of unlike number inflect, so these are left out."""
    made = 0
    for caption in CAPTIONS:
        for kind in ENGLISH_KINDS:
            count = len(concepts_english(caption, kind))
            for places in [(i, j) for i in range(count) for j in range(i)]:
                edit = swap_english(caption, kind, places=places, allow_same_meaning=True)
                if not edit:
                    continue
                made += 1
                assert edit.into == edit.out[::-1]
                back = swap_english(edit.after, kind, places=places, allow_same_meaning=True)
                assert back.after == caption
                plurals = [phrase.plural for phrase in parse_english(caption).phrases]
                if kind not in ("noun", "number") or len(set(plurals)) == 1:
                    assert words(edit.after) == words(caption)
    assert made > 40


def test_operators_are_named_as_they_were_applied(edited):
    """A replaced relation can amount to an exchange, and is then still named for what it does."""
    for edit in edited:
        assert name_operator_english(edit.before, edit.after) == edit.operator
        if edit.operator == "add":
            assert name_operator_english(edit.after, edit.before) == "remove"
    assert name_operator_english("a dog and a cat", "a cat and a dog") == "same"
    assert name_operator_english("a dog and a cat", "two birds on a big tree") is None
    assert name_operator_english("a dog sitting on a bed", "a dog standing on a bed") == "replace"


def test_edits_are_different_and_of_the_kinds_asked_for(edited):
    caption = CAPTIONS[3]
    some = english_edits(caption, operators=("replace",), kinds=("colour",))
    assert {edit.kind for edit in some} == {"colour"}
    assert {edit.out[0] for edit in some} == {"red", "brown"}
    assert len({edit.after for edit in some}) == len(some)
    with pytest.raises(ValueError, match="operators must be among swap, replace, add"):
        english_edits(caption, operators=("turn",))


def test_replaced_words_exclude_each_other():
    """Both ways, so that no caption is the negative of another but not the other way round."""
    assert "large" not in alternatives("size", "big") and "small" in alternatives("size", "big")
    assert alternatives("relation", "next to") == ("far from",)
    assert "player" not in alternatives("noun", "man") and "woman" in alternatives("noun", "man")
    assert alternatives("number", "several") == ()
    usual = [name for name, noun in NOUNS.items() if noun.concept == name]
    for one in random.Random(0).sample(usual, 40):
        for other in alternatives("noun", one):
            assert one in alternatives("noun", other)
    for word, (kind, concept) in ADJECTIVES.items():
        for other in alternatives(kind, word):
            assert concept in alternatives(kind, other)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: replace_english("a dog", "colour", "red"), "holds nothing of the kind colour"),
        (lambda: replace_english("a dog", "object", "cat"), "an object is not one concept"),
        (lambda: replace_english("a dog", "noun", "dogs"), "stands there already"),
        (lambda: replace_english("a sofa", "noun", "couch"), "can mean the same here"),
        (lambda: replace_english("a dog", "noun", "grass"), "the words do not fit"),
        (lambda: add_english("a red dog", "colour", "blue"), "has the colour 'red' already"),
        (lambda: add_english("a dog", "noun", "cat"), "every phrase has its noun"),
        (lambda: add_english(" on ".join(["a dog"] * 6), "object", "a cat"), "6 phrases already"),
        (
            lambda: add_english(
                "a dog is on a bed and a cat is on a rug", "object", "a toy", which=1
            ),
            "read as the subject of the verb",
        ),
    ],
)
def test_what_cannot_be_replaced_or_added_says_why(made, reason):
    answer = made()
    assert isinstance(answer, NoEdit) and reason in answer.reason


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: swap_english("a dog", "taste"), ValueError, "kind must be one of size"),
        (lambda: swap_english("a dog", "noun", places=(0, 1)), ValueError, "among the 1 concepts"),
        (lambda: replace_english("a dog", "noun", "cta"), ValueError, "the nearest are: cat"),
        (lambda: replace_english("a dog", "noun", 3), TypeError, "value must be a string"),
        (lambda: replace_english("a dog", "noun", "cat", which=1), ValueError, "which must count"),
        (lambda: add_english("a dog", "colour", "red", which=1), ValueError, "a phrase from 0"),
        (lambda: add_english("a dog", "object", "a cat on a bed"), ValueError, "one noun phrase"),
        (lambda: add_english("a dog", "relation", "and a cat"), ValueError, "relation and its"),
        (lambda: add_english("a dog", "relation", "is on a bed"), ValueError, "relation and its"),
    ],
)
def test_wrong_arguments_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
