"""Homework for students, from the instructor notebooks in book/assignments.

``python book/tools/assignments.py FOLDER`` makes FOLDER a course of nbgrader, or brings one up to
date: sources with the present links to the chapters in FOLDER/source, what students get in
FOLDER/release, and the settings in FOLDER/nbgrader_config.py. `make assignments` calls it. What is
submitted, marks and feedback stay as they are.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import sys
from pathlib import Path

import nbformat
import yaml
from nbgrader.apps import NbGraderAPI
from traitlets.config import Config, PyFileConfigLoader

import setup_cell

CONFIG = "nbgrader_config.py"
LINK = re.compile(r"\[([^\]]*)\]\((\.\.?/[^)\s]+)\)")


class AssignmentError(Exception):
    """An assignment that cannot be released as it is."""


def sources(root: Path) -> list[Path]:
    """Return the instructor notebooks, book/assignments/NAME/NAME.ipynb."""
    found = sorted((root / "book" / "assignments").glob("*/*.ipynb"))
    return [path for path in found if path.stem == path.parent.name]


def published_address(root: Path) -> str | None:
    """Return where the book's pages are published, without a slash at the end.

    It is ``html: baseurl:`` in _config.yml, or else the GitHub Pages of the repository. None while
    the repository's address is undecided, or for another host than GitHub.
    """
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    given = config.get("html", {}).get("baseurl")
    if given:
        return given.rstrip("/")
    address = config["repository"]["url"]
    match = re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+)", address)
    if match is None or "owner--undecided" in address:
        return None
    owner, name = match.groups()
    host = f"https://{owner.lower()}.github.io"
    return host if name.lower() == f"{owner.lower()}.github.io" else f"{host}/{name}"


def pages(root: Path) -> set[str]:
    """Return the pages of the book, as _toc.yml names them."""
    text = (root / "_toc.yml").read_text(encoding="utf-8")
    return set(re.findall(r"(?:file|root): (\S+)", text))


def link_to_pages(text: str, folder: str, known: set[str], address: str | None) -> str:
    """Turn the relative links of a text into links to the published pages.

    Parameters
    ----------
    text
        Markdown.
    folder
        Where its file lies in the repository, with slashes.
    known
        The pages that exist; see `pages`.
    address
        Where they are published. If ``None``, a link becomes its words and the page's name.

    Raises
    ------
    AssignmentError
        If a link leads to no page of the book.
    """

    def replace(match: re.Match[str]) -> str:
        words, target = match.groups()
        target, _, anchor = target.partition("#")
        page = posixpath.normpath(posixpath.join(folder, posixpath.splitext(target)[0]))
        if page not in known:
            raise AssignmentError(
                f"{folder} links to {target}, which is no page of the book: {page} is not "
                "in _toc.yml"
            )
        if address is None:
            return f"{words} (`{page}` in the book)"
        return f"[{words}]({address}/{page}.html{'#' * bool(anchor)}{anchor})"

    return LINK.sub(replace, text)


def write_sources(root: Path, course: Path) -> list[str]:
    """Put settings and instructor notebooks into a course folder; return the assignments' names."""
    course.mkdir(parents=True, exist_ok=True)
    shutil.copy(root / "book" / "assignments" / CONFIG, course / CONFIG)
    known, address = pages(root), published_address(root)
    names = []
    for path in sources(root):
        notebook = nbformat.read(path, as_version=4)
        folder = path.parent.relative_to(root).as_posix()
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = link_to_pages(cell.source, folder, known, address)
        target = course / "source" / path.stem / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, target)
        names.append(path.stem)
    return names


def grader(course: Path) -> NbGraderAPI:
    """Return nbgrader's interface to a course folder, with the course's settings.

    nbgrader looks for a program of its own on the PATH, where a virtual environment that was not
    activated is missing; so the folder of this Python is put there.
    """
    programs = str(Path(sys.executable).parent)
    if programs not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = programs + os.pathsep + os.environ["PATH"]
    config = Config()
    config.merge(PyFileConfigLoader(CONFIG, path=str(course)).load_config())
    config.CourseDirectory.root = str(course.resolve())
    return NbGraderAPI(config=config)


def release(root: Path, course: Path) -> list[Path]:
    """Write the students' notebooks of all assignments into a course folder; return them.

    Raises
    ------
    AssignmentError
        With nbgrader's log, if it refuses an assignment.
    """
    names = write_sources(root, course)
    api = grader(course)
    for name in names:
        result = api.generate_assignment(name)
        if not result["success"]:
            raise AssignmentError(f"{name}\n{result.get('log')}\n{result.get('error')}")
    return [course / "release" / name / f"{name}.ipynb" for name in names]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        for path in release(setup_cell.ROOT, Path(sys.argv[1])):
            print(f"released {os.path.relpath(path)}")
    except AssignmentError as error:
        sys.exit(str(error))
