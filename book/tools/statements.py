"""The index of statements: every theorem of the book, with its chapter and the cell that checks it.

``{statements}`` on a page lists them in the order of _toc.yml. The cell that checks a statement is
the first one behind it that asserts something; it gets the anchor ``check-LABEL``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

STATEMENT = re.compile(
    r"^:::\{prf:(?:theorem|proposition|corollary|lemma)\} (?P<title>.+)\n:label: (?P<label>\S+)$",
    re.MULTILINE,
)


class Statement(NamedTuple):
    """A numbered statement of a chapter."""

    label: str
    title: str


class Chapter(NamedTuple):
    """A chapter with statements: its path from the root, its title and they."""

    path: Path
    title: str
    statements: list[Statement]


def parts(root: Path) -> Iterator[tuple[str, list[Chapter]]]:
    """Yield the captions of the parts that have statements, and their chapters."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    for part in toc["parts"]:
        found = [chapter(root, Path(entry["file"])) for entry in part["chapters"]]
        kept = [one for one in found if one is not None and one.statements]
        if kept:
            yield part["caption"], kept


def chapter(root: Path, name: Path) -> Chapter | None:
    """Read the statements of a notebook; None for a page that is none."""
    path = name.with_name(f"{name.name}.ipynb")
    if not (root / path).is_file():
        return None
    cells = json.loads((root / path).read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    title = re.search(r"^# (.+)$", text, re.MULTILINE).group(1)
    found = [Statement(m["label"], m["title"].strip()) for m in STATEMENT.finditer(text)]
    return Chapter(path, title, found)


class StatementIndex(SphinxDirective):
    """``{statements}``: the list of all statements."""

    def run(self) -> list[nodes.Node]:
        """Write the list in MyST, and have it read."""
        root, here = Path(self.env.srcdir), Path(self.env.doc2path(self.env.docname)).parent
        lines: list[str] = []
        for caption, chapters in parts(root):
            lines += [f"**{caption}**", ""]
            for one in chapters:
                self.env.note_dependency(str(root / one.path))
                link = (root / one.path).relative_to(here).as_posix()
                lines.append(f"- [{one.title}]({link})")
                for label, title in one.statements:
                    check = f"{{ref}}`checked here <check-{label}>`"
                    lines.append(f"  - {{prf:ref}}`{label}`. {title} ({check})")
            lines.append("")
        holder = nodes.container(classes=["statements"])
        self.state.nested_parse(StringList(lines, source="statements"), 0, holder)
        return holder.children


def mark_checks(app: Sphinx, doctree: nodes.document) -> None:
    """Give the first cell behind each statement that asserts something its anchor."""
    standard, docname = app.env.get_domain("std"), app.env.docname
    waiting: list[str] = []
    for node in doctree.findall(nodes.Element):
        if node.get("realtype") in ("theorem", "proposition", "corollary", "lemma"):
            waiting.append(node["label"])
        elif node.get("nb_element") == "cell_code" and re.search(r"\bassert ", node.astext()):
            for label in waiting:
                anchor = f"check-{label}"
                node["ids"].append(anchor)
                standard.anonlabels[anchor] = docname, anchor
                standard.labels[anchor] = docname, anchor, anchor
            waiting = []


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and the handler; Sphinx calls this."""
    app.add_directive("statements", StatementIndex)
    app.connect("doctree-read", mark_checks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
