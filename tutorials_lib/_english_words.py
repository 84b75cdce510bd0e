"""Words of the grammar for plain English captions: what they mean, how they inflect.

`tutorials_lib.captions` is where to import what is public.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "ADJECTIVES",
    "ADJECTIVE_KINDS",
    "COORDINATIONS",
    "DETERMINERS",
    "NOUNS",
    "NOUN_FORMS",
    "NUMBERS",
    "OPENINGS",
    "POSTURES",
    "RELATION_WORDS",
    "Noun",
    "RelationWord",
    "alternatives",
    "concept_of_noun",
    "indefinite_article",
]

OPENINGS = (
    "a photo of",
    "a photograph of",
    "a picture of",
    "an image of",
    "a view of",
    "there is",
    "here is",
)
NUMBERS = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("several", "many"),
)
DETERMINERS = ("a", "the", "some", *NUMBERS)  # "a" stands for "an" too
COORDINATIONS = ("and", ",", ", and")

# Adjectives by kind, in the order in which they stand before a noun; words that mean the same are
# joined by "=", the usual one first.
ADJECTIVE_KINDS: dict[str, str] = {
    "size": "large=big small=little huge=giant=enormous tiny tall short long",
    "adjective": (
        "old young new open closed empty full dirty clean wet dry bright dark happy sad round "
        "square fluffy=furry colourful=colorful fresh broken sleeping"
    ),
    "pattern": "striped spotted plaid",
    "colour": (
        "red green blue yellow orange purple=violet pink brown black white grey=gray "
        "cyan=turquoise beige=tan silver gold=golden"
    ),
    "material": "wooden metal plastic glass stone brick leather concrete ceramic paper marble",
}
# Word to its kind and concept.
ADJECTIVES: dict[str, tuple[str, str]] = {
    word: (kind, words.split("=")[0])
    for kind, text in ADJECTIVE_KINDS.items()
    for words in text.split()
    for word in words.split("=")
}

_COUNT = """
aeroplane=airplane=plane apple backpack bag ball balloon banana baseball_bat baseball_glove basket
bathroom bathtub beach bear bed bedroom bench bicycle=bike bird blanket boat book bookshelf bottle
bowl box bridge bucket building bus cabinet cake camera candle car carrot cart cat chair church
city clock computer couch=sofa counter cow crowd cup curtain desk dining_table dish dog donkey
door doughnut=donut drawer dress duck elephant fence field fire_hydrant=hydrant floor flower
forest fork frisbee garden giraffe glove goat group hair_drier hat helmet hill horse hot_dog house
jacket keyboard kitchen kite lake lamp laptop living_room market microwave mirror
motorcycle=motorbike mountain mug necklace newspaper orange oven pan parking_lot parking_meter park
phone=cell_phone piano piece pillow pizza plate pond pot potted_plant purse racket=tennis_racket
refrigerator=fridge
remote river road rock roof room rug sandwich scarf seat shelf ship shirt shoe sign sink skateboard
ski slice snowboard sofa_bed spoon stop_sign store=shop stove street suitcase surfboard
table teddy_bear television tent tie toaster toilet towel tower toy traffic_light train tray tree
truck umbrella unicorn hour vase wall window wine_glass yard zebra
man woman boy girl child person baby player rider skier surfer chef
"""
_MASS = "grass water snow sand food broccoli bread rice furniture luggage cheese hay wine coffee"
_ALWAYS_PLURAL = "scissors trousers=pants jeans shorts sunglasses"
_SAME_PLURAL = "sheep deer"
_IRREGULAR = {
    "man": "men",
    "woman": "women",
    "child": "children",
    "person": "people",
    "knife": "knives",
    "shelf": "shelves",
    "bookshelf": "bookshelves",
    "scarf": "scarves",
    "mouse": "mice",
}


@dataclass(frozen=True)
class Noun:
    """A noun.

    Attributes
    ----------
    concept
        What it means; synonyms share it.
    singular, plural
        The forms; None for one that does not exist.
    mass
        Whether it stands without an article in the singular, as "grass".
    """

    concept: str
    singular: str | None
    plural: str | None
    mass: bool = False

    def form(self, plural: bool) -> str | None:
        """Return the form for a number; None if there is none."""
        return self.plural if plural else self.singular


def _plural(singular: str) -> str:
    head, _, last = singular.rpartition(" ")
    if last in _IRREGULAR:
        last = _IRREGULAR[last]
    elif re.search(r"(s|x|z|ch|sh)$", last):
        last += "es"
    elif re.search(r"[^aeiou]y$", last):
        last = last[:-1] + "ies"
    else:
        last += "s"
    return f"{head} {last}".strip()


def _synonyms(text: str) -> Iterable[tuple[str, str]]:
    for words in text.split():
        first, *others = words.replace("_", " ").split("=")
        for word in (first, *others):
            yield word, first


# By the form that names it in edits: the singular, or the plural where there is no singular.
NOUNS: dict[str, Noun] = {
    **{w: Noun(c, w, _plural(w)) for w, c in _synonyms(f"{_COUNT} knife mouse")},
    **{word: Noun(concept, word, word) for word, concept in _synonyms(_SAME_PLURAL)},
    **{word: Noun(concept, word, None, True) for word, concept in _synonyms(_MASS)},
    **{word: Noun(concept, None, word) for word, concept in _synonyms(_ALWAYS_PLURAL)},
}
# Form to the nouns and numbers that it can be.
NOUN_FORMS: dict[str, list[tuple[str, bool]]] = {}
for _name, _noun in NOUNS.items():
    for _form, _is_plural in ((_noun.singular, False), (_noun.plural, True)):
        if _form is not None:
            NOUN_FORMS.setdefault(_form, []).append((_name, _is_plural))


@dataclass(frozen=True)
class RelationWord:
    """What a preposition or verb between two phrases means.

    Attributes
    ----------
    concept
        The relation; words that mean the same, or that one picture always shows together, such as
        "next to" and "near", share it.
    symmetric
        Whether it holds both ways.
    turned
        Whether it says `concept` of the second and the first, as "behind" does "in front of".
    """

    concept: str
    symmetric: bool = False
    turned: bool = False


_SYMMETRIC = (
    ("next to", "beside", "near", "by", "close to", "alongside", "adjacent to"),
    ("with", "together with", "along with"),  # who has whom is not told apart
    ("across from", "opposite"),
    ("far from",),
    ("touching",),
    ("hugging",),
)
_CONVERSE = (
    (
        ("to the left of", "left of", "on the left of"),
        ("to the right of", "right of", "on the right of"),
    ),
    (("in front of",), ("behind",)),
    (("above", "over"), ("below", "under", "beneath", "underneath")),
)
_DIRECTED = (
    *(("on", "on top of", "atop"), ("in", "inside", "inside of"), ("at",), ("around",)),
    *(("against",), ("of",), ("through",), ("along",), ("past",), ("towards", "toward")),
    *(("outside", "outside of"), ("without",), ("holding",), ("riding",), ("wearing",)),
    *(("carrying",), ("eating",), ("watching",), ("looking at",), ("chasing",), ("pulling",)),
    *(("pushing",), ("driving",), ("throwing",), ("catching",), ("kicking",), ("feeding",)),
    *(("facing",), ("following",), ("leading",)),
)
RELATION_WORDS: dict[str, RelationWord] = {
    **{word: RelationWord(words[0], symmetric=True) for words in _SYMMETRIC for word in words},
    **{word: RelationWord(one[0]) for one, _ in _CONVERSE for word in one},
    **{word: RelationWord(one[0], turned=True) for one, two in _CONVERSE for word in two},
    **{word: RelationWord(words[0]) for words in _DIRECTED for word in words},
}
# What a phrase may do before a preposition.
POSTURES = (
    *("sitting", "standing", "lying", "parked", "hanging", "leaning", "walking", "running"),
    *("flying", "sleeping", "swimming", "waiting", "playing"),
)

# Concepts of which only one can be true of the same thing; what is in no list of its kind is left
# out, because "a tall dog" can be a large one, and "a player" a man.
_EXCLUSIVE: dict[str, tuple[str, ...]] = {
    "size": ("large small", "large tiny", "huge small", "huge tiny", "tall short", "long short"),
    "adjective": (
        *("old young", "old new", "open closed", "empty full", "dirty clean", "wet dry"),
        *("bright dark", "happy sad", "round square"),
    ),
    "pattern": ("striped spotted plaid",),
    "colour": (
        "red green blue yellow purple black white",
        "pink green blue black",
        "orange blue",
        "brown blue green white",
        "grey red green yellow",
        "cyan red black brown",
    ),
    "material": ("wooden metal plastic glass stone leather paper",),
}
_OPPOSITE_RELATIONS = {
    **{
        word: converse[0]
        for one, two in _CONVERSE
        for word, converse in [*((w, two) for w in one), *((w, one) for w in two)]
    },
    **{"on": "under", "on top of": "under", "in": "outside", "outside": "in"},
    **{"next to": "far from", "near": "far from", "far from": "next to"},
    **{"with": "without", "without": "with"},
}
_PEOPLE = frozenset("man woman boy girl child person baby player rider skier surfer chef".split())
_COLLECTIVE = frozenset("group crowd piece slice hour".split())
_PARTS = (
    frozenset(("ball", "toy", "teddy bear", "frisbee")),
    frozenset(("table", "dining table", "desk", "counter")),
    frozenset(("couch", "sofa bed", "bed", "seat", "chair", "bench")),
    frozenset(("street", "road", "city", "market", "parking lot")),
    frozenset(("field", "garden", "yard", "park", "grass", "forest", "hill", "mountain")),
    frozenset(("room", "living room", "bedroom", "kitchen", "bathroom", "floor")),
    frozenset(("house", "building", "church", "store", "tower")),
    frozenset(("cup", "mug", "wine glass", "bowl", "dish", "plate", "pot", "pan", "vase", "tray")),
    frozenset(("sign", "stop sign")),
    frozenset(("bag", "purse", "backpack", "suitcase", "luggage", "basket", "box")),
    frozenset(("boat", "ship")),
    frozenset(("pond", "lake", "river", "water", "beach", "sand")),
    frozenset(("trousers", "jeans", "shorts")),
    frozenset(
        (
            "food",
            "bread",
            "rice",
            "cheese",
            "broccoli",
            "pizza",
            "sandwich",
            "cake",
            "apple",
            "banana",
            "orange",
            "carrot",
            "doughnut",
            "hot dog",
        )
    ),
    frozenset(("computer", "laptop", "keyboard", "phone", "camera", "remote", "television")),
    frozenset(
        (
            "shelf",
            "bookshelf",
            "cabinet",
            "drawer",
            "furniture",
            "table",
            "chair",
            "couch",
            "bed",
            "desk",
        )
    ),
    frozenset(("potted plant", "flower", "tree")),
    frozenset(("water", "wine", "coffee")),
    frozenset(("snow", "hill", "mountain")),
    frozenset(("grass", "hay")),
    frozenset(("shirt", "jacket", "dress")),
    frozenset(("toy", "car", "truck", "train", "boat", "bus")),
)
_SEXES = frozenset(("man boy", "woman girl"))
_VOWEL_SOUND = re.compile(r"hour|hono|honest|heir|[aeiou]")
_CONSONANT_SOUND = re.compile(r"uni(?!n|m)|u[sbt][aeiu]|eu|one\b|once\b|ewe")


def indefinite_article(word: str) -> str:
    """Return "a" or "an", by the sound with which a word begins.

    Parameters
    ----------
    word
        The word that follows the article.

    Returns
    -------
    str
        "an" for "elephant" and "hour", "a" for "dog", "unicorn" and "one-way sign".
    """
    word = word.lower()
    vowel = _VOWEL_SOUND.match(word) and not _CONSONANT_SOUND.match(word)
    return "an" if vowel else "a"


def concept_of_noun(name: str) -> str:
    """Return what a noun means, by its name in `NOUNS`."""
    return NOUNS[name].concept


@functools.cache
def alternatives(kind: str, word: str) -> tuple[str, ...]:
    """List the words that cannot be true in the place of a word, as far as the lexicon knows.

    Colours, sizes and other adjectives that exclude each other; relations that are opposite or
    turn each other round; nouns for other things. Where the lexicon knows of none, none.

    Parameters
    ----------
    kind
        ``"noun"``, ``"relation"``, ``"number"`` or a kind of `ADJECTIVE_KINDS`.
    word
        A word of that kind; a noun by its name in `NOUNS`.

    Returns
    -------
    tuple of str
        One word for each concept.
    """
    if kind == "number":
        # Several and many are not known to exclude a number.
        exact = NUMBERS[:10]
        return tuple(other for other in exact if other != word) if word in exact else ()
    if kind == "relation":
        return (_OPPOSITE_RELATIONS[word],) if word in _OPPOSITE_RELATIONS else ()
    if kind == "noun":
        own = concept_of_noun(word)
        usual = (name for name, noun in NOUNS.items() if noun.concept == name)
        return tuple(name for name in usual if name != own and not _overlap(name, own))
    own = ADJECTIVES[word][1]
    found = (other for group in _EXCLUSIVE[kind] if own in group.split() for other in group.split())
    return tuple(dict.fromkeys(other for other in found if other != own))


def _overlap(one: str, other: str) -> bool:
    """Say whether one thing, or what is in one place, could go by both nouns."""
    if one in _COLLECTIVE or other in _COLLECTIVE:
        return True
    if one in _PEOPLE and other in _PEOPLE:
        sex = [next((s for s in _SEXES if w in s.split()), None) for w in (one, other)]
        return None in sex or sex[0] == sex[1]
    return any(one in group and other in group for group in _PARTS)
