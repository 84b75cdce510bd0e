"""Readers of data sets: labels that are right whatever the order of folders, and clear errors."""

from __future__ import annotations

import json

import numpy as np
import open_clip
import pytest

from tutorials_lib import datasets
from tutorials_lib.datasets import (
    DATASETS,
    SHIFTS,
    DatasetError,
    image_folder,
    imagenet_synsets,
    read_dataset,
    read_shift,
)


def touch(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.fixture(scope="module")
def imagenet_root(tmp_path_factory):
    """ImageNet and its shifts with one empty picture a class, two in training."""
    root = tmp_path_factory.mktemp("data")
    synsets = imagenet_synsets()
    for synset in synsets:
        for number in range(2):
            touch(root / "imagenet/images/train" / synset / f"{synset}_{number}.JPEG")
        touch(root / "imagenet/images/val" / synset / "ILSVRC2012_val_1.JPEG")
        touch(root / "imagenet-sketch/images" / synset / "sketch_1.JPEG")
    for label in range(1000):
        touch(root / "imagenetv2/imagenetv2-matched-frequency-format-val" / str(label) / "a.jpeg")
    for synset in synsets[::5]:
        touch(root / "imagenet-rendition/imagenet-r" / synset / "art_0.jpg")
    touch(root / "imagenet-rendition/imagenet-r/README.txt")
    for synset in synsets[2::5]:
        touch(root / "imagenet-adversarial/imagenet-a" / synset / "0.1_x.jpg")
    return root


# --- Folders


def test_folders_are_classes_in_sorted_order(tmp_path):
    touch(tmp_path / "cat/2.JPG", tmp_path / "cat/1.png", tmp_path / "ant/9.jpeg")
    folder = image_folder(tmp_path)
    assert folder.class_names == ("ant", "cat")
    assert [path.name for path in folder.paths] == ["9.jpeg", "1.png", "2.JPG"]
    np.testing.assert_array_equal(folder.labels, [0, 1, 1])
    assert repr(folder) == "ImageFolder(3 images, 2 classes)"


def test_numbered_folders_are_sorted_by_value(tmp_path):
    """As text, "10" would come before "2", and every label from 2 on would be wrong."""
    for label in range(12):
        touch(tmp_path / str(label) / "a.jpg")
    folder = image_folder(tmp_path)
    assert folder.class_names == tuple(map(str, range(12)))
    assert [path.parent.name for path in folder.paths] == list(map(str, folder.labels))


def test_hidden_entries_and_other_files_are_no_pictures(tmp_path):
    touch(tmp_path / "a/._1.jpg", tmp_path / "a/1.jpg", tmp_path / "a/notes.txt")
    touch(tmp_path / ".git/2.jpg", tmp_path / "list.txt")
    assert [path.name for path in image_folder(tmp_path).paths] == ["1.jpg"]


def test_given_folders_fix_the_labels_also_of_absent_classes(tmp_path):
    touch(tmp_path / "b/1.jpg")
    folder = image_folder(tmp_path, folders=["c", "b"], class_names=["sea", "bee"])
    np.testing.assert_array_equal(folder.labels, [1])
    np.testing.assert_array_equal(folder.present, [1])
    assert folder.class_names == ("sea", "bee")


def test_take_keeps_labels_and_class_names(tmp_path):
    touch(*(tmp_path / name / "1.jpg" for name in "abc"))
    folder = image_folder(tmp_path)
    part = folder.take([2, 0])
    assert [path.parent.name for path in part.paths] == ["c", "a"]
    np.testing.assert_array_equal(part.labels, [2, 0])
    assert part.class_names == folder.class_names


def test_folders_that_do_not_fit_are_named(tmp_path):
    with pytest.raises(DatasetError, match=r"no folder .*nowhere"):
        image_folder(tmp_path / "nowhere")
    touch(tmp_path / "a/1.jpg", tmp_path / "b/1.jpg")
    with pytest.raises(DatasetError, match="1 folders that are no class of this data set: b"):
        image_folder(tmp_path, folders=["a"])
    with pytest.raises(DatasetError, match="3 class names were given for 2 classes"):
        image_folder(tmp_path, class_names=["x", "y", "z"])
    (tmp_path / "c").mkdir()
    with pytest.raises(DatasetError, match=r"class folder .*c.* holds no picture"):
        image_folder(tmp_path)


# --- ImageNet


def test_synsets_and_class_names_are_in_one_order():
    """Against classes that everybody knows by number."""
    synsets = imagenet_synsets()
    assert len(set(synsets)) == 1000 and list(synsets) == sorted(synsets)
    names = dict(zip(synsets, open_clip.IMAGENET_CLASSNAMES, strict=True))
    assert names["n01440764"] == "tench" and synsets.index("n01440764") == 0
    assert names["n02123045"] == "tabby cat" and synsets.index("n02123045") == 281
    assert names["n07753592"] == "banana" and synsets.index("n07753592") == 954


def test_imagenet_labels_are_positions_of_synsets(imagenet_root):
    imagenet = read_dataset("imagenet", imagenet_root)
    assert (len(imagenet.train), len(imagenet.test)) == (2000, 1000)
    synsets = imagenet_synsets()
    for part in (imagenet.train, imagenet.test):
        assert [path.parent.name for path in part.paths] == [synsets[y] for y in part.labels]
        assert part.class_names[954] == "banana"
    assert len(imagenet.templates) == 80
    assert all(template.count("{}") == 1 for template in imagenet.templates)


def test_imagenet_v2_folders_are_labels_not_text(imagenet_root):
    v2 = read_shift("v2", imagenet_root)
    np.testing.assert_array_equal(v2.labels, np.arange(1000))
    assert [int(path.parent.name) for path in v2.paths] == list(range(1000))


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("sketch", np.arange(1000)),
        ("r", np.arange(0, 1000, 5)),
        ("a", np.arange(2, 1000, 5)),
    ],
)
def test_shifts_keep_the_labels_of_imagenet(imagenet_root, name, labels):
    """Subsets of 200 classes are not counted from 0 to 199."""
    shift = read_shift(name, imagenet_root)
    np.testing.assert_array_equal(shift.labels, labels)
    np.testing.assert_array_equal(shift.present, labels)
    assert len(shift.class_names) == 1000
    synsets = imagenet_synsets()
    assert [path.parent.name for path in shift.paths] == [synsets[y] for y in labels]


def test_incomplete_imagenet_is_refused_with_a_count(tmp_path):
    touch(tmp_path / "imagenet/images/train/n01440764/1.JPEG")
    with pytest.raises(DatasetError, match=r"must hold 1000 folders named like 'n01440764'.*1 of"):
        read_dataset("imagenet", tmp_path)
    touch(tmp_path / "imagenet-rendition/imagenet-r/n01443537/1.jpg")
    with pytest.raises(DatasetError, match="must hold 200 folders"):
        read_shift("r", tmp_path)
    with pytest.raises(DatasetError, match=r"no folder .*imagenet-sketch"):
        read_shift("sketch", tmp_path)


def test_validation_pictures_in_one_heap_are_recognised(tmp_path):
    """As the archive unpacks; without folders there are no labels."""
    touch(tmp_path / "ILSVRC2012_val_00000001.JPEG")
    with pytest.raises(DatasetError, match="sort the pictures into one folder for each class"):
        datasets._imagenet_classes(tmp_path)


# --- Data sets with a split file


SPLIT = {
    "train": [["a/1.jpg", 0, "banded_thing"], ["b/1.jpg", 1, "dotted"]],
    "val": [["a/2.jpg", 0, "banded_thing"]],
    "test": [["b/2.jpg", 1, "dotted"], ["/a/3.jpg", 0, "banded_thing"]],
}


def write_split(root, name, content=SPLIT):
    split = datasets._SPLITS[name]
    folder = root / split.folder
    for rows in content.values():
        touch(*(folder / split.images / row[0].lstrip("/") for row in rows))
    (folder / split.file).write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", datasets._SPLITS)
def test_split_files_are_read(tmp_path, name):
    """Training and validation pictures are one pool; names lose their underscores."""
    write_split(tmp_path, name)
    dataset = read_dataset(name, tmp_path)
    np.testing.assert_array_equal(dataset.train.labels, [0, 1, 0])
    np.testing.assert_array_equal(dataset.test.labels, [1, 0])
    assert dataset.train.class_names == ("banded thing", "dotted")
    assert not set(dataset.train.paths) & set(dataset.test.paths)
    assert all(path.is_file() for path in dataset.train.paths + dataset.test.paths)
    assert dataset.templates[0].format("x").count("x") >= 1


def test_aircraft_brings_its_own_split(tmp_path):
    folder = tmp_path / "fgvc_aircraft"
    touch(*(folder / "images" / f"{number}.jpg" for number in range(4)))
    (folder / "variants.txt").write_text("A340-300\nDH-82 Moth\n", encoding="utf-8")
    lines = {"train": "0000 DH-82 Moth", "val": "1 A340-300", "test": "2 A340-300\n3 DH-82 Moth"}
    for part, text in lines.items():
        (folder / f"images_variant_{part}.txt").write_text(text + "\n", encoding="utf-8")
    with pytest.raises(DatasetError, match=r"1 of 2 pictures .* first .*0000\.jpg"):
        read_dataset("fgvc_aircraft", tmp_path)
    touch(folder / "images/0000.jpg")
    aircraft = read_dataset("fgvc_aircraft", tmp_path)
    np.testing.assert_array_equal(aircraft.train.labels, [1, 0])
    np.testing.assert_array_equal(aircraft.test.labels, [0, 1])
    (folder / "images_variant_val.txt").write_text("1 Zeppelin\n", encoding="utf-8")
    with pytest.raises(DatasetError, match="variant 'Zeppelin', which is not in variants"):
        read_dataset("fgvc_aircraft", tmp_path)


def test_errors_name_the_expected_layout(tmp_path):
    with pytest.raises(DatasetError, match=r"split_zhou_DescribableTextures.json and the folder"):
        read_dataset("dtd", tmp_path)
    with pytest.raises(DatasetError, match=r"variants\.txt"):
        read_dataset("fgvc_aircraft", tmp_path)
    folder = write_split(tmp_path, "dtd")
    (folder / "images/a/1.jpg").unlink()
    with pytest.raises(DatasetError, match=r"1 of 3 pictures .* not there, first .*1\.jpg"):
        read_dataset("dtd", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"train": []}, "must map train, val and test"),
        ({**SPLIT, "val": [["a/2.jpg", 0]]}, "must map train, val and test"),
        ({**SPLIT, "val": [["a/2.jpg", 1, "other"]]}, "both 'dotted' and 'other'"),
        ({**SPLIT, "val": [["a/2.jpg", 3, "other"]]}, "without gaps"),
    ],
)
def test_split_files_that_do_not_fit_are_refused(tmp_path, content, message):
    folder = write_split(tmp_path, "eurosat")
    (folder / "split_zhou_EuroSAT.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(DatasetError, match=message):
        read_dataset("eurosat", tmp_path)


def test_unknown_names_are_refused(tmp_path):
    assert len(DATASETS) == 11 and SHIFTS == ("v2", "sketch", "r", "a")
    with pytest.raises(ValueError, match=r"must be one of imagenet, caltech101.*got 'cifar'"):
        read_dataset("cifar", tmp_path)
    with pytest.raises(ValueError, match="must be one of v2, sketch, r, a, got 'c'"):
        read_shift("c", tmp_path)


# --- Nothing is lost, and nothing read as something else


def test_a_folder_without_classes_is_an_error_and_not_empty(tmp_path):
    touch(tmp_path / "1.jpg")
    (tmp_path / "empty").mkdir()
    for folder, options in ((tmp_path / "empty", {}), (tmp_path / "empty", {"folders": ["a"]})):
        with pytest.raises(DatasetError, match="one folder for each class, it holds none"):
            image_folder(folder, **options)


def test_pictures_that_would_be_left_out_are_an_error(tmp_path):
    touch(tmp_path / "a/1.jpg", tmp_path / "a/more/deep/2.jpg", tmp_path / "a/notes/x.txt")
    with pytest.raises(DatasetError, match=r"class folder .*a.* first 'more'; .* in its folder it"):
        image_folder(tmp_path)
    (tmp_path / "a/more/deep/2.jpg").unlink()
    touch(tmp_path / "b/1.jpg", tmp_path / "top.png")
    with pytest.raises(DatasetError, match=r"1 pictures beside .* first 'top\.png'"):
        image_folder(tmp_path)
    (tmp_path / "top.png").unlink()
    assert len(image_folder(tmp_path)) == 2


def test_a_folder_called_like_a_picture_is_none(tmp_path):
    touch(tmp_path / "a/1.jpg")
    (tmp_path / "a/2.jpg").mkdir()
    assert [path.name for path in image_folder(tmp_path).paths] == ["1.jpg"]


def test_names_are_lists_without_repetition(tmp_path):
    touch(tmp_path / "a/1.jpg")
    with pytest.raises(DatasetError, match="folders must be distinct"):
        image_folder(tmp_path, folders=["a", "b", "a"])
    for option in ("folders", "class_names"):
        with pytest.raises(TypeError, match=rf"{option} must be a list .* write \['a'\]"):
            image_folder(tmp_path, **{option: "a"})


def test_take_reads_masks_and_refuses_fractions(tmp_path):
    """A mask read as positions would give the first two images over and over."""
    touch(*(tmp_path / name / "1.jpg" for name in "abc"))
    folder = image_folder(tmp_path)
    np.testing.assert_array_equal(folder.take(folder.labels == 2).labels, [2])
    np.testing.assert_array_equal(folder.take([False, True, True]).labels, [1, 2])
    assert len(folder.take([])) == 0
    with pytest.raises(IndexError, match=r"shape \(3,\)"):
        folder.take([True])
    for wrong in ([0.7], [[0]], 1, ["a"]):
        with pytest.raises(TypeError, match="whole numbers or a mask"):
            folder.take(wrong)


@pytest.mark.parametrize("label", [1.7, True, "1", -1, None])
def test_labels_of_split_files_are_whole_numbers(tmp_path, label):
    write_split(tmp_path, "dtd", {**SPLIT, "val": [["a/2.jpg", label, "dotted"]]})
    with pytest.raises(DatasetError, match="with labels 0, 1, 2, …: label must be"):
        read_dataset("dtd", tmp_path)


def test_files_saved_on_windows_are_read(tmp_path):
    """With a mark at the beginning, other ends of lines, and an empty line at the end."""
    folder = write_split(tmp_path, "dtd")
    file = folder / datasets._SPLITS["dtd"].file
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert len(read_dataset("dtd", tmp_path).train) == 3
    aircraft = tmp_path / "fgvc_aircraft"
    touch(*(aircraft / "images" / f"{number}.jpg" for number in range(2)))
    (aircraft / "variants.txt").write_bytes(b"\xef\xbb\xbfA340\r\nB747\r\n\r\n")
    for part in ("train", "val", "test"):
        lines = b"\xef\xbb\xbf0 A340\r\n1 B747\r\n\r\n"
        (aircraft / f"images_variant_{part}.txt").write_bytes(lines)
    dataset = read_dataset("fgvc_aircraft", tmp_path)
    assert dataset.test.class_names == ("A340", "B747")
    np.testing.assert_array_equal(dataset.test.labels, [0, 1])
