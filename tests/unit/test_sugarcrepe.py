"""Hard negatives from files, reports of choices, and that blind scores are at chance on our sets.

No test needs a network: files are written here, and downloads come from a server on this machine.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import math
import random
import threading
from pathlib import Path

import pytest
import torch
from scipy import stats

from tutorials_lib import captions, scenes
from tutorials_lib._choices import blind_baselines, choice_report
from tutorials_lib._english_edits import swap_english
from tutorials_lib._sugarcrepe import (
    SUGARCREPE_CATEGORIES,
    HardNegative,
    count_categories,
    load_sugarcrepe,
    sugarcrepe_hashes,
)


def written(folder: Path) -> Path:
    """Write all seven files, the n-th with n pairs; keys have gaps, as in the published ones."""
    for number, category in enumerate(SUGARCREPE_CATEGORIES, 1):
        entries = {
            str(3 * row): {
                "filename": f"{row:012d}.jpg",
                "caption": f"A café with {row} tables.",
                "negative_caption": f"A café with {row + 1} tables.",
            }
            for row in range(number)
        }
        text = json.dumps(entries, indent=4, ensure_ascii=False)
        (folder / f"{category}.json").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def server(tmp_path):
    """Serve a folder with the seven files on this machine."""
    folder = tmp_path / "remote" / "main"
    folder.mkdir(parents=True)
    written(folder)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Print nothing."""

    handler = functools.partial(Quiet, directory=str(folder.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{running.server_port}/{{revision}}"
        running.shutdown()
        thread.join()


def test_a_folder_is_read_in_the_order_of_categories(tmp_path):
    pairs = load_sugarcrepe(written(tmp_path))
    assert count_categories(pairs) == {
        category: number for number, category in enumerate(SUGARCREPE_CATEGORIES, 1)
    }
    assert pairs[2] == HardNegative(
        "000000000001.jpg", "A café with 1 tables.", "A café with 2 tables.", "add_obj"
    )
    some = load_sugarcrepe(str(tmp_path), categories=("swap_obj", "add_att"))
    assert count_categories(some) == {"swap_obj": 7, "add_att": 1}


def test_a_file_is_read_as_object_or_list_under_its_own_name(tmp_path):
    one = load_sugarcrepe(written(tmp_path) / "swap_att.json")
    assert count_categories(one) == {"swap_att": 6}
    entries = list(json.loads((tmp_path / "swap_att.json").read_text(encoding="utf-8")).values())
    (tmp_path / "mine.json").write_text(json.dumps(entries), encoding="utf-8")
    other = load_sugarcrepe(tmp_path / "mine.json")
    assert [(p.caption, p.negative) for p in other] == [(p.caption, p.negative) for p in one]
    assert count_categories(other) == {"mine": 6}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is no JSON in UTF-8"),
        (b'"\xff"', "is no JSON in UTF-8"),
        (b"{}", "at least one"),
        (b"3", "an object or a list of pairs"),
        (b'[{"filename": "a.jpg", "caption": "a dog"}]', "pair 0 of .* negative_caption"),
        (b'[{"filename": 3, "caption": "a dog", "negative_caption": ""}]', "pair 0 of"),
    ],
)
def test_files_of_another_form_are_refused(tmp_path, content, message):
    (tmp_path / "swap_att.json").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_sugarcrepe(tmp_path / "swap_att.json")


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file or folder .*clone https"):
        load_sugarcrepe(tmp_path / "nowhere")
    (written(tmp_path) / "swap_obj.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no swap_obj\.json"):
        load_sugarcrepe(tmp_path)
    assert len(load_sugarcrepe(tmp_path, categories=("swap_att",))) == 6


def test_arguments_that_do_not_go_together_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no source, and download is False"):
        load_sugarcrepe()
    with pytest.raises(ValueError, match="download=True needs source=None"):
        load_sugarcrepe(tmp_path, download=True)
    with pytest.raises(ValueError, match="categories must be among"):
        load_sugarcrepe(tmp_path, categories=("swap_rel",))
    with pytest.raises(ValueError, match="categories must be among"):
        load_sugarcrepe(tmp_path, categories=())
    with pytest.raises(ValueError, match="no categories to choose"):
        load_sugarcrepe(written(tmp_path) / "swap_att.json", categories=("swap_att",))


def test_hashes_are_those_of_the_files_and_are_checked(tmp_path):
    hashes = sugarcrepe_hashes(written(tmp_path))
    assert tuple(hashes) == SUGARCREPE_CATEGORIES
    content = (tmp_path / "add_obj.json").read_bytes()
    assert hashes["add_obj"] == hashlib.sha256(content).hexdigest()
    assert len(load_sugarcrepe(tmp_path, known_hash=hashes)) == 28
    with pytest.raises(ValueError, match=r"add_obj\.json has the SHA-256"):
        load_sugarcrepe(tmp_path, known_hash={**hashes, "add_obj": "sha256:00"})


def test_a_download_is_checked_and_kept(server, tmp_path):
    folder, url = server
    hashes, cache = sugarcrepe_hashes(folder), tmp_path / "cache"
    arguments = {"download": True, "known_hash": hashes, "cache": cache, "url": url}
    pairs = load_sugarcrepe(**arguments)
    assert pairs == load_sugarcrepe(folder)
    content = (folder / "add_att.json").read_bytes()
    (folder / "add_att.json").unlink()
    assert load_sugarcrepe(**arguments) == pairs, "the second time it comes from the cache"
    (cache / "add_att.json").write_bytes(b"{}")
    with pytest.raises(ConnectionError, match="could not download"):
        load_sugarcrepe(**arguments)
    (folder / "add_att.json").write_bytes(content)
    assert load_sugarcrepe(**arguments) == pairs, "a damaged file is fetched again"


def test_a_download_that_differs_leaves_nothing_behind(server, tmp_path):
    _, url = server
    cache = tmp_path / "cache"
    with pytest.raises(ValueError, match="does not match the known hash"):
        load_sugarcrepe(
            categories=("add_att",),
            download=True,
            known_hash={"add_att": "0"},
            cache=cache,
            url=url,
        )
    assert list(cache.glob("*")) == []


def test_a_download_needs_hashes_and_an_address(tmp_path):
    with pytest.raises(ValueError, match="known_hash is needed for add_att, add_obj"):
        load_sugarcrepe(download=True)
    with pytest.raises(ValueError, match="url must begin with https://"):
        load_sugarcrepe(
            categories=("add_att",),
            download=True,
            known_hash={"add_att": "0"},
            cache=tmp_path,
            url="file:///etc",
        )


def test_without_a_network_there_is_one_clear_error(server, tmp_path):
    """The server has no such revision; and nothing listens on port 9 of this machine."""
    for url, revision in ((server[1], "nowhere"), ("http://127.0.0.1:9/{revision}", "main")):
        with pytest.raises(ConnectionError, match=r"could not download http://.*clone https://"):
            load_sugarcrepe(
                categories=("add_att",),
                download=True,
                known_hash={"add_att": "0"},
                revision=revision,
                cache=tmp_path / "cache",
                url=url,
            )


def test_a_report_counts_ties_as_shares():
    report = choice_report([2.0, 1.0, 1.0, 0.0], [[1, 0], [1, 0], [1, 1], [1, 0]])
    assert report.accuracy == pytest.approx((1 + 1 / 2 + 1 / 3 + 0) / 4)
    assert (report.n, report.ties, report.chance) == (4, 2, pytest.approx(1 / 3))
    assert report.blind == {}


@pytest.mark.parametrize(("share", "n"), [(0, 10), (37, 50), (50, 50), (500, 1000)])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_interval_is_wilsons(share, n, level):
    """Against scipy."""
    right = torch.arange(n) < share
    report = choice_report(right.float(), torch.full((n,), 0.5), level=level)
    expected = stats.binomtest(share, n).proportion_ci(level, method="wilson")
    assert report.interval == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("wrong", [1, 2, 4])
@pytest.mark.parametrize("score", [0.0, 0.3, -1e9])
def test_case_22_a_constant_score_is_at_chance(wrong, score):
    report = choice_report(torch.full((60,), score), torch.full((60, wrong), score))
    assert report.accuracy == pytest.approx(1 / (wrong + 1), abs=1e-15)
    assert report.chance == 1 / (wrong + 1)
    assert report.ties == 60 and not report.above_chance


def test_a_right_score_is_above_chance():
    assert choice_report(torch.ones(20), torch.zeros(20)).above_chance


def test_scores_that_cannot_be_compared_are_refused():
    one = torch.ones(3)
    for right, wrong, message in [
        (one, torch.ones(2), "shape"),
        (torch.ones(3, 1), one, "shape"),
        (torch.ones(0), torch.ones(0), "shape"),
        (one, torch.ones(3, 0), "at least one score"),
        (one, torch.tensor([0.0, math.nan, 0.0]), "got NaN"),
    ]:
        with pytest.raises(ValueError, match=message):
            choice_report(right, wrong)
    with pytest.raises(ValueError, match="a pair for each of 3 choices, got 1"):
        choice_report(one, one, pairs=[("a", "b")])
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        choice_report(one, one, level=95)
    with pytest.raises(ValueError, match="pairs must not be empty"):
        blind_baselines([])


def test_blind_scores_see_what_they_are_meant_to_see():
    """Each of the four wins every choice of a set made for it."""
    pairs = {
        "shortest": [("a dog", "a dog on a sofa")] * 5,
        "longest": [("a dog on a sofa", "a dog")] * 5,
        "capital and full stop": [("A dog on a sofa.", "a dog on a sofa")] * 5,
        "common words": [("a dog and a dog", "a dog and a newt")] * 5,
    }
    for name, some in pairs.items():
        reports = blind_baselines(some)
        assert reports[name].accuracy == 1.0 and reports[name].ties == 0
        assert tuple(reports) == tuple(pairs)
    counts = {"newt": 100, "a": 1, "and": 1}
    rare = blind_baselines(pairs["common words"], counts=counts)
    assert rare["common words"].accuracy == 0.0


def test_pairs_of_all_kinds_are_taken_and_stand_beside_a_result():
    edit = swap_english("A red dog behind a blue cat.", "colour")
    three = [HardNegative("", edit.before, edit.after, ""), edit, (edit.before, edit.after)]
    report = choice_report(torch.ones(3), torch.zeros(3), pairs=three)
    assert report.accuracy == 1.0
    assert all(blind.accuracy == 0.5 and blind.ties == 3 for blind in report.blind.values())


def test_case_21_blind_scores_tie_on_every_swap():
    """Exactly: a swap keeps the words, up to "a" and "an", which are counted as one."""
    batch = scenes.sample_scenes(500, seed=0)
    texts = scenes.caption_scenes(batch, seed=1)
    pairs = [edit for text in texts if (edit := captions.swap_concepts(text, "colour"))]
    assert len(pairs) > 100
    for report in blind_baselines(pairs).values():
        assert report.accuracy == 0.5 and report.ties == len(pairs)


def test_case_21_blind_scores_are_at_chance_on_drawn_negatives():
    """Word counts come from elsewhere. A choice is 0, 1/2 or 1 with mean 1/2.

    By Hoeffding, one of the four means of n misses 1/2 by more than 3/√n with a probability below
    8·exp(−18), about 1e-7.
    """
    batch = scenes.sample_scenes(2500, seed=2)
    drawn = captions.sample_negatives(scenes.caption_scenes(batch, seed=3), batch, seed=4)
    pairs = [edit for edit in drawn if edit]
    assert len(pairs) > 2000
    rng = random.Random(5)
    counts = {word: rng.randrange(1, 10_000) for word in scenes.vocabulary()}
    for name, report in blind_baselines(pairs, counts=counts).items():
        assert abs(report.accuracy - 0.5) < 3 / math.sqrt(len(pairs)), name


def test_blind_scores_see_that_usual_words_replace_others():
    """Edits that are listed, not drawn, write no synonyms, and "common words" finds that out."""
    texts = ["a violet cube", "a gray ball", "a turquoise drum", "a purple cube"] * 10
    pairs = [e for t in texts for e in captions.edits(t, operators=("replace",), kinds=("colour",))]
    report = blind_baselines(pairs, counts={"violet": 9, "gray": 9, "turquoise": 9})
    assert report["common words"].above_chance
