"""What the name of a model stands for: configuration, activation, preprocessing, weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import open_clip
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from tutorials_lib._clip_weights import (
    MODELS_FOLDER,
    WEIGHT_NAMES,
    bundled_models,
    close_matches,
    hub_file,
    read_header,
    read_json,
    tag_file,
)

__all__ = ["HEADER", "PREPROCESS_DEFAULTS", "Source", "resolve"]

HEADER = "tutorials_lib.clip"
PREPROCESS_DEFAULTS: dict[str, Any] = {
    "mean": open_clip.OPENAI_DATASET_MEAN,
    "std": open_clip.OPENAI_DATASET_STD,
    "interpolation": "bicubic",
    "resize_mode": "shortest",
    "fill_color": 0,
}
# The bundled models see pixels in [-1, 1].
BUNDLED_PREPROCESS = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


@dataclass(frozen=True)
class Source:
    """What a name stands for."""

    name: str
    pretrained: str | None
    config: dict[str, Any]
    preprocess: Mapping[str, Any]
    path: Path
    tokenizer: Mapping[str, Any]


def resolve(
    name: str | Path, pretrained: str | Path | None, cache: str | None, quick_gelu: bool | None
) -> Source:
    if not isinstance(name, str | Path):
        raise TypeError(f"name must be a string or a path, got {name!r} ({type(name).__name__})")
    if not (pretrained is None or isinstance(pretrained, str | Path)):
        raise TypeError(
            "pretrained must be a tag, a path of a file or None, got "
            f"{pretrained!r} ({type(pretrained).__name__})"
        )
    if isinstance(name, Path) or Path(name).suffix in (".safetensors", ".pt", ".pth", ".bin"):
        return _from_saved(Path(name), pretrained, quick_gelu)
    if name.startswith("hf-hub:"):
        return _from_hub(name, pretrained, cache, quick_gelu)
    if name in _bundled_configs():
        return _from_bundled(name, pretrained, quick_gelu)
    return _from_open_clip(name, pretrained, cache, quick_gelu)


def _from_saved(path: Path, pretrained: Any, quick_gelu: bool | None) -> Source:
    if pretrained is not None:
        raise ValueError(
            f"{str(path)!r} is a file of weights, so pretrained={str(pretrained)!r} says too much"
        )
    header = _header_of(_existing(path))
    if header is None:
        raise ValueError(
            f"{str(path)!r} does not say which model its weights are for; give the name of the "
            f"configuration: load_clip(name, pretrained={str(path)!r})"
        )
    return _from_header(header, path, quick_gelu)


def _from_header(header: dict[str, Any], path: Path, quick_gelu: bool | None) -> Source:
    config = header["config"]
    config["quick_gelu"] = _agreed(quick_gelu, config["quick_gelu"], f"the header of {path.name}")
    return Source(
        header["name"],
        header["pretrained"],
        config,
        header["preprocess"],
        path,
        header["tokenizer"],
    )


def _from_hub(name: str, pretrained: Any, cache: str | None, quick_gelu: bool | None) -> Source:
    if pretrained is not None:
        raise ValueError(
            f"{name!r} names weights too, so pretrained={str(pretrained)!r} says too much"
        )
    repository = name.removeprefix("hf-hub:")
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise ValueError(
            f"name must read 'hf-hub:owner/repository', got {name!r}: {error}"
        ) from error
    described = read_json(hub_file(repository, ("open_clip_config.json",), cache, name))
    if "model_cfg" not in described:
        raise ValueError(f"{name!r} is no model of open_clip: its configuration has no model_cfg")
    config = described["model_cfg"]
    stated = bool(config.get("quick_gelu", False))
    config["quick_gelu"] = _agreed(quick_gelu, stated, f"the configuration of {name}")
    path = hub_file(repository, WEIGHT_NAMES, cache, name)
    preprocess = _known_entries(described.get("preprocess_cfg", {}))
    return Source(name, None, config, preprocess, path, {})


def _from_bundled(name: str, pretrained: Any, quick_gelu: bool | None) -> Source:
    config_path = _bundled_configs()[name]
    if config_path.stem not in open_clip.list_models():
        open_clip.add_model_config(config_path)
    path = MODELS_FOLDER / f"{name}.safetensors"
    if pretrained is not None:
        path = _existing(Path(pretrained))
    elif not path.is_file():
        raise RuntimeError(
            f"the weights of the bundled model {name!r} are not installed: there is no "
            f"{str(path)!r}; install the library again. Installed are: "
            f"{', '.join(bundled_models()) or 'none'}"
        )
    config = read_json(config_path)
    header = _header_of(path)
    if header is not None:
        _check_same_config(config, header["config"], name, path)
        return _from_header({**header, "name": name}, path, quick_gelu)
    stated = bool(config.get("quick_gelu", False))
    config["quick_gelu"] = _agreed(quick_gelu, stated, f"the configuration of {name}")
    words = config_path.with_name(f"{config_path.stem}_vocabulary.txt")
    tokenizer = {
        "words": words.read_text(encoding="utf-8").splitlines(),
        "context_length": config["text_cfg"]["context_length"],
    }
    given = None if pretrained is None else str(pretrained)
    return Source(name, given, config, BUNDLED_PREPROCESS, path, tokenizer)


def _from_open_clip(
    name: str, pretrained: str | Path | None, cache: str | None, quick_gelu: bool | None
) -> Source:
    known = open_clip.list_models()
    model = name.replace("/", "-")
    if model not in known and "/" in name and pretrained is None:
        head, _, tail = name.rpartition("/")
        if head.replace("/", "-") in known:
            model, pretrained = head.replace("/", "-"), tail
    if model not in known:
        raise ValueError(
            f"{name!r} is not the name of a model; the nearest are "
            f"{close_matches(name, [*_bundled_configs(), *known])}. Bundled: "
            f"{', '.join(bundled_models()) or 'none'}; open_clip.list_models() lists the others"
        )
    tags = open_clip.list_pretrained_tags_by_model(model)
    if pretrained is None:
        offered = f"one of {', '.join(tags)}, or a file" if tags else "a file of weights"
        raise ValueError(f"{model!r} has no weights of its own: give pretrained=..., {offered}")
    config = open_clip.get_model_config(model)
    if str(pretrained) in tags:
        tag = str(pretrained)
        published = open_clip.get_pretrained_cfg(model, tag)
        # Where only one of the two mentions QuickGELU, the other has left it out.
        stated = bool(config.get("quick_gelu", False)) or bool(published.get("quick_gelu", False))
        config["quick_gelu"] = _agreed(quick_gelu, stated, f"what open_clip says of {tag!r}")
        path = tag_file(model, tag, cache)
        return Source(model, tag, config, _known_entries(published), path, {})
    path = Path(pretrained)
    if not path.is_file():
        raise ValueError(
            f"pretrained={str(pretrained)!r} is neither a file nor the tag of published weights "
            f"of {model!r}; the nearest tags are {close_matches(str(pretrained), tags)}"
        )
    header = _header_of(path)
    if header is not None:
        _check_same_config(config, header["config"], model, path)
        return _from_header(header, path, quick_gelu)
    config["quick_gelu"] = _activation_of_file(config, model, path, quick_gelu)
    return Source(model, str(path), config, _agreed_preprocess(model, tags), path, {})


def _activation_of_file(
    config: Mapping[str, Any], model: str, path: Path, quick_gelu: bool | None
) -> bool:
    if "quick_gelu" in config:
        return _agreed(quick_gelu, bool(config["quick_gelu"]), f"the configuration {model!r}")
    if quick_gelu is not None:
        return quick_gelu
    if "timm_model_name" in config["vision_cfg"] and "hf_model_name" in config["text_cfg"]:
        return False  # both towers bring their own activation
    raise ValueError(
        f"it is not known whether the weights in {str(path)!r} were trained with QuickGELU (as "
        "OpenAI's were) or with GELU, and the embeddings differ; say quick_gelu=True or "
        "quick_gelu=False, and keep the answer with the weights by save_clip"
    )


def _agreed(asked: bool | None, stated: bool, where: str) -> bool:
    if asked is not None and asked != stated:
        raise ValueError(f"quick_gelu={asked} was asked for, but {where} says quick_gelu={stated}")
    return stated


def _agreed_preprocess(model: str, tags: list[str]) -> dict[str, Any]:
    """Return the preprocessing that all published weights of a model share, if they do."""
    found = [_known_entries(open_clip.get_pretrained_cfg(model, tag)) for tag in tags]
    return found[0] if found and all(entries == found[0] for entries in found) else {}


def _known_entries(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in entries.items()
        if key in PREPROCESS_DEFAULTS and value is not None
    }


def _bundled_configs() -> dict[str, Path]:
    """Return the configuration of each bundled model: its own, or that of the family."""
    configs = {path.stem: path for path in sorted(MODELS_FOLDER.glob("*.json"))}
    for name in bundled_models():
        family = name.split("-")[0]
        if name not in configs and family in configs:
            configs[name] = configs[family]
    return configs


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    return path


def _header_of(path: Path) -> dict[str, Any] | None:
    text = read_header(path).get(HEADER)
    return None if text is None else json.loads(text)


def _check_same_config(
    named: Mapping[str, Any], saved: Mapping[str, Any], name: str, path: Path
) -> None:
    """Refuse weights whose header describes another model; an unstated activation is no claim."""
    one, other = _flat(named), _flat(saved)
    if "quick_gelu" not in one:
        other.pop("quick_gelu", None)
    keys = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
    if keys:
        differences = "; ".join(f"{key}: {one.get(key)} and {other.get(key)}" for key in keys)
        raise ValueError(
            f"the weights in {str(path)!r} are not for {name!r}: configuration and header differ "
            f"in {differences}; load_clip({str(path)!r}) takes the header's"
        )


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = list(value) if isinstance(value, tuple) else value
    return flat
