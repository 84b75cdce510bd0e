"""Hard negatives in the form of SugarCrepe: reading them from files, or downloading them.

`tutorials_lib.captions` is where to import all of it from.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pooch
import torch

__all__ = [
    "SUGARCREPE_CATEGORIES",
    "HardNegative",
    "count_categories",
    "load_sugarcrepe",
    "sugarcrepe_hashes",
]

SUGARCREPE_CATEGORIES = (
    "add_att",
    "add_obj",
    "replace_att",
    "replace_obj",
    "replace_rel",
    "swap_att",
    "swap_obj",
)
_URL = "https://raw.githubusercontent.com/RAIVNLab/sugar-crepe/{revision}/data"
_HOW = (
    "clone https://github.com/RAIVNLab/sugar-crepe where there is a network, and give its folder "
    "data as source"
)
_SECONDS = 30.0


@dataclass(frozen=True)
class HardNegative:
    """A caption of an image beside one that does not describe it.

    Attributes
    ----------
    filename
        The image, of COCO's validation set of 2017 in SugarCrepe.
    caption, negative
        The right and the wrong caption.
    category
        How the negative was made, in SugarCrepe one of `SUGARCREPE_CATEGORIES`.
    """

    filename: str
    caption: str
    negative: str
    category: str


def load_sugarcrepe(
    source: str | Path | None = None,
    *,
    categories: Sequence[str] | None = None,
    download: bool = False,
    known_hash: Mapping[str, str] | None = None,
    revision: str = "main",
    cache: str | Path | None = None,
    url: str = _URL,
) -> list[HardNegative]:
    """Read SugarCrepe's hard negatives (Hsieh et al. 2023), or others in the same form.

    Parameters
    ----------
    source
        A JSON file, whose name is then the category, or a folder that holds one for each
        category, such as ``data`` of the repository RAIVNLab/sugar-crepe. None to download.
    categories
        Which of `SUGARCREPE_CATEGORIES` to read from a folder or to download; None for all.
    download
        Whether files may be downloaded; needs ``source=None``.
    known_hash
        SHA-256 in hexadecimal for each category. Needed for a download, which is refused if it
        differs: the book ships none, because it could not check one against the published files.
        Take them by `sugarcrepe_hashes` from a copy that you trust. Files of ``source`` are
        checked too if it is given.
    revision
        Branch, tag or commit to download from.
    cache
        Folder for downloads; None for ``sugarcrepe`` in ``torch.hub.get_dir()``.
    url
        Where the files lie; ``{revision}`` is filled in. For a mirror.

    Returns
    -------
    list of HardNegative
        In the order of the categories and files; `count_categories` counts them.

    Raises
    ------
    FileNotFoundError
        If there is no such file or folder.
    ValueError
        If a file has another form or hash, or the arguments do not go together.
    ConnectionError
        If a file cannot be downloaded.
    """
    if source is None and not download:
        raise ValueError(f"there is no source, and download is False; {_HOW}")
    if source is not None and download:
        raise ValueError(f"download=True needs source=None, got the source {str(source)!r}")
    wanted = _check_categories(categories)
    if source is None:
        missing = [name for name in wanted if name not in (known_hash or {})]
        if missing:
            raise ValueError(
                f"known_hash is needed for {', '.join(missing)}: what is downloaded has to be "
                f"checked. Take the hashes by sugarcrepe_hashes from a copy that you trust; or "
                f"{_HOW}"
            )
        folder = Path(torch.hub.get_dir()) / "sugarcrepe" if cache is None else Path(cache)
        place = url.format(revision=revision)
        files = [_fetched(place, name, folder, (known_hash or {})[name]) for name in wanted]
    else:
        files = _files(Path(source), wanted, categories is not None)
    pairs = []
    for path in files:
        content = path.read_bytes()
        if known_hash is not None and path.stem in known_hash:
            _check_hash(content, known_hash[path.stem], str(path))
        pairs += _read(content, path)
    return pairs


def sugarcrepe_hashes(source: str | Path) -> dict[str, str]:
    """Compute the hashes by which `load_sugarcrepe` checks files.

    Parameters
    ----------
    source
        As in `load_sugarcrepe`.

    Returns
    -------
    dict
        Category to SHA-256 in hexadecimal.

    Raises
    ------
    FileNotFoundError
        If there is no such file or folder.
    """
    files = _files(Path(source), SUGARCREPE_CATEGORIES, False)
    return {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def count_categories(pairs: Iterable[HardNegative]) -> dict[str, int]:
    """Count the pairs of each category.

    Parameters
    ----------
    pairs
        Hard negatives.

    Returns
    -------
    dict
        Category to number, in the order in which they come.
    """
    return dict(Counter(pair.category for pair in pairs))


def _check_categories(categories: Sequence[str] | None) -> tuple[str, ...]:
    wanted = SUGARCREPE_CATEGORIES if categories is None else tuple(categories)
    unknown = [name for name in wanted if name not in SUGARCREPE_CATEGORIES]
    if unknown or not wanted:
        known = ", ".join(SUGARCREPE_CATEGORIES)
        raise ValueError(f"categories must be among {known}, got {categories!r}")
    return wanted


def _files(source: Path, wanted: Sequence[str], chosen: bool) -> list[Path]:
    if source.is_file():
        if chosen:
            raise ValueError(f"{str(source)!r} is one file, so there are no categories to choose")
        return [source]
    if not source.is_dir():
        raise FileNotFoundError(f"there is no file or folder {str(source)!r}; {_HOW}")
    missing = [name for name in wanted if not (source / f"{name}.json").is_file()]
    if missing:
        raise FileNotFoundError(
            f"{str(source)!r} has no {', '.join(f'{name}.json' for name in missing)}; choose "
            f"other categories, or {_HOW}"
        )
    return [source / f"{name}.json" for name in wanted]


def _fetched(place: str, name: str, folder: Path, known_hash: str) -> Path:
    address = f"{place}/{name}.json"
    if not address.startswith(("https://", "http://")):
        raise ValueError(f"url must begin with https:// or http://, got {place!r}")
    try:
        found = pooch.retrieve(
            address,
            known_hash=known_hash.lower(),
            fname=f"{name}.json",
            path=folder,
            downloader=pooch.HTTPDownloader(timeout=_SECONDS),
        )
    except OSError as error:
        raise ConnectionError(f"could not download {address} ({error}); {_HOW}") from error
    return Path(found)


def _check_hash(content: bytes, known: str, where: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != known.lower().removeprefix("sha256:"):
        raise ValueError(f"{where} has the SHA-256 {found}, but known_hash says {known}")


def _read(content: bytes, path: Path) -> list[HardNegative]:
    try:
        entries = json.loads(content.decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is no JSON in UTF-8: {error}") from error
    if isinstance(entries, dict):  # the keys are numbers, not without gaps
        entries = list(entries.values())
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{str(path)!r} must hold an object or a list of pairs, and at least one")
    return [_pair(entry, path, number) for number, entry in enumerate(entries)]


def _pair(entry: Any, path: Path, number: int) -> HardNegative:
    keys = ("filename", "caption", "negative_caption")
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in keys):
        raise ValueError(
            f"pair {number} of {str(path)!r} must have the texts {', '.join(keys)}, got {entry!r}"
        )
    return HardNegative(*(entry[key] for key in keys), path.stem)
