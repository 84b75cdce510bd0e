"""The tools that build the book: setup cell, address, execution cache."""

import re
import shutil
import subprocess
import sys
import types
from importlib.metadata import requires, version

import cover
import execution
import nbformat
import numpy as np
import pytest
import setup_cell
import slides
from PIL import Image

PLACEHOLDER = "https://github.com/owner--undecided/clip-book"
MINE = "https://github.com/me/my-book"


@pytest.fixture
def book(tmp_path):
    """A copy of the parts of the book that the tools read, with one small notebook."""
    for name in ("_config.yml", "requirements.txt"):
        shutil.copy(setup_cell.ROOT / name, tmp_path)
    (tmp_path / "tutorials_lib").mkdir()
    (tmp_path / "tutorials_lib" / "module.py").write_text("value = 1\n", encoding="utf-8")
    (tmp_path / "book" / "part").mkdir(parents=True)
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell("", metadata={"tags": ["setup"]}),
            nbformat.v4.new_code_cell("answer = 6 * 7\nanswer"),
        ]
    )
    nbformat.write(notebook, tmp_path / "book" / "part" / "chapter.ipynb")
    return tmp_path


def chapter(book):
    return nbformat.read(book / "book" / "part" / "chapter.ipynb", as_version=4)


def run_setup_cell(monkeypatch, address, *, colab, home, installed=False):
    """Execute the cell and return the commands it would have run."""
    commands = []

    def run(command, check):
        assert check, "a failed installation must not go unnoticed"
        commands.append(command)
        if command[0] == "git":
            (home / "clip-book" / "book" / "part").mkdir(parents=True)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("pathlib.Path.home", lambda: home)
    monkeypatch.setattr(sys, "path", list(sys.path))
    find_spec = "importlib.util.find_spec"
    monkeypatch.setattr(find_spec, lambda name: object() if installed else None)
    if colab:
        monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    exec(compile(setup_cell.setup_cell(address), "setup", "exec"), {})
    return commands


def test_setup_cell_does_nothing_outside_colab(monkeypatch, tmp_path):
    path = list(sys.path)
    assert run_setup_cell(monkeypatch, PLACEHOLDER, colab=False, home=tmp_path) == []
    assert sys.path == path and not any(tmp_path.iterdir())


def test_setup_cell_installs_nothing_while_the_address_is_undecided(monkeypatch, tmp_path):
    """Whoever came to own the placeholder's name could otherwise run code at our readers."""
    with pytest.raises(RuntimeError, match="make address"):
        run_setup_cell(monkeypatch, PLACEHOLDER, colab=True, home=tmp_path)
    assert not any(tmp_path.iterdir())


def test_the_placeholder_cannot_be_owned():
    """GitHub's account names have single hyphens only."""
    assert "--" in PLACEHOLDER.split("/")[3]


def test_case_26_colab_keeps_numpy_and_torch_and_finds_files(monkeypatch, tmp_path):
    clone, install = run_setup_cell(monkeypatch, MINE, colab=True, home=tmp_path)
    assert clone[0] == "git" and MINE in clone
    constraints = install[install.index("-c") + 1]
    pins = (tmp_path / "clip-book" / "colab-constraints.txt").read_text(encoding="utf-8")
    assert constraints == str(tmp_path / "clip-book" / "colab-constraints.txt")
    for name in ("numpy", "torch"):
        assert f"{name}=={version(name)}" in pins.splitlines()
    assert install[-1] == str(tmp_path / "clip-book")
    assert str(tmp_path / "clip-book" / "book" / "part") in sys.path


def test_setup_cell_is_quick_the_second_time(monkeypatch, tmp_path):
    (tmp_path / "clip-book" / "book").mkdir(parents=True)
    commands = run_setup_cell(monkeypatch, MINE, colab=True, home=tmp_path, installed=True)
    assert commands == []


def test_make_address_sets_configuration_and_notebooks(book):
    setup_cell.set_address(book, MINE + ".git")
    assert setup_cell.address_in_config(book / "_config.yml") == MINE
    assert chapter(book).cells[0].source == setup_cell.setup_cell(MINE)
    assert PLACEHOLDER not in (book / "_config.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("wrong", ["", "me/book", "http://github.com/me/book", "https://a.b/c d/e"])
def test_make_address_refuses_what_is_no_address(book, wrong):
    before = (book / "_config.yml").read_bytes()
    with pytest.raises(ValueError, match=re.escape("https://github.com/you/your-book")):
        setup_cell.set_address(book, wrong)
    assert (book / "_config.yml").read_bytes() == before


def test_a_notebook_without_setup_cell_is_named(book):
    path = book / "book" / "part" / "chapter.ipynb"
    nbformat.write(nbformat.v4.new_notebook(), path)
    with pytest.raises(ValueError, match=r"chapter\.ipynb has 0 cells tagged 'setup'"):
        setup_cell.write_setup_cells(book)


@pytest.mark.parametrize(
    "change", ["tutorials_lib/module.py", "requirements.txt", "book/part/table.csv"]
)
def test_case_28_a_change_behind_unchanged_cells_empties_the_cache(book, change):
    cache = book / "cache"
    assert execution.empty_stale_cache(book, cache)
    (cache / "outputs").touch()
    assert not execution.empty_stale_cache(book, cache)
    assert (cache / "outputs").exists()
    with (book / change).open("a", encoding="utf-8") as file:
        file.write("\n")
    assert execution.empty_stale_cache(book, cache)
    assert not (cache / "outputs").exists()


def test_execution_fills_the_cache_once(book):
    cache = book / "cache"
    execution.empty_stale_cache(book, cache)
    notebooks = setup_cell.notebooks(book)
    assert list(execution.execute(notebooks, cache, timeout=60, cores=2)) == ["chapter.ipynb"]
    assert execution.execute(notebooks, cache, timeout=60, cores=2) == {}


def test_a_failing_cell_names_notebook_and_traceback(book):
    notebook = chapter(book)
    notebook.cells[1].source = "1 / 0"
    nbformat.write(notebook, book / "book" / "part" / "chapter.ipynb")
    cache = book / "cache"
    execution.empty_stale_cache(book, cache)
    with pytest.raises(execution.NotebookError) as caught:
        execution.execute(setup_cell.notebooks(book), cache, timeout=60, cores=2)
    assert "chapter.ipynb" in str(caught.value) and "ZeroDivisionError" in str(caught.value)


def test_homework_is_no_chapter_but_has_the_setup_cell(book):
    homework = book / "book" / "assignments" / "one" / "one.ipynb"
    homework.parent.mkdir(parents=True)
    shutil.copy(book / "book" / "part" / "chapter.ipynb", homework)
    assert [path.name for path in setup_cell.chapters(book)] == ["chapter.ipynb"]
    assert homework in setup_cell.write_setup_cells(book)


def test_homework_leaves_the_cache_of_the_chapters_alone(book):
    before = execution.fingerprint(book)
    (book / "book" / "assignments").mkdir()
    (book / "book" / "assignments" / "wrong.py").touch()
    assert execution.fingerprint(book) == before


def test_slides_open_at_headings_and_leave_code_out(book):
    """What a chapter's directives, roles and links become where nothing knows them."""
    markdown, code, output = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell, nbformat.v4
    printed = [output.new_output("stream", text="42")]
    drawn = [output.new_output("display_data", {"text/html": "<figure></figure>"})]
    notebook = chapter(book)
    notebook.cells += [
        markdown("# Title\n\nText {cite:p}`key` and [a link](../part/other.ipynb).\n\n## Part"),
        code("print(42)", outputs=printed),
        code("import numpy"),
        code("assert True", outputs=printed, metadata={"tags": ["check"]}),
        code("\n" * 20 + "draw()", outputs=drawn),
        markdown(":::{prf:theorem} Name\n:label: thm-x\n\nClaim.\n:::\n\n## Exercises\n\nOne"),
        code("solution", outputs=printed),
    ]
    shown = [
        (cell.source.strip(), cell.metadata.slideshow.slide_type, cell.metadata.get("tags"))
        for cell in slides.deck(notebook).cells
    ]
    assert shown == [
        ("# Title\n\nText [key] and a link.", "slide", None),
        ("## Part", "slide", None),
        ("print(42)", "fragment", []),
        ("draw()", "subslide", ["no-code"]),
        ("**Theorem (Name).**\n\nClaim.", "subslide", None),
    ]


def test_a_proof_is_folded_on_a_slide():
    text = ":::{prf:proof}\nEvery step.\n:::"
    assert slides.plain(text) == "<details><summary>Proof</summary>\n\nEvery step.\n\n</details>"


def test_dependencies_are_read_from_requirements_by_section():
    """The library's install list and the whole list come from one file."""
    text = (setup_cell.ROOT / "requirements.txt").read_text(encoding="utf-8")
    library = re.search(r"# \[library\].*?\n(.*?)\n\n", text, flags=re.DOTALL).group(1)
    declared = [name for name in requires("tutorials_lib") if "extra ==" not in name]
    assert sorted(declared) == sorted(library.splitlines())


def test_case_27_jupyter_book_2_is_kept_out():
    text = (setup_cell.ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert "jupyter-book>=1.0.4,<2" in text.splitlines()


def test_the_landing_page_shows_what_the_renderer_draws():
    """The file is lossy, the mean error of its pixels is below 2 of 255; other scenes give 20."""
    picture = np.asarray(Image.open(cover.FILE).convert("RGB")).astype(int)
    assert np.abs(picture - cover.cover()).mean() < 3
