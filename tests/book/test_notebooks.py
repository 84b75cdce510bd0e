"""What every notebook of the book promises, read from its source without running it."""

import ast
import json
import re

import pytest
import setup_cell
import statements
import yaml

ROOT = setup_cell.ROOT
NOTEBOOKS = setup_cell.notebooks(ROOT)
CHAPTERS = setup_cell.chapters(ROOT)
ADDRESS = setup_cell.address_in_config(ROOT / "_config.yml")


def toc_files():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [toc["root"]] + [c["file"] for part in toc["parts"] for c in part["chapters"]]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return json.loads(request.param.read_text(encoding="utf-8"))


@pytest.fixture(params=CHAPTERS, ids=lambda path: path.stem)
def chapter(request):
    return json.loads(request.param.read_text(encoding="utf-8"))


def code(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def source(cell):
    return "".join(cell["source"])


def test_every_chapter_is_in_the_contents_and_every_entry_exists():
    listed = {name for name in toc_files() if not (ROOT / f"{name}.md").is_file()}
    assert listed == {path.relative_to(ROOT).with_suffix("").as_posix() for path in CHAPTERS}


def test_case_32_committed_without_outputs(notebook):
    for cell in code(notebook):
        assert cell["outputs"] == [] and cell["execution_count"] is None, source(cell)[:80]


def test_claims_are_asserted(notebook):
    """nbval compares nothing in a notebook without outputs: only asserts check anything."""
    trees = [ast.parse(source(cell)) for cell in code(notebook)]
    asserts = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    assert len(asserts) >= 3
    assert not any(isinstance(node.test, ast.Constant) for node in asserts), "it cannot fail"


def test_setup_cell_is_the_books_own(notebook):
    tagged = [cell for cell in code(notebook) if "setup" in cell["metadata"].get("tags", [])]
    assert [source(cell) for cell in tagged] == [setup_cell.setup_cell(ADDRESS)], (
        "run: python book/tools/setup_cell.py write"
    )
    assert code(notebook)[0] is tagged[0], "the setup cell comes before all other code"


def test_kernel_is_the_plain_python_one(notebook):
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"


def test_shape_of_a_chapter(chapter):
    """The parts that a reader finds in every chapter, and at least three exercises."""
    text = "\n".join(source(cell) for cell in chapter["cells"] if cell["cell_type"] == "markdown")
    for part in ("**You will**", "**You need**", "**Time**"):
        assert part in text, part
    headings = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    for part in ("Where it breaks", "Summary", "Exercises"):
        assert any(heading.startswith(part) for heading in headings), f"{part}: {headings}"
    exercises = re.findall(r"^:::\{exercise\}", text, flags=re.MULTILINE)
    solutions = [cell for cell in code(chapter) if "solution" in cell["metadata"].get("tags", [])]
    assert 3 <= len(exercises) <= 5
    assert len(exercises) == text.count("<summary>Solution") == len(solutions)


def test_solutions_are_folded_in_the_book_in_jupyter_and_in_colab(chapter):
    for cell in code(chapter):
        if "solution" in cell["metadata"].get("tags", []):
            assert "hide-cell" in cell["metadata"]["tags"]
            assert cell["metadata"]["jupyter"]["source_hidden"]
            assert cell["metadata"]["cellView"] == "form" and source(cell).startswith("# @title")


def test_no_custom_tex_macro_in_use():
    """Colab does not know the book's configuration, so there must be none to know."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert "tex" not in config["sphinx"]["config"]["mathjax3_config"]


def test_case_29_launch_buttons_point_to_files_of_the_repository():
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    book = ROOT / config["repository"]["path_to_book"]
    for path in NOTEBOOKS:
        assert (book / path.relative_to(ROOT)).is_file()
    assert config["launch_buttons"]["colab_url"] == "https://colab.research.google.com"


def test_case_30_files_are_utf8_with_unix_line_ends():
    for pattern in ("book/**/*.ipynb", "book/**/*.md", "book/**/*.py", "tutorials_lib/*.py"):
        for path in ROOT.glob(pattern):
            content = path.read_bytes()
            content.decode("utf-8")
            assert b"\r\n" not in content, path


def test_every_statement_has_a_title_a_label_and_a_check(notebook):
    """So that the index of statements can name it and lead to the cell that checks it."""
    cells = notebook["cells"]
    texts = [source(cell) if cell["cell_type"] == "markdown" else "" for cell in cells]
    opened = [len(re.findall(r"^:::\{prf:(?!proof|definition)", text, re.M)) for text in texts]
    assert opened == [len(statements.STATEMENT.findall(text)) for text in texts]
    checks = [cell["cell_type"] == "code" and "assert " in source(cell) for cell in cells]
    assert all(any(checks[place:]) for place, number in enumerate(opened) if number)


def test_index_of_statements_follows_the_contents():
    chapters = [one for _, part in statements.parts(ROOT) for one in part]
    order = [name for name in toc_files() if (ROOT / f"{name}.ipynb").is_file()]
    paths = [one.path.with_suffix("").as_posix() for one in chapters]
    assert paths == [name for name in order if name in set(paths)] and len(paths) > 10
    labels = [label for one in chapters for label, _ in one.statements]
    assert len(labels) == len(set(labels)) > 90


def test_labels_are_unique_in_the_whole_book():
    """Two equal labels are a warning of a cold build only; a warm one does not see them."""
    owners = {}
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for label in re.findall(r"^:label: (\S+)", source(cell), flags=re.MULTILINE):
                owners.setdefault(label, []).append(path.stem)
    assert {label: paths for label, paths in owners.items() if len(paths) > 1} == {}
