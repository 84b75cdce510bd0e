"""Slides from a chapter, in one HTML file: python book/tools/slides.py CHAPTER.ipynb OUT.html.

The chapter runs first. Each of its headings opens a slide, and each figure has one of its own. Long
code, code that shows nothing, checks and exercises are left out. The browser fetches reveal.js and
MathJax when the slides are shown.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbconvert import SlidesExporter
from traitlets.config import Config

import assignments
import execution
import setup_cell

LONGEST_CODE = 12  # lines that a slide can show
DIRECTIVE = re.compile(
    r"^(:{3,})\{(?:prf:)?(\w+)\}[ \t]*([^\n]*)\n(?::\w+:[^\n]*\n)*(.*?)^\1[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
ROLE = re.compile(r"\{([\w:]+)\}`([^`]*)`")


def plain(text: str) -> str:
    """Turn a chapter's Markdown into what every notebook tool shows."""

    def titled(match: re.Match[str]) -> str:
        _, kind, title, body = match.groups()
        if kind == "proof":
            return f"<details><summary>Proof</summary>\n\n{body}\n</details>"
        name = f"{kind.capitalize()} ({title})" if title else kind.capitalize()
        return f"**{name}.**\n\n{body.strip()}"

    text = DIRECTIVE.sub(titled, text)
    text = ROLE.sub(lambda role: f"[{role[2]}]" if "cite" in role[1] else role[2], text)
    return assignments.LINK.sub(r"\1", text)


def deck(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the slides of a chapter that was executed, as a notebook."""
    cells = []

    def add(cell: nbformat.NotebookNode, kind: str, **metadata: object) -> None:
        cell.metadata.update(slideshow={"slide_type": kind}, **metadata)
        cells.append(cell)

    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "markdown":
            shown, *exercises = re.split(r"^## Exercises", cell.source, flags=re.MULTILINE)
            for part in re.split(r"^(?=##? )", plain(shown), flags=re.MULTILINE):
                if part.strip():
                    kind = "slide" if part.startswith("#") else "subslide"
                    add(nbformat.v4.new_markdown_cell(part.strip()), kind)
            if exercises:
                break
        elif "setup" not in tags and "solution" not in tags:
            figure = any("text/html" in out.get("data", {}) for out in cell.outputs)
            long = cell.source.count("\n") >= LONGEST_CODE
            hidden = long or bool({"hide-input", "check", "remove-input"} & set(tags))
            if figure or (cell.outputs and not hidden):
                add(cell, "subslide" if figure else "fragment", tags=["no-code"] * hidden)
    return nbformat.v4.new_notebook(cells=cells, metadata=notebook.metadata)


def slides(path: Path) -> str:
    """Run a chapter and return its slides as HTML."""
    notebook = nbformat.read(path, as_version=4)
    with execution.environment(TUTORIALS_LIB_FIGURES="static"):
        NotebookClient(
            notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}
        ).execute()
    config = Config()
    config.TagRemovePreprocessor.enabled = True
    config.TagRemovePreprocessor.remove_input_tags = {"no-code"}
    exporter = SlidesExporter(
        config=config, exclude_input_prompt=True, exclude_output_prompt=True, reveal_scroll=True
    )
    page, _ = exporter.from_notebook_node(deck(notebook), {"metadata": {"name": path.stem}})
    assets = setup_cell.ROOT / "book" / "assets"
    style = (assets / "book.css").read_text(encoding="utf-8")
    script = (assets / "explore.js").read_text(encoding="utf-8")
    return page.replace("</body>", f"<style>{style}</style><script>{script}</script></body>")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    target = Path(sys.argv[2])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(slides(Path(sys.argv[1])), encoding="utf-8")
    print(f"wrote {target}")
