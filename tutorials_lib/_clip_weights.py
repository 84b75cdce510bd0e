"""Where the weights of a model lie: with the library, in the cache, on a hub, in a file."""

from __future__ import annotations

import difflib
import json
import pickle
import ssl
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import huggingface_hub
import open_clip
import torch
from huggingface_hub.errors import EntryNotFoundError
from safetensors import SafetensorError, safe_open

__all__ = [
    "MODELS_FOLDER",
    "bundled_models",
    "check_shapes",
    "close_matches",
    "hub_file",
    "need_network",
    "read_header",
    "tag_file",
]

MODELS_FOLDER = Path(__file__).with_name("models")
# Seconds to find out whether the hub answers. Its own client retries for half a minute a file.
PROBE_SECONDS = 5.0
WEIGHT_NAMES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")


def bundled_models() -> list[str]:
    """Return the names of the models that come with the library and need no network."""
    return sorted(path.stem for path in MODELS_FOLDER.glob("*.safetensors"))


def close_matches(name: str, names: Iterable[str]) -> str:
    """Name the entries most like ``name``, for an error message; upper case does not matter."""
    by_lower = {known.lower(): known for known in names}
    found = difflib.get_close_matches(name.lower(), by_lower, n=4, cutoff=0.5)
    return ", ".join(repr(by_lower[match]) for match in found) or "nothing like it"


def tag_file(name: str, tag: str, cache_dir: str | None) -> Path:
    """Return the file with the published weights of an open_clip model, from the cache if there.

    Raises
    ------
    RuntimeError
        If they are neither cached nor to be had.
    """
    config = open_clip.get_pretrained_cfg(name, tag)
    what = f"{name}/{tag}"
    where = config.get("hf_hub", "")
    if not where:
        need_network(what, "the weights", config.get("url", "their address"))
        return Path(open_clip.download_pretrained(config, cache_dir=cache_dir))
    repository, _, filename = where.rpartition("/")
    if not filename:
        return hub_file(repository, WEIGHT_NAMES, cache_dir, what)
    stem, _, suffix = filename.rpartition(".")
    alternatives = (f"{stem}.safetensors",) if suffix in ("bin", "pth") else ()
    return hub_file(repository, (*alternatives, filename), cache_dir, what)


def hub_file(repository: str, names: Iterable[str], cache_dir: str | None, what: str) -> Path:
    """Return the first of some files of a hub repository, from the cache if one is there.

    Parameters
    ----------
    repository
        As the hub writes it, ``"owner/name"``.
    names
        Files that will do, the best first.
    cache_dir
        Where downloads lie; ``None`` for the hub's own place.
    what
        The model's name; used in messages.

    Raises
    ------
    RuntimeError
        If none is cached, and the hub cannot be reached or has none.
    """
    names = tuple(names)
    for name in names:
        cached = huggingface_hub.try_to_load_from_cache(repository, name, cache_dir=cache_dir)
        if isinstance(cached, str):
            return Path(cached)
    looked_for = f"{' or '.join(names)} of {repository}"
    need_network(what, looked_for, huggingface_hub.constants.ENDPOINT, cache_dir)
    for name in names:
        try:
            return Path(huggingface_hub.hf_hub_download(repository, name, cache_dir=cache_dir))
        except EntryNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise RuntimeError(
                f"{what} could not be downloaded: {looked_for} was asked for at "
                f"{huggingface_hub.constants.ENDPOINT}: {str(error).strip()}. {_alternatives()}"
            ) from error
    raise RuntimeError(f"{what} could not be downloaded: there is no {looked_for}")


def need_network(what: str, looked_for: str, address: str, cache_dir: str | None = None) -> None:
    """Raise the one error for a model that is not here and cannot be fetched.

    Raises
    ------
    RuntimeError
        If the address does not answer within `PROBE_SECONDS`. The message names the model, what
        was tried, and the models that come with the library.
    """
    reason = _unreachable(address)
    if reason is None:
        return
    cache = cache_dir or huggingface_hub.constants.HF_HUB_CACHE
    raise RuntimeError(
        f"{what} is not on this machine and cannot be fetched: {looked_for} was looked for in the "
        f"cache {str(cache)!r}, then {address} was tried ({reason}). {_alternatives()}"
    )


def _alternatives() -> str:
    names = ", ".join(f"load_clip({name!r})" for name in bundled_models())
    return f"Models that need no network: {names or 'none are installed'}"


def _unreachable(address: str) -> str | None:
    """Say why an address does not answer; ``None`` if it does."""
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    outcome: list[str | None] = []

    def probe() -> None:
        try:
            request = urllib.request.Request(address, method="HEAD")
            urllib.request.urlopen(request, timeout=PROBE_SECONDS).close()
        except urllib.error.HTTPError:
            outcome.append(None)  # an answer, even if it is not the page
        except (OSError, ValueError) as error:
            cause = getattr(error, "reason", error)
            # The hub's client has certificates of its own, so these need not be the last word.
            certificate = isinstance(cause, ssl.SSLError)
            outcome.append(None if certificate else f"{type(cause).__name__}: {cause}")
        else:
            outcome.append(None)

    # Looking up a name has no time limit of its own, so it happens in a thread left behind.
    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return outcome[0] if outcome else f"no answer within {PROBE_SECONDS:g} s"


def read_header(path: Path) -> dict[str, str]:
    """Return the metadata in a safetensors file; empty for other files and for files without.

    Raises
    ------
    ValueError
        If the file is no complete safetensors file.
    """
    if path.suffix != ".safetensors":
        return {}
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError, struct.error) as error:
        raise ValueError(
            f"{str(path)!r} is not a complete safetensors file ({error}); copy or save it again"
        ) from error


def check_shapes(model: torch.nn.Module, path: Path) -> None:
    """Refuse positional embeddings of another size, which open_clip would stretch silently.

    Raises
    ------
    ValueError
        If the sizes differ, or if the file holds anything but tensors.
    """
    wanted = model.state_dict()
    for key, shape in _positional_shapes(path).items():
        if key in wanted and tuple(wanted[key].shape) != shape:
            raise ValueError(
                f"the weights in {str(path)!r} do not fit the model: {key} has shape {shape}, the "
                f"model needs {tuple(wanted[key].shape)}; they are for another size of image or "
                "another context length, so take the configuration that they were trained with"
            )


def _positional_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    if path.suffix in (".npz", ".npy"):
        return {}
    if path.suffix == ".safetensors":
        with safe_open(path, framework="pt") as file:
            return {
                key: tuple(file.get_slice(key).get_shape())
                for key in file.keys()
                if key.endswith("positional_embedding")
            }
    state = load_plain(path)
    state = state.get("state_dict", state)
    return {
        key.removeprefix("module."): tuple(value.shape)
        for key, value in state.items()
        if key.endswith("positional_embedding")
    }


def load_plain(path: Path) -> dict[str, Any]:
    """Map a checkpoint written by ``torch.save``, refusing everything but plain data.

    Raises
    ------
    ValueError
        If it is a TorchScript archive, holds other objects, or cannot be read.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise ValueError(
            f"{str(path)!r} could not be read as a file of tensors: "
            f"{str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__} "
            "If it is an archive with code, as OpenAI's own release is, take the published "
            'weights instead, as in load_clip("ViT-B-32", pretrained="openai"); otherwise save '
            "model.state_dict()"
        ) from error
    if not isinstance(state, dict):
        raise ValueError(
            f"{str(path)!r} holds a {type(state).__name__}, not the state dict of a model; save "
            "model.state_dict()"
        )
    return state


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    return json.loads(path.read_text(encoding="utf-8"))
