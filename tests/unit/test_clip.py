"""Loading and embedding: the right model, the right rows, and errors that say what to do.

Models here are tiny and random; nothing touches the network.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import time
import warnings
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from tutorials_lib import (
    _clip_sources,
    _clip_weights,
    _embedding_pipeline,
    bench_embedding,
    clip,
)
from tutorials_lib._clip_weights import MODELS_FOLDER
from tutorials_lib.clip import (
    EmbeddingStore,
    ImageError,
    StoreError,
    bundled_models,
    embed_images,
    embed_texts,
    load_clip,
    save_clip,
    zero_shot_weights,
)

CONFIG = {
    "embed_dim": 8,
    "vision_cfg": {"image_size": 16, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 8, "heads": 1, "layers": 1},
}
TINY = "tiny-test-model"


def random_model(config=CONFIG, seed: int = 0, **more) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return open_clip.CLIP(**config, **more).eval().requires_grad_(False)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def picture(seed: int = 0, size=(20, 28)) -> Image.Image:
    return Image.fromarray(noise(*size, 3, seed=seed))


def write_pictures(folder: Path, n: int, kind: str = "png") -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{index:03}.{kind}" for index in range(n)]
    for index, path in enumerate(paths):
        picture(index).save(path)
    return paths


@pytest.fixture(scope="module", autouse=True)
def registered(tmp_path_factory):
    """Register the tiny configuration, as anybody can."""
    path = tmp_path_factory.mktemp("configs") / f"{TINY}.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    open_clip.add_model_config(path)


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_file(random_model().state_dict(), path)
    return path


@pytest.fixture(scope="module")
def tiny(weights):
    return load_clip(TINY, pretrained=weights, device="cpu", quick_gelu=False)


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """A hub whose machine refuses connections, and an empty cache."""
    monkeypatch.setattr(_clip_weights.huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(_clip_weights.huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "cache"


# --- The activation


def test_case_01_weights_of_unknown_activation_are_refused_or_used_as_told(weights):
    with pytest.raises(ValueError, match=r"QuickGELU.*say quick_gelu=True or quick_gelu=False"):
        load_clip(TINY, pretrained=weights, device="cpu")
    vectors = {}
    for flag in (True, False):
        loaded = load_clip(TINY, pretrained=weights, device="cpu", quick_gelu=flag)
        vectors[flag] = embed_images(loaded, [picture()]).vectors
        reference = random_model(quick_gelu=flag)
        pixels = loaded.preprocess(picture())[None]
        assert torch.equal(vectors[flag], reference.encode_image(pixels, normalize=True))
    assert (vectors[True] - vectors[False]).abs().max() > 1e-3


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_case_01_saved_and_reloaded_gives_the_same_embeddings(weights, tmp_path, flag, precision):
    """By its path alone, and under the name of a configuration that does not say."""
    options = {"device": "cpu", "precision": precision}
    custom = {"mean": (0.1, 0.2, 0.3), "interpolation": "bilinear", "resize_mode": "squash"}
    first = load_clip(TINY, pretrained=weights, quick_gelu=flag, preprocess_cfg=custom, **options)
    path = tmp_path / "é saved.safetensors"
    save_clip(first, path)
    images, texts = [picture(), picture(1)], ["a cat", "two dogs"]
    for again in (load_clip(path, **options), load_clip(TINY, pretrained=path, **options)):
        assert again.fingerprint == first.fingerprint
        assert again.config["quick_gelu"] is flag
        assert torch.equal(embed_images(again, images).vectors, embed_images(first, images).vectors)
        assert torch.equal(embed_texts(again, texts).vectors, embed_texts(first, texts).vectors)
    with pytest.raises(
        ValueError, match=f"the header of é saved.safetensors says quick_gelu={flag}"
    ):
        load_clip(path, quick_gelu=not flag, **options)


def test_case_01_published_weights_bring_their_activation(monkeypatch, tmp_path):
    """For every pair that open_clip lists: QuickGELU if the model or the weights say so."""
    monkeypatch.setattr(_clip_sources, "tag_file", lambda *_: tmp_path / "weights")
    n_changed = 0
    for name, tag in open_clip.list_pretrained():
        model = open_clip.get_model_config(name).get("quick_gelu", False)
        published = open_clip.get_pretrained_cfg(name, tag).get("quick_gelu", False)
        source = _clip_sources.resolve(name, tag, None, None)
        assert source.config["quick_gelu"] == (model or published), (name, tag)
        n_changed += source.config["quick_gelu"] and not model
    assert n_changed >= 20
    source = _clip_sources.resolve("ViT-B-32/openai", None, None, None)
    assert (source.name, source.pretrained, source.config["quick_gelu"]) == (
        "ViT-B-32",
        "openai",
        True,
    )
    assert _clip_sources.resolve("ViT-B/32", "openai", None, None).name == "ViT-B-32"
    siglip = _clip_sources.resolve("ViT-B-16-SigLIP/webli", None, None, None)
    assert siglip.preprocess["mean"] == (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match=r"'openai' says quick_gelu=True"):
        _clip_sources.resolve("ViT-B-32", "openai", None, False)


def test_case_01_a_header_for_another_configuration_names_the_keys(tiny, tmp_path):
    path = tmp_path / "other.safetensors"
    save_clip(tiny, path)
    with pytest.raises(ValueError, match=r"differ in embed_dim: 512 and 8; text_cfg\.heads: 8 and"):
        load_clip("ViT-B-32", pretrained=path, device="cpu")
    with pytest.raises(ValueError, match=r"differ in .*quick_gelu: True and False"):
        load_clip("ViT-B-32-quickgelu", pretrained=path, device="cpu")


# --- Texts


def test_case_02_long_captions_are_flagged_and_so_are_those_that_became_one(tiny):
    long = "word " * 75
    captions = ["a cat", long + "red", long + "blue", "A  CAT", "a cat", "word " * 74 + "red"]
    with pytest.warns(
        RuntimeWarning, match="2 of 6 texts are longer than the 77 tokens.*rows 1, 2"
    ):
        result = embed_texts(tiny, captions)
    assert result.truncated == (1, 2)
    assert result.identical == ((0, 3, 4), (1, 2))
    assert torch.equal(result.vectors[1], result.vectors[2])
    assert not torch.equal(result.vectors[1], result.vectors[5])
    assert "2 truncated" in repr(result)


def test_captions_repeated_as_they_are_need_no_flag(tiny):
    assert embed_texts(tiny, ["a cat", "a dog", "a cat"]).identical == ()


@pytest.mark.filterwarnings("ignore:.*texts are longer")
def test_tokens_are_those_of_open_clip(tiny, monkeypatch):
    """On odd texts and around the limit, by both ways of finding what was cut."""
    texts = ["", " ", "Ünïcode 图 🙂 &amp; <end_of_text>", "a" * 500]
    texts += ["word " * n for n in (1, 74, 75, 76, 77, 200)]
    reference = open_clip.get_tokenizer(TINY)(texts)
    result = embed_texts(tiny, texts)
    expected = random_model().encode_text(reference, normalize=True)
    torch.testing.assert_close(result.vectors, expected, atol=1e-6, rtol=0)
    lengths = [len(tiny.tokenizer.encode(text)) for text in texts]
    cut = tuple(row for row, length in enumerate(lengths) if length > 75)
    assert result.truncated == cut
    monkeypatch.setattr(_embedding_pipeline, "SimpleTokenizer", type(None))
    general = embed_texts(tiny, texts)
    assert general.truncated == cut
    assert torch.equal(general.vectors, result.vectors)


def test_texts_must_be_a_list_of_strings(tiny):
    assert embed_texts(tiny, []).vectors.shape == (0, 8)
    with pytest.raises(TypeError, match=r"got one string; write \['a cat'\]"):
        embed_texts(tiny, "a cat")
    with pytest.raises(TypeError, match="got set"):
        embed_texts(tiny, {"a cat"})
    with pytest.raises(TypeError, match=r"got nan \(float\) in row 1"):
        embed_texts(tiny, ["a cat", float("nan")])
    three = embed_texts(tiny, (f"{n} cats" for n in range(3))).vectors
    assert torch.equal(embed_texts(tiny, np.array(["0 cats", "1 cats", "2 cats"])).vectors, three)


def test_a_hundred_thousand_captions(tiny):
    """What is repeated is computed once."""
    captions = [f"{index % 50} cats" for index in range(100_000)]
    result = embed_texts(tiny, captions, progress=False)
    assert result.vectors.shape == (100_000, 8)
    few = embed_texts(tiny, captions[:50]).vectors
    torch.testing.assert_close(result.vectors[-50:], few, atol=1e-6, rtol=0)


def test_zero_shot_weights_are_normalised_means_of_unit_vectors(tiny):
    templates = ("a photo of {}", "a drawing of {}", "{}")
    result = zero_shot_weights(tiny, ["a cat", "a dog"], templates=templates)
    for row, name in enumerate(["a cat", "a dog"]):
        vectors = embed_texts(tiny, [t.format(name) for t in templates]).vectors.double()
        mean = vectors.sum(dim=0)
        torch.testing.assert_close(result[row].double(), mean / mean.norm(), atol=1e-6, rtol=0)
    assert zero_shot_weights(tiny, []).shape == (0, 8)
    with pytest.raises(ValueError, match=r"templates must hold '\{\}' each"):
        zero_shot_weights(tiny, ["a cat"], templates=["a photo"])
    with pytest.raises(TypeError, match="templates must be a list"):
        zero_shot_weights(tiny, ["a cat"], templates="a photo of {}")


# --- Images


def test_case_03_bad_files_keep_their_rows_and_say_why(tiny, tmp_path):
    paths = write_pictures(tmp_path / "é 图", 5, "jpg")
    paths[1].write_bytes(paths[1].read_bytes()[:300])
    paths[3].write_bytes(b"")
    (tmp_path / "é 图" / "note.txt").write_text("no picture", encoding="utf-8")
    with pytest.warns(RuntimeWarning, match="2 of 5 images could not be embedded.*row 1") as caught:
        result = embed_images(tiny, tmp_path / "é 图", batch_size=2)
    assert len(caught) == 1
    assert result.paths == tuple(paths)
    assert list(result.failed) == [1, 3]
    assert "001.jpg" in result.failed[1]
    assert result.failed[3].endswith("003.jpg: the file is empty")
    for row in (0, 2, 4):
        alone = embed_images(tiny, [paths[row]]).vectors[0]
        torch.testing.assert_close(result.vectors[row], alone, atol=1e-6, rtol=0)
    assert result.vectors[[1, 3]].isnan().all()
    with pytest.raises(ImageError, match=r"row 1: .*001\.jpg"):
        embed_images(tiny, paths, on_error="raise")


@pytest.mark.filterwarnings("ignore:.*could not be embedded")
def test_files_that_are_missing_or_no_pictures_are_reported(tiny, tmp_path):
    (tmp_path / "note.txt").write_text("no picture", encoding="utf-8")
    items = [tmp_path / "gone.png", str(tmp_path / "note.txt"), tmp_path, None, picture()]
    result = embed_images(tiny, items, workers=0)
    assert list(result.failed) == [0, 1, 2, 3]
    assert "gone.png: No such file" in result.failed[0]
    assert "note.txt: not a picture" in result.failed[1]
    assert str(tmp_path) in result.failed[2]
    assert result.vectors[4].isfinite().all()
    assert result.paths[3:] == (None, None)


def test_case_04_every_mode_and_single_pixels_embed(tiny):
    modes = ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F"]
    images = [picture().convert("L").convert(mode) for mode in modes if mode not in ("I;16",)]
    images.append(Image.fromarray(noise(9, 9).astype(np.uint16) * 257))
    images += [Image.new(mode, (1, 1)) for mode in modes]
    palette = picture().quantize(8)
    palette.info["transparency"] = 0
    result = embed_images(tiny, [*images, palette], on_error="raise")
    torch.testing.assert_close(result.vectors.norm(dim=1), torch.ones(len(result)))
    gray = result.vectors[1]
    for row in (4, 5):  # RGB and RGBA of the same picture
        torch.testing.assert_close(result.vectors[row], gray, atol=1e-6, rtol=0)


def test_case_04_a_rotated_photograph_embeds_like_the_upright_one(tiny, tmp_path):
    upright = picture()
    exif = Image.Exif()
    exif[0x0112] = 6
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    result = embed_images(tiny, [tmp_path / "turned.png", upright]).vectors
    torch.testing.assert_close(result[0], result[1], atol=1e-6, rtol=0)


def test_case_05_repeated_calls_are_equal_without_gradients(tiny):
    assert not tiny.model.training
    assert not any(parameter.requires_grad for parameter in tiny.model.parameters())
    images, texts = [picture(n) for n in range(5)], ["a cat", "a dog"]
    first, second = (embed_images(tiny, images).vectors for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(embed_texts(tiny, texts).vectors, embed_texts(tiny, texts).vectors)
    assert not first.requires_grad
    # The vectors are ordinary tensors, so something can be trained on them.
    layer = torch.nn.Linear(8, 1)
    layer(first).sum().backward()


def test_case_05_a_model_in_training_mode_embeds_as_in_evaluation_mode(tmp_path):
    """Batch normalisation would mix the rows of a batch, and learn from them."""
    vision = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "head_width": 8}
    config = {**CONFIG, "vision_cfg": vision, "quick_gelu": False}
    save_file(random_model(config).state_dict(), tmp_path / "w.safetensors")
    (tmp_path / "tiny-resnet.json").write_text(json.dumps(config), encoding="utf-8")
    open_clip.add_model_config(tmp_path / "tiny-resnet.json")
    loaded = load_clip("tiny-resnet", pretrained=tmp_path / "w.safetensors", device="cpu")
    images = [picture(n) for n in range(4)]
    before, fingerprint = embed_images(loaded, images).vectors, loaded.fingerprint
    loaded.model.train()
    assert torch.equal(embed_images(loaded, images).vectors, before)
    assert loaded.model.training
    assert loaded.fingerprint == fingerprint
    half = load_clip(
        "tiny-resnet", pretrained=tmp_path / "w.safetensors", device="cpu", precision="bf16"
    )
    torch.testing.assert_close(embed_images(half, images).vectors, before, atol=0.05, rtol=0)


def test_case_05_half_precision_gives_float32_of_unit_norm(weights, tiny):
    half = load_clip(TINY, pretrained=weights, device="cpu", precision="bf16", quick_gelu=False)
    assert half.model.visual.conv1.weight.dtype == torch.bfloat16
    images, texts = [picture(n) for n in range(3)], ["a cat", "two dogs"]
    for result, reference in (
        (embed_images(half, images), embed_images(tiny, images)),
        (embed_texts(half, texts), embed_texts(tiny, texts)),
    ):
        assert result.vectors.dtype == torch.float32
        torch.testing.assert_close(
            result.vectors.norm(dim=1), torch.ones(len(result)), atol=1e-6, rtol=0
        )
        torch.testing.assert_close(result.vectors, reference.vectors, atol=0.05, rtol=0)
    with pytest.raises(ValueError, match=r"'fp16' is for GPUs.*'bf16' or 'fp32'"):
        load_clip(TINY, pretrained=weights, device="cpu", precision="fp16")
    with pytest.raises(ValueError, match="one of fp32, fp16, bf16, got 'int8'"):
        load_clip(TINY, pretrained=weights, device="cpu", precision="int8")


def test_case_05_memory_stays_flat(tiny, monkeypatch):
    """Pictures are read at most a little ahead, and no tensor stays behind a batch."""
    given, seen, alive = 0, [], []

    def pictures():
        nonlocal given
        for index in range(400):
            given += 1
            yield picture(index)

    encode_image = tiny.model.encode_image

    def counting(pixels):
        done = sum(seen)
        seen.append(len(pixels))
        assert given - done <= 3 * 8 + 8
        if len(seen) in (5, 50):
            alive.append(sum(type(thing) is torch.Tensor for thing in gc.get_objects()))
        return encode_image(pixels)

    monkeypatch.setattr(tiny.model, "encode_image", counting)
    assert embed_images(tiny, pictures(), batch_size=8, workers=2).vectors.shape == (400, 8)
    assert seen == [8] * 50
    assert alive[1] <= alive[0] + 2


@pytest.mark.parametrize("batch_size", [1, 3, 64])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batch_size_and_workers_change_nothing(tiny, batch_size, workers):
    images = [picture(n, size=(10 + n, 30)) for n in range(20)]
    reference = torch.cat(
        [tiny.model.encode_image(tiny.preprocess(i)[None], normalize=True) for i in images]
    )
    result = embed_images(tiny, images, batch_size=batch_size, workers=workers).vectors
    torch.testing.assert_close(result, reference, atol=1e-5, rtol=0)
    texts = [f"{n} cats" for n in range(20)]
    torch.testing.assert_close(
        embed_texts(tiny, texts, batch_size=batch_size).vectors,
        embed_texts(tiny, texts).vectors,
        atol=1e-5,
        rtol=0,
    )


def test_one_picture_in_every_form_has_one_embedding(tiny, tmp_path):
    array = noise(16, 16, 3)
    image = Image.fromarray(array)
    image.save(tmp_path / "a.png")
    channels_first = torch.from_numpy(array).permute(2, 0, 1)
    expected = embed_images(tiny, [image]).vectors
    for form in (
        [array],
        [array / 255],
        array[None],
        channels_first[None],
        channels_first[None].float() / 255,
        channels_first[None].double() / 255,
        [channels_first],
        [channels_first.float() / 255],
        [str(tmp_path / "a.png")],
        iter([tmp_path / "a.png"]),
        np.array([str(tmp_path / "a.png")]),
        tmp_path,
        str(tmp_path),
    ):
        torch.testing.assert_close(embed_images(tiny, form).vectors, expected, atol=1e-6, rtol=0)
    given = channels_first[None].float() / 255
    kept = given.clone()
    embed_images(tiny, given)
    assert torch.equal(given, kept)
    big = noise(40, 24, 3)
    batch = torch.from_numpy(big).permute(2, 0, 1)[None]
    expected = embed_images(tiny, [Image.fromarray(big)]).vectors
    for form in (batch, batch.float() / 255):
        torch.testing.assert_close(embed_images(tiny, form).vectors, expected, atol=1e-6, rtol=0)


def test_batches_with_wrong_shapes_or_values_are_refused(tiny):
    pixels = torch.rand(4, 3, 16, 16)
    for bad, words in (
        (pixels[:, :1], r"shape \(N, 3, height, width\), got \(4, 1, 16, 16\)"),
        (pixels.permute(0, 2, 3, 1), "channels come second"),
        (pixels * 255, r"must lie in \[0, 1\], got values from .* in rows 0 to 3"),
        (pixels * 4 - 2, "not normalised"),
        (noise(2, 3, 16, 16), "a batch with channels first must be a tensor"),
    ):
        with pytest.raises(ValueError, match=words):
            embed_images(tiny, bad)
    with pytest.raises(TypeError, match="got int64"):
        embed_images(tiny, (pixels * 255).long())
    pixels[2, 1, 3, 3] = torch.nan
    with pytest.warns(RuntimeWarning, match="1 of 4 images.*row 2"):
        result = embed_images(tiny, pixels, batch_size=3)
    assert list(result.failed) == [2]
    assert result.vectors[[0, 1, 3]].isfinite().all()


def test_what_is_no_list_of_images_is_refused(tiny, tmp_path):
    for single in (picture(), noise(5, 5, 3), torch.rand(3, 16, 16), b"abc"):
        with pytest.raises(TypeError, match=r"put it into a list: \[image\]"):
            embed_images(tiny, single)
    for other in ({"a": 1}, {1, 2}, 7, None):
        with pytest.raises(TypeError, match="a folder, a list, a generator or a batch"):
            embed_images(tiny, other)
    with pytest.raises(FileNotFoundError):
        embed_images(tiny, tmp_path / "nowhere")
    with pytest.raises(ValueError, match="on_error must be"):
        embed_images(tiny, [], on_error="ignore")
    for empty in ([], iter([]), torch.zeros(0, 3, 16, 16), torch.zeros(0, 3, 5, 5)):
        assert embed_images(tiny, empty).vectors.shape == (0, 8)


def test_a_generator_may_be_of_any_length_and_paths_may_repeat(tiny, tmp_path):
    paths = write_pictures(tmp_path, 3)
    order = [paths[index % 3] for index in range(150)]
    result = embed_images(tiny, (path for path in order), batch_size=7)
    assert result.paths == tuple(order)
    torch.testing.assert_close(result.vectors[147:], result.vectors[:3], atol=1e-6, rtol=0)


def test_an_error_in_a_generator_comes_through(tiny):
    def broken():
        yield from [picture()] * 20
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        embed_images(tiny, broken(), batch_size=4)


def test_a_model_that_gives_nan_is_reported(weights):
    loaded = load_clip(TINY, pretrained=weights, device="cpu", quick_gelu=False)
    loaded.model.visual.proj.data[0, 0] = torch.inf
    loaded.model.text_projection.data[:] = 0
    with pytest.warns(RuntimeWarning, match="2 of 2 images"):
        assert "NaN" in embed_images(loaded, [picture(), picture(1)]).failed[1]
    with pytest.warns(RuntimeWarning, match="for the texts in rows 0"):
        result = embed_texts(loaded, ["a cat"])
    assert list(result.failed) == [0]
    assert result.vectors.isnan().all()


# --- Devices, names and files


def test_case_06_devices_by_name(weights):
    options = {"pretrained": weights, "quick_gelu": False}
    assert load_clip(TINY, device="CPU", **options).device == torch.device("cpu")
    best = load_clip(TINY, **options)
    assert embed_texts(best, ["a cat"]).vectors.device == torch.device("cpu")
    with pytest.raises(RuntimeError, match=r"'cuda:99' was asked for but is not available"):
        load_clip(TINY, device="CUDA:99", **options)


def test_case_07_no_network_and_no_weights_is_one_clear_error(no_hub):
    for name, pretrained, repository in (
        ("ViT-B-32", "openai", "timm/vit_base_patch32_clip_224.openai"),
        ("hf-hub:somebody/model", None, "somebody/model"),
        ("ViT-B-16-SigLIP/webli", None, "timm/ViT-B-16-SigLIP"),
    ):
        start = time.monotonic()
        with pytest.raises(RuntimeError) as caught:
            load_clip(name, pretrained=pretrained, device="cpu", cache_dir=no_hub)
        assert time.monotonic() - start < 10
        message = str(caught.value)
        for part in (name, repository, str(no_hub), "127.0.0.1", "refused", "need no network"):
            assert part in message
        for model in bundled_models():
            assert f"load_clip({model!r})" in message


def test_case_07_a_network_that_swallows_everything_does_not_hang(no_hub, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(_clip_weights.huggingface_hub.constants, "ENDPOINT", address)
        monkeypatch.setattr(_clip_weights, "PROBE_SECONDS", 0.3)
        start = time.monotonic()
        with pytest.raises(RuntimeError, match=r"no answer within 0\.3 s|timed out"):
            load_clip("ViT-B-32/openai", device="cpu", cache_dir=no_hub)
        assert time.monotonic() - start < 10


def test_case_07_offline_by_choice_is_respected(no_hub, monkeypatch):
    monkeypatch.setattr(_clip_weights.huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(RuntimeError, match="HF_HUB_OFFLINE is set"):
        load_clip("ViT-B-32/openai", device="cpu", cache_dir=no_hub)


def test_weights_in_the_cache_need_no_network(no_hub):
    """A hub model as its client stores it."""
    root = no_hub / "models--somebody--tiny"
    snapshot = root / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("0" * 40, encoding="utf-8")
    described = {
        "model_cfg": {**CONFIG, "quick_gelu": True},
        "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3, "resize_mode": "squash"},
    }
    (snapshot / "open_clip_config.json").write_text(json.dumps(described), encoding="utf-8")
    model = random_model(quick_gelu=True)
    save_file(model.state_dict(), snapshot / "open_clip_model.safetensors")
    loaded = load_clip("hf-hub:somebody/tiny", device="cpu", cache_dir=no_hub)
    assert loaded.preprocess_cfg["std"] == [0.25] * 3
    pixels = loaded.preprocess(picture())[None]
    expected = model.encode_image(pixels, normalize=True)
    torch.testing.assert_close(embed_images(loaded, [picture()]).vectors, expected)
    with pytest.raises(ValueError, match="says too much"):
        load_clip("hf-hub:somebody/tiny", pretrained="openai", cache_dir=no_hub)


def test_names_that_are_nearly_right_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"'VitB32' is not the name .*'ViT-B-32'"):
        load_clip("VitB32")
    with pytest.raises(ValueError, match=r"nearest are .*'scene'"):
        load_clip("scenes")
    with pytest.raises(ValueError, match="nearest tags are 'openai'"):
        load_clip("ViT-B-32", pretrained="open-ai")
    with pytest.raises(ValueError, match=r"give pretrained=\.\.\., one of openai, "):
        load_clip("ViT-B-32")
    with pytest.raises(TypeError, match="name must be a string or a path"):
        load_clip(3)


def test_weights_that_do_not_fit_name_the_keys(weights, tmp_path):
    state = load_file(weights)
    options = {"device": "cpu", "quick_gelu": False}

    def saved(changed):
        save_file(changed, tmp_path / "w.safetensors")
        return tmp_path / "w.safetensors"

    without = {key: value for key, value in state.items() if key != "ln_final.weight"}
    for changed, words in (
        (without, r"Missing key.*ln_final\.weight"),
        ({**state, "extra.weight": torch.zeros(2)}, r"Unexpected key.*extra\.weight"),
        ({**state, "visual.proj": torch.zeros(2, 2)}, r"size mismatch for visual\.proj"),
        # open_clip would stretch these two without a word.
        (
            {**state, "positional_embedding": torch.zeros(40, 8)},
            r"positional_embedding has shape \(40, 8\), the model needs \(77, 8\)",
        ),
        (
            {**state, "visual.positional_embedding": torch.zeros(10, 16)},
            r"visual\.positional_embedding has shape \(10, 16\)",
        ),
        ({**state, "visual.proj": state["visual.proj"] * torch.nan}, r"NaN .* 1 tensors: visual"),
    ):
        with pytest.raises(ValueError, match=words):
            load_clip(TINY, pretrained=saved(changed), **options)
    (tmp_path / "w.safetensors").write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ValueError, match="not a complete safetensors file"):
        load_clip(TINY, pretrained=tmp_path / "w.safetensors", **options)


def test_checkpoints_of_torch_save_are_read_as_plain_tensors_only(tiny, tmp_path):
    state = random_model().state_dict()
    options = {"device": "cpu", "quick_gelu": False}
    for content in (
        state,
        {"epoch": 3, "state_dict": {f"module.{k}": v for k, v in state.items()}},
    ):
        torch.save(content, tmp_path / "w.pt")
        loaded = load_clip(TINY, pretrained=tmp_path / "w.pt", **options)
        assert loaded.fingerprint == tiny.fingerprint
    for content, words in (
        (random_model(), r"could not be read as a file of tensors.*model\.state_dict\(\)"),
        ([1, 2], "holds a list"),
    ):
        torch.save(content, tmp_path / "w.pt")
        with pytest.raises(ValueError, match=words):
            load_clip(TINY, pretrained=tmp_path / "w.pt", **options)
    (tmp_path / "w.pt").write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match="could not be read"):
        load_clip(TINY, pretrained=tmp_path / "w.pt", **options)


def test_files_that_are_missing_or_say_nothing(weights, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load_clip(tmp_path / "gone.safetensors")
    with pytest.raises(ValueError, match="does not say which model"):
        load_clip(weights)
    with pytest.raises(ValueError, match="says too much"):
        load_clip(weights, pretrained="openai")
    with pytest.raises(ValueError, match="preprocess_cfg may hold mean, std"):
        load_clip(TINY, pretrained=weights, preprocess_cfg={"crop": 3})


def test_a_tokenizer_too_large_for_the_text_tower_is_refused(tmp_path):
    config = {**CONFIG, "quick_gelu": False, "text_cfg": {**CONFIG["text_cfg"], "vocab_size": 50}}
    (tmp_path / "tiny-words.json").write_text(json.dumps(config), encoding="utf-8")
    open_clip.add_model_config(tmp_path / "tiny-words.json")
    save_file(random_model(config).state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="has 49408 tokens, its text tower only 50"):
        load_clip("tiny-words", pretrained=tmp_path / "w.safetensors", device="cpu")


def test_saving_leaves_no_half_file_and_refuses_what_it_cannot_keep(tiny, tmp_path):
    save_clip(tiny, tmp_path / "a.safetensors")
    assert os.listdir(tmp_path) == ["a.safetensors"]
    with pytest.raises(ValueError, match=r"must end in '\.safetensors'"):
        save_clip(tiny, tmp_path / "a.pt")
    foreign = clip.Clip(**{**vars(tiny), "tokenizer": lambda texts: torch.zeros(1)})
    with pytest.raises(TypeError, match="tokenizer of type function cannot be saved"):
        save_clip(foreign, tmp_path / "b.safetensors")


def test_temperature_and_fingerprint(tiny, weights):
    assert tiny.temperature == pytest.approx(0.07, rel=1e-6)
    other = load_clip(TINY, pretrained=weights, device="cpu", quick_gelu=True)
    shifted = load_clip(
        TINY,
        pretrained=weights,
        device="cpu",
        quick_gelu=False,
        preprocess_cfg={"mean": (0.5, 0.5, 0.5)},
    )
    again = load_clip(TINY, pretrained=weights, device="cpu", quick_gelu=False)
    assert again.fingerprint == tiny.fingerprint
    again.model.logit_scale.data += 1
    prints = {c.fingerprint for c in (tiny, other, shifted, again)}
    assert len(prints) == 4
    assert "8 dimensions, images of 16, texts of 77 tokens, fp32 on cpu" in repr(tiny)


# --- The family of bundled models


def scene_weights(path: Path) -> torch.nn.Module:
    config = json.loads((MODELS_FOLDER / "scene.json").read_text(encoding="utf-8"))
    model = random_model({key: value for key, value in config.items() if key != "quick_gelu"})
    state = {k: v.half() if v.is_floating_point() else v for k, v in model.state_dict().items()}
    save_file(state, path)
    return model.half().float()


def test_the_scene_configuration_loads_here_and_in_open_clip(tmp_path):
    model = scene_weights(tmp_path / "w.safetensors")
    loaded = load_clip("scene", pretrained=tmp_path / "w.safetensors", device="cpu")
    assert loaded.preprocess_cfg["mean"] == (0.5, 0.5, 0.5)
    assert (loaded.embed_dim, loaded.image_size, loaded.context_length) == (64, 48, 20)
    theirs, _, _ = open_clip.create_model_and_transforms(
        "scene", pretrained=str(tmp_path / "w.safetensors")
    )
    pixels = loaded.preprocess(picture())[None]
    for reference in (model, theirs.eval()):
        expected = reference.encode_image(pixels, normalize=True)
        torch.testing.assert_close(
            embed_images(loaded, [picture()]).vectors, expected, atol=1e-6, rtol=0
        )
    save_clip(loaded, tmp_path / "s.safetensors")
    again = load_clip(tmp_path / "s.safetensors", device="cpu")
    assert again.fingerprint == loaded.fingerprint
    texts = ["a red cube", "a blue sphere"]
    assert torch.equal(embed_texts(again, texts).vectors, embed_texts(loaded, texts).vectors)


def test_case_02_words_that_the_model_does_not_know_are_flagged(tmp_path):
    scene_weights(tmp_path / "w.safetensors")
    loaded = load_clip("scene", pretrained=tmp_path / "w.safetensors", device="cpu")
    captions = ["a red cube", "a flurb cube", "A blarg cube.", "red " * 18, "red " * 19]
    with pytest.warns(RuntimeWarning, match="1 of 5 texts are longer.*2 of 5 .*blarg, flurb"):
        result = embed_texts(loaded, captions)
    assert result.unknown == {1: ["flurb"], 2: ["blarg"]}
    assert result.truncated == (4,)
    assert result.identical == ((1, 2), (3, 4))


def test_bundled_models_load_without_a_network(no_hub):
    """All that are installed, and a clear error for a family member that is not."""
    for name in bundled_models():
        loaded = load_clip(name, device="cpu", cache_dir=no_hub)
        assert embed_images(loaded, [picture()]).vectors.shape == (1, loaded.embed_dim)
        assert not embed_texts(loaded, ["a red cube"]).unknown
    if "scene" not in bundled_models():
        with pytest.raises(RuntimeError, match="weights of the bundled model 'scene' are not"):
            load_clip()


# --- With a store


def refuse(*_args, **_kwargs):
    raise AssertionError("nothing is to be computed or read")


def test_a_second_run_embeds_nothing_and_reads_nothing(tiny, tmp_path, monkeypatch):
    paths = write_pictures(tmp_path / "pictures", 20)
    for path in paths:
        os.utime(path, (1e9, 1e9))
    store = EmbeddingStore(tmp_path / "store")
    first = embed_images(tiny, tmp_path / "pictures", store=store, batch_size=8)
    assert (first.from_store, len(store)) == (0, 20)
    monkeypatch.setattr(tiny.model, "encode_image", refuse)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    for held in (store, EmbeddingStore(tmp_path / "store")):
        second = embed_images(tiny, tmp_path / "pictures", store=held)
        assert second.from_store == 20
        assert torch.equal(second.vectors, first.vectors)
        assert second.paths == first.paths
    assert "20 from the store" in repr(second)


def test_the_store_goes_by_content(tiny, tmp_path):
    paths = write_pictures(tmp_path / "pictures", 4)
    store = EmbeddingStore(tmp_path / "store")
    first = embed_images(tiny, paths, store=store).vectors
    paths[0] = paths[0].rename(tmp_path / "renamed.png")
    picture(99).save(paths[1])
    result = embed_images(tiny, [*paths, paths[1]], store=store)
    assert result.from_store == 3
    assert torch.equal(result.vectors[[0, 2, 3]], first[[0, 2, 3]])
    expected = embed_images(tiny, [picture(99)]).vectors[0]
    torch.testing.assert_close(result.vectors[1], expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(result.vectors[4], expected, atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("ignore:.*could not be embedded")
def test_an_interrupted_run_goes_on_where_it_was(tiny, tmp_path, monkeypatch):
    paths = write_pictures(tmp_path / "pictures", 20)
    paths[2].write_bytes(b"")
    store = EmbeddingStore(tmp_path / "store")
    encode_image = tiny.model.encode_image
    n_batches = 0

    def interrupted(pixels):
        nonlocal n_batches
        n_batches += 1
        if n_batches == 3:
            raise KeyboardInterrupt
        return encode_image(pixels)

    with monkeypatch.context() as patch:
        patch.setattr(tiny.model, "encode_image", interrupted)
        with pytest.raises(KeyboardInterrupt):
            embed_images(tiny, paths, store=store, batch_size=4)
    result = embed_images(tiny, paths, store=EmbeddingStore(tmp_path / "store"), batch_size=4)
    assert result.from_store == 8
    assert list(result.failed) == [2]
    expected = embed_images(tiny, paths).vectors
    torch.testing.assert_close(result.vectors, expected, atol=1e-5, rtol=0, equal_nan=True)


def test_damaged_rows_of_a_store_are_computed_anew(tiny, tmp_path):
    paths = write_pictures(tmp_path / "pictures", 3)
    first = embed_images(tiny, paths, store=EmbeddingStore(tmp_path / "store")).vectors
    data = bytearray((tmp_path / "store" / "vectors").read_bytes())
    data[40] ^= 255
    (tmp_path / "store" / "vectors").write_bytes(data)
    with pytest.warns(RuntimeWarning, match="1 rows of the store .* computed anew"):
        second = embed_images(tiny, paths, store=EmbeddingStore(tmp_path / "store"))
    assert second.from_store == 2
    torch.testing.assert_close(second.vectors, first, atol=1e-6, rtol=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        third = embed_images(tiny, paths, store=EmbeddingStore(tmp_path / "store"))
    assert third.from_store == 3


def test_a_store_refuses_other_models_and_pictures_in_memory(tiny, weights, tmp_path):
    paths = write_pictures(tmp_path / "pictures", 2)
    store = EmbeddingStore(tmp_path / "store")
    embed_images(tiny, paths, store=store)
    other = load_clip(TINY, pretrained=weights, device="cpu", quick_gelu=True)
    with pytest.raises(StoreError, match=f"holds embeddings of {TINY}"):
        embed_images(other, paths, store=store)
    for form in ([picture()], torch.rand(1, 3, 16, 16), torch.rand(1, 3, 9, 9)):
        with pytest.raises(TypeError, match="images must be paths or a folder"):
            embed_images(tiny, form, store=store)


def test_the_benchmark_compares_equal_embeddings(capsys):
    """The ways that it times give one result; how fast they are is for it to say."""
    bench_embedding.main(["--images", "40", "--files", "5", "--side", "96", "--rounds", "1"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split("  ")[0] for row in rows] == [
        "tensors, bare loop",
        "tensors, embed_images",
        "JPEG files, bare loop",
        "JPEG files, embed_images",
        "JPEG files, with a full store",
    ]
    assert all(float(row.split()[-1]) <= 1e-5 for row in rows)


# --- Arguments that make no sense


@pytest.mark.parametrize(
    ("entries", "error", "words"),
    [
        ({"mean": (0.5,)}, ValueError, r"\['mean'\] must hold three numbers"),
        ({"mean": 0.5}, ValueError, r"\['mean'\] must hold three numbers"),
        ({"mean": None}, TypeError, r"\['mean'\]"),
        ({"std": (0.5, 0.5, 0.0)}, ValueError, r"\['std'\] must hold three numbers > 0"),
        ({"std": ("a", "b", "c")}, TypeError, r"\['std'\]"),
        ({"interpolation": "nearest"}, ValueError, "one of 'bicubic', 'bilinear'"),
        ({"resize_mode": "crop"}, ValueError, "one of 'shortest', 'longest', 'squash'"),
        ({"fill_color": "white"}, TypeError, "fill_color"),
        ({"fill_color": 300}, ValueError, "between 0 and 255, got 300"),
        ({"size": 3}, ValueError, "may hold mean, std, .*, got size"),
        ([("mean", (0.5, 0.5, 0.5))], TypeError, "dictionary of entries"),
    ],
)
def test_preprocessing_that_makes_no_sense_is_refused_at_once(weights, entries, error, words):
    with pytest.raises(error, match=words):
        load_clip(TINY, pretrained=weights, quick_gelu=False, preprocess_cfg=entries)


def test_preprocessing_may_be_given_as_arrays_and_tensors(weights, tmp_path):
    options = {"pretrained": weights, "device": "cpu", "quick_gelu": False}
    plain = load_clip(TINY, preprocess_cfg={"mean": (0.5, 0.5, 0.25), "std": (1, 1, 1)}, **options)
    entries = {"mean": np.array([0.5, 0.5, 0.25]), "std": torch.ones(3)}
    given = load_clip(TINY, preprocess_cfg=entries, **options)
    assert given.preprocess_cfg == plain.preprocess_cfg
    assert given.fingerprint == plain.fingerprint
    save_clip(given, tmp_path / "given.safetensors")


def test_weights_that_are_no_name_and_no_path_are_refused():
    for name in ("scene", "ViT-B-32"):
        with pytest.raises(TypeError, match=r"pretrained must be a tag, a path .* got 3"):
            load_clip(name, pretrained=3)
    with pytest.raises(ValueError, match="must read 'hf-hub:owner/repository', got 'hf-hub:'"):
        load_clip("hf-hub:")


def test_values_out_of_range_are_refused_whatever_the_size_of_the_batch(tiny):
    """Normalised pixels are a mistake of the whole batch, and not of single pictures."""
    for size in (16, 20):
        pixels = torch.rand(3, 3, size, size)
        with pytest.raises(ValueError, match=r"must lie in \[0, 1\].*in rows 2 to 2"):
            embed_images(tiny, torch.cat([pixels[:2], pixels[2:] * 4 - 2]), batch_size=2)
        pixels[0, 0, 0, 0] = torch.inf
        with pytest.warns(RuntimeWarning, match="1 of 3 images"):
            assert list(embed_images(tiny, pixels).failed) == [0]


def test_batches_with_a_gradient_embed_without_a_warning(tiny):
    pixels = torch.rand(2, 3, 16, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = embed_images(tiny, pixels.clone().requires_grad_())
    assert torch.equal(result.vectors, embed_images(tiny, pixels).vectors)


def test_tensors_without_pixels_keep_their_row(tiny):
    """One odd item does not stop the others."""
    items = [picture(), torch.zeros(3, 4, 4, device="meta"), torch.rand(3, 4, 4).to_sparse()]
    with pytest.warns(RuntimeWarning, match="2 of 3 images"):
        result = embed_images(tiny, items)
    assert list(result.failed) == [1, 2]
    assert result.vectors[0].isfinite().all()


def test_a_store_is_a_store_and_a_list_a_list(tiny):
    with pytest.raises(TypeError, match=r"got str; write store=EmbeddingStore\(folder\)"):
        embed_images(tiny, [picture()], store="embeddings")
    with pytest.raises(TypeError, match="a folder, a list, a generator or a batch"):
        embed_images(tiny, np.array("a.png"))
