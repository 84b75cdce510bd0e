"""Sphinx extension of this book: notebooks run in parallel, pages that need no network.

* Before Sphinx reads a page, every notebook that changed runs, on all cores (see execution.py).
* Figures are drawn for a page without a kernel: kernels inherit ``TUTORIALS_LIB_FIGURES=static``.
* MathJax, the style sheet and the script of the interactive figures are copied beside the pages.
  They do not go to ``_static``: Jupyter Book loads every script of such a folder on every page.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import mathjax
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError

import execution
import setup_cell

# One file that holds the whole of TeX input and SVG output, so that formulas need no web font
# (Firefox refuses fonts from a parent folder under file://), and what its context menu loads to
# read formulas aloud.
MATHJAX_PARTS = ("tex-svg-full.js", "a11y", "sre")


def prepare(app: Sphinx, config: Config) -> None:
    """Execute what changed, and point MyST-NB to the cache that holds the outputs."""
    os.environ["TUTORIALS_LIB_FIGURES"] = "static"
    root = Path(app.srcdir)
    cache_path = root / "_build" / ".jupyter_cache"
    config.nb_execution_mode = "cache"
    config.nb_execution_cache_path = str(cache_path)
    app.book_outputs_stale = execution.empty_stale_cache(root, cache_path)
    try:
        execution.execute(
            setup_cell.chapters(root),
            cache_path,
            timeout=config.nb_execution_timeout,
            cores=os.cpu_count() or 1,
        )
    except execution.NotebookError as error:
        raise ExtensionError(str(error)) from None


def outdated_notebooks(
    app: Sphinx,
    env: BuildEnvironment,
    added: set[str],
    changed: set[str],
    removed: set[str],
) -> list[str]:
    """Have every notebook read again when the code behind its outputs changed."""
    if not app.book_outputs_stale:
        return []
    return [name for name in env.found_docs if env.doc2path(name).endswith(".ipynb")]


def copy_assets(app: Sphinx) -> None:
    """Put MathJax and the book's own assets beside the pages."""
    out = Path(app.outdir)
    source = Path(mathjax.__file__).parent / "static" / "mathjax"
    for part in (
        *(Path("es5") / name for name in MATHJAX_PARTS),
        Path("LICENSE"),
    ):
        target = out / "mathjax" / part
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if (source / part).is_dir():
            shutil.copytree(source / part, target)
        else:
            shutil.copy(source / part, target)
    shutil.copytree(Path(app.srcdir) / "book" / "assets", out / "assets", dirs_exist_ok=True)


def repair_roles(app: Sphinx, page: str, template: str, context: dict, doctree: object) -> None:
    """Give the entries of a reference list the role that its list asks for.

    Sphinx puts entries of role ``doc-biblioentry`` into a list of role ``list``, which may hold
    list items only; a screen reader would announce an empty list.
    """
    if "body" in context:
        context["body"] = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the handlers; Sphinx calls this."""
    app.connect("config-inited", prepare)
    app.connect("env-get-outdated", outdated_notebooks)
    app.connect("builder-inited", copy_assets)
    app.connect("html-page-context", repair_roles)
    # Sphinx resolves these against _static; the dots lead to folders beside it.
    app.add_css_file("../assets/book.css", priority=900)
    app.add_js_file("../assets/explore.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
