"""Labelled image files on disk: ImageNet, its shifted test sets, and ten few-shot data sets.

Nothing is downloaded. Every reader takes the one folder that holds all data sets, laid out as Zhou
et al. (2022) do (https://github.com/KaiyangZhou/CoOp, DATASETS.md), lists paths and labels, and
says what it expected where it finds something else. Pictures are opened by
`tutorials_lib.clip.embed_images`::

    from tutorials_lib.clip import EmbeddingStore, embed_images, load_clip
    from tutorials_lib.datasets import read_dataset

    pets = read_dataset("oxford_pets", "data")
    clip = load_clip("ViT-B-16", pretrained="openai")
    test = embed_images(clip, list(pets.test.paths), store=EmbeddingStore("embeddings")).vectors
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path, PurePosixPath

import numpy as np
import open_clip

from tutorials_lib._image_reading import IMAGE_SUFFIXES, raise_error
from tutorials_lib._validation import check_integer

__all__ = [
    "DATASETS",
    "SHIFTS",
    "Dataset",
    "DatasetError",
    "ImageFolder",
    "image_folder",
    "imagenet_synsets",
    "read_dataset",
    "read_shift",
]


class DatasetError(ValueError):
    """A data set that does not look as it should; the message names the expected layout."""


@dataclass(frozen=True, eq=False, repr=False)
class ImageFolder:
    """Paths of images and what they show.

    Attributes
    ----------
    paths
        N paths.
    labels
        Index into ``class_names`` of each, shape (N,), int64.
    class_names
        Of all classes, whether the images show them or not.
    """

    paths: tuple[Path, ...]
    labels: np.ndarray
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return f"ImageFolder({len(self)} images, {len(self.present)} classes)"

    @property
    def present(self) -> np.ndarray:
        """Sorted labels that occur, for ``among`` where only some classes do."""
        return np.unique(self.labels)

    def take(self, index: Sequence[int] | np.ndarray) -> ImageFolder:
        """Return the images at some positions; labels and class names keep their meaning.

        Parameters
        ----------
        index
            Whole numbers, or a mask of one boolean for each image.

        Raises
        ------
        TypeError
            If it holds other things.
        IndexError
            If there is no such image, or a mask has another length.
        """
        index = np.asarray(index)
        if index.dtype == np.bool_:
            if index.shape != (len(self),):
                raise IndexError(
                    f"a mask must have shape ({len(self)},), one entry an image, got {index.shape}"
                )
            index = np.flatnonzero(index)
        if index.ndim != 1 or (index.size and not np.issubdtype(index.dtype, np.integer)):
            raise TypeError(
                "images are taken by a list of whole numbers or a mask, got entries of dtype "
                f"{index.dtype} in shape {index.shape}"
            )
        index = index.astype(np.int64)
        return ImageFolder(
            tuple(self.paths[i] for i in index), self.labels[index], self.class_names
        )


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set for few-shot learning.

    Attributes
    ----------
    name
        One of `DATASETS`.
    train
        What shots and validation rows are drawn from. Where a validation split exists, it is part
        of this: both are drawn at random, and disjoint.
    test
        What accuracy is measured on: ImageNet's own validation images, others' test images.
    templates
        Prompts with ``{}`` for the class name.
    """

    name: str
    train: ImageFolder
    test: ImageFolder
    templates: tuple[str, ...]


@dataclass(frozen=True)
class _Split:
    """Where a data set with a split file lies, and its prompt."""

    folder: str
    images: str
    file: str
    template: str


_A_PHOTO = "a photo of a {}."
_SPLITS = {
    "caltech101": _Split(
        "caltech-101", "101_ObjectCategories", "split_zhou_Caltech101.json", _A_PHOTO
    ),
    "oxford_pets": _Split(
        "oxford_pets",
        "images",
        "split_zhou_OxfordPets.json",
        "a photo of a {}, a type of pet.",
    ),
    "stanford_cars": _Split("stanford_cars", "", "split_zhou_StanfordCars.json", _A_PHOTO),
    "flowers102": _Split(
        "oxford_flowers",
        "jpg",
        "split_zhou_OxfordFlowers.json",
        "a photo of a {}, a type of flower.",
    ),
    "food101": _Split(
        "food-101", "images", "split_zhou_Food101.json", "a photo of {}, a type of food."
    ),
    "sun397": _Split("sun397", "SUN397", "split_zhou_SUN397.json", _A_PHOTO),
    "dtd": _Split("dtd", "images", "split_zhou_DescribableTextures.json", "{} texture."),
    "eurosat": _Split(
        "eurosat", "2750", "split_zhou_EuroSAT.json", "a centered satellite photo of {}."
    ),
    "ucf101": _Split(
        "ucf101",
        "UCF-101-midframes",
        "split_zhou_UCF101.json",
        "a photo of a person doing {}.",
    ),
}
DATASETS = ("imagenet", *_SPLITS, "fgvc_aircraft")
# Folder of each shifted test set and how many of ImageNet's classes it holds.
_SHIFTS = {
    "v2": ("imagenetv2/imagenetv2-matched-frequency-format-val", 1000),
    "sketch": ("imagenet-sketch/images", 1000),
    "r": ("imagenet-rendition/imagenet-r", 200),
    "a": ("imagenet-adversarial/imagenet-a", 200),
}
SHIFTS = tuple(_SHIFTS)


def image_folder(
    path: str | Path,
    *,
    folders: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
) -> ImageFolder:
    """List a folder that has one folder for each class.

    Parameters
    ----------
    path
        The folder. Hidden entries, and files that are no pictures by their suffix, are left out.
        Pictures elsewhere than directly in a class's folder are an error: they would be lost.
    folders
        Names of the classes' folders in the order of the labels; not all have to be there.
        ``None`` for all that are there, sorted by name, digits by value: "2" before "10".
    class_names
        What the classes are called, in the order of the labels; ``None`` for the folders' names.

    Returns
    -------
    ImageFolder
        By class, and by path within a class.

    Raises
    ------
    DatasetError
        If there is no such folder, there is no class's folder in it, one is not among ``folders``
        or holds no picture, pictures lie elsewhere, names of folders occur twice, or the numbers of
        names differ.
    TypeError
        If names are given as one string.
    """
    for what, given in (("folders", folders), ("class_names", class_names)):
        if isinstance(given, str):
            raise TypeError(f"{what} must be a list of names, got one string; write [{given!r}]")
    path = Path(path)
    found = _subfolders(path)
    if not found:
        raise DatasetError(f"{str(path)!r} must hold one folder for each class, it holds none")
    beside = [entry.name for entry in _entries(path) if _is_picture(entry)]
    if beside:
        raise DatasetError(
            f"{str(path)!r} holds {len(beside)} pictures beside the folders of its classes, first "
            f"{min(beside)!r}; move each into the folder of its class"
        )
    if folders is None:
        folders = found
    order = {name: label for label, name in enumerate(folders)}
    if len(order) != len(folders):
        raise DatasetError("folders must be distinct: labels are their positions")
    unknown = [name for name in found if name not in order]
    if unknown:
        raise DatasetError(
            f"{str(path)!r} holds {len(unknown)} folders that are no class of this data set: "
            f"{', '.join(unknown[:3])}"
        )
    names = tuple(folders) if class_names is None else tuple(class_names)
    if len(names) != len(folders):
        raise DatasetError(f"{len(names)} class names were given for {len(folders)} classes")
    paths, labels = [], []
    for name in sorted(found, key=order.__getitem__):
        entries = _entries(path / name)
        below = [entry.name for entry in entries if entry.is_dir() and _holds_pictures(entry)]
        if below:
            raise DatasetError(
                f"the class folder {str(path / name)!r} holds folders with pictures, first "
                f"{min(below)!r}; the pictures of a class must lie in its folder itself"
            )
        pictures = sorted(path / name / entry.name for entry in entries if _is_picture(entry))
        if not pictures:
            raise DatasetError(f"the class folder {str(path / name)!r} holds no picture")
        paths += pictures
        labels += [order[name]] * len(pictures)
    return ImageFolder(tuple(paths), np.array(labels, dtype=np.int64), names)


@cache
def imagenet_synsets() -> tuple[str, ...]:
    """Return the WordNet ids of ImageNet's 1000 classes, in the order of their labels."""
    # Slow to import, and used here only. It comes with open_clip.
    from timm.data import ImageNetInfo

    return tuple(ImageNetInfo("imagenet-1k").label_names())


def read_dataset(name: str, root: str | Path) -> Dataset:
    """Read one of the eleven data sets.

    Parameters
    ----------
    name
        One of `DATASETS`.
    root
        Folder of all data sets. In it lie, for instance, ``imagenet/images/train`` and ``…/val``
        with one folder a synset, or ``dtd/images`` and ``dtd/split_zhou_DescribableTextures.json``.

    Returns
    -------
    Dataset
        Paths and labels; pictures are not opened.

    Raises
    ------
    DatasetError
        If something is missing or looks otherwise.
    ValueError
        If the name is unknown.

    References
    ----------
    Zhou et al. (2022), "Learning to prompt for vision-language models", arXiv:2109.01134, for the
    splits and prompts; Radford et al. (2021), arXiv:2103.00020, for the 80 prompts of ImageNet.
    """
    root = Path(root)
    if name == "imagenet":
        parts = [
            _imagenet_classes(root / "imagenet" / "images" / part) for part in ("train", "val")
        ]
        # open_clip keeps its prompts as functions of the class name.
        templates = tuple(prompt("{}") for prompt in open_clip.OPENAI_IMAGENET_TEMPLATES)
        return Dataset(name, *parts, templates)
    if name == "fgvc_aircraft":
        return _read_aircraft(root / "fgvc_aircraft")
    if name not in _SPLITS:
        raise ValueError(f"name must be one of {', '.join(DATASETS)}, got {name!r}")
    return _read_split(name, root, _SPLITS[name])


def read_shift(name: str, root: str | Path) -> ImageFolder:
    """Read a shifted test set of ImageNet; labels are those of ImageNet's 1000 classes.

    Parameters
    ----------
    name
        ``"v2"`` (matched frequency; folders "0" to "999", by label), ``"sketch"``, or ``"r"`` and
        ``"a"``, which hold 200 classes each: test on these with ``among=….present``, as their
        authors do.
    root
        Folder of all data sets; in it lie ``imagenetv2/imagenetv2-matched-frequency-format-val``,
        ``imagenet-sketch/images``, ``imagenet-rendition/imagenet-r`` and
        ``imagenet-adversarial/imagenet-a``.

    Returns
    -------
    ImageFolder
        Paths and labels; pictures are not opened.

    Raises
    ------
    DatasetError
        If something is missing or looks otherwise.
    ValueError
        If the name is unknown.

    References
    ----------
    Recht et al. (2019), arXiv:1902.10811; Wang et al. (2019), arXiv:1905.13549; Hendrycks et al.
    (2021), arXiv:2006.16241 and arXiv:1907.07174.
    """
    if name not in _SHIFTS:
        raise ValueError(f"name must be one of {', '.join(SHIFTS)}, got {name!r}")
    folder, number = _SHIFTS[name]
    path = Path(root) / folder
    if name == "v2":
        return _imagenet_classes(path, folders=[str(label) for label in range(1000)])
    return _imagenet_classes(path, number=number)


def _imagenet_classes(
    path: Path, *, folders: Sequence[str] | None = None, number: int = 1000
) -> ImageFolder:
    """Read a folder of ImageNet's classes, of which ``number`` have to be there."""
    found = _subfolders(path)
    folders = imagenet_synsets() if folders is None else folders
    known = set(found) & set(folders)
    if len(known) != number:
        flat = not found and any(path.glob("*.JPEG"))
        hint = "; sort the pictures into one folder for each class first" if flat else ""
        raise DatasetError(
            f"{str(path)!r} must hold {number} folders named like {folders[0]!r}, it holds "
            f"{len(known)} of them{hint}"
        )
    return image_folder(path, folders=folders, class_names=open_clip.IMAGENET_CLASSNAMES)


def _read_split(name: str, root: Path, split: _Split) -> Dataset:
    file, images = root / split.folder / split.file, root / split.folder / split.images
    expected = f"{name} needs {file.name} and the folder of pictures {str(images)!r} beside it"
    for path in (file, images):
        if not path.exists():
            raise DatasetError(f"there is no {str(path)!r}; {expected}")
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"))
        entries = {
            part: [
                (str(path), check_integer("label", label, 0), str(called))
                for path, label, called in content[part]
            ]
            for part in ("train", "val", "test")
        }
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(
            f"{str(file)!r} must map train, val and test to lists of [path, label, class name] "
            f"with labels 0, 1, 2, …: {error}"
        ) from error
    called: dict[int, str] = {}
    for path, label, class_name in chain.from_iterable(entries.values()):
        if called.setdefault(label, class_name) != class_name:
            raise DatasetError(
                f"{str(file)!r} calls class {label} both {called[label]!r} and {class_name!r} "
                f"(at {path})"
            )
    if sorted(called) != list(range(len(called))):
        raise DatasetError(f"the labels in {str(file)!r} must be 0, 1, 2, …, without gaps")
    names = tuple(called[label].replace("_", " ") for label in range(len(called)))

    def part(*keys: str) -> ImageFolder:
        rows = [row for key in keys for row in entries[key]]
        paths = [images.joinpath(*PurePosixPath(row[0].lstrip("/")).parts) for row in rows]
        return _listed(file, paths, [row[1] for row in rows], names)

    return Dataset(name, part("train", "val"), part("test"), (split.template,))


def _read_aircraft(folder: Path) -> Dataset:
    """Read FGVC-Aircraft, which brings its own split into variants."""
    variants = folder / "variants.txt"
    lists = {part: folder / f"images_variant_{part}.txt" for part in ("train", "val", "test")}
    for path in (variants, *lists.values()):
        if not path.is_file():
            raise DatasetError(
                f"there is no {str(path)!r}; fgvc_aircraft needs variants.txt, "
                "images_variant_train.txt, …_val.txt, …_test.txt and the folder images"
            )
    names = tuple(_lines(variants))

    def part(*keys: str) -> ImageFolder:
        paths, labels = [], []
        for key in keys:
            for line in _lines(lists[key]):
                picture, _, variant = line.partition(" ")
                if variant not in names:
                    raise DatasetError(
                        f"{str(lists[key])!r} names the variant {variant!r}, which is not in "
                        "variants.txt"
                    )
                paths.append(folder / "images" / f"{picture}.jpg")
                labels.append(names.index(variant))
        return _listed(lists[keys[0]], paths, labels, names)

    template = "a photo of a {}, a type of aircraft."
    return Dataset("fgvc_aircraft", part("train", "val"), part("test"), (template,))


def _lines(file: Path) -> list[str]:
    """Read the lines that hold something; a mark at the beginning, as Windows sets, is left out."""
    return [line for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]


def _listed(
    file: Path, paths: list[Path], labels: list[int], names: tuple[str, ...]
) -> ImageFolder:
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise DatasetError(
            f"{len(missing)} of {len(paths)} pictures that {str(file)!r} lists are not there, "
            f"first {str(missing[0])!r}"
        )
    return ImageFolder(tuple(paths), np.array(labels, dtype=np.int64), names)


def _subfolders(path: Path) -> list[str]:
    if not path.is_dir():
        raise DatasetError(f"there is no folder {str(path)!r}, with one folder for each class")
    return sorted((entry.name for entry in _entries(path) if entry.is_dir()), key=_natural)


def _entries(path: str | Path) -> list[os.DirEntry[str]]:
    # Unlike paths, entries mostly know what they are without another look at the disk, which
    # counts for a million pictures.
    with os.scandir(path) as entries:
        return [entry for entry in entries if not entry.name.startswith(".")]


def _is_picture(entry: os.DirEntry[str]) -> bool:
    return Path(entry.name).suffix.lower() in IMAGE_SUFFIXES and not entry.is_dir()


def _holds_pictures(folder: os.DirEntry[str]) -> bool:
    return any(
        Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith(".")
        for _, _, names in os.walk(folder.path, onerror=raise_error)
        for name in names
    )


def _natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Sort runs of digits by value, before letters."""
    return tuple(
        (not piece.isdecimal(), int(piece) if piece.isdecimal() else 0, piece)
        for piece in re.findall(r"\d+|\D+", name)
    )
