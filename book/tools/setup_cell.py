"""The setup cell that opens every notebook, and the address it installs from.

``python book/tools/setup_cell.py write`` puts the cell into every notebook of the book;
``python book/tools/setup_cell.py address URL`` sets the repository's address, which lives in
_config.yml, and writes the cells anew. `make address URL=…` calls the latter.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
import yaml

ROOT = Path(__file__).resolve().parents[2]
TAG = "setup"

CELL = """\
# Setup. On Google Colab this fetches the book and its library; anywhere else it
# does nothing.
import sys

if "google.colab" in sys.modules:
    import importlib.metadata
    import importlib.util
    import pathlib
    import subprocess

    address = "{address}"
    if "owner--undecided" in address:
        raise RuntimeError(
            "This copy of the book does not know its own address yet, so there "
            "is nothing to install from. Whoever published it can set it with: "
            "make address URL=..."
        )
    book = pathlib.Path.home() / "clip-book"
    if not book.exists():
        clone = ["git", "clone", "--quiet", "--depth=1", address, str(book)]
        subprocess.run(clone, check=True)
    if importlib.util.find_spec("tutorials_lib") is None:
        # numpy and torch stay as Colab has them: others would need a restart.
        keep = ["numpy", "torch", "torchvision"]
        pins = [f"{{name}}=={{importlib.metadata.version(name)}}" for name in keep]
        constraints = book / "colab-constraints.txt"
        constraints.write_text("\\n".join(pins), encoding="utf-8")
        install = [sys.executable, "-m", "pip", "install", "--quiet"]
        install += ["-c", str(constraints), str(book)]
        subprocess.run(install, check=True)
        importlib.invalidate_caches()
    # Scripts and tables lie beside their chapter.
    folders = [path for path in (book / "book").iterdir() if path.is_dir()]
    sys.path[:0] = sorted(map(str, folders))
"""


def address_in_config(config: Path) -> str:
    """Return the repository's address that _config.yml holds."""
    return yaml.safe_load(config.read_text(encoding="utf-8"))["repository"]["url"]


def notebooks(root: Path) -> list[Path]:
    """Return all notebooks of the repository: chapters and homework."""
    found = sorted((root / "book").rglob("*.ipynb"))
    return [path for path in found if ".ipynb_checkpoints" not in path.parts]


def chapters(root: Path) -> list[Path]:
    """Return the notebooks that are pages of the book; instructor notebooks are not."""
    homework = root / "book" / "assignments"
    return [path for path in notebooks(root) if homework not in path.parents]


def setup_cell(address: str) -> str:
    """Return the source of the setup cell for a repository at ``address``."""
    return CELL.format(address=address).rstrip("\n")


def write_setup_cells(root: Path) -> list[Path]:
    """Put the setup cell into every notebook that lacks it or has another; return those."""
    source = setup_cell(address_in_config(root / "_config.yml"))
    changed = []
    for path in notebooks(root):
        notebook = nbformat.read(path, as_version=4)
        tagged = [cell for cell in notebook.cells if TAG in cell.metadata.get("tags", [])]
        if len(tagged) != 1:
            raise ValueError(
                f"{path} has {len(tagged)} cells tagged {TAG!r}; exactly one is needed. "
                "Add an empty code cell with that tag after the title."
            )
        if tagged[0].source != source:
            tagged[0].source = source
            nbformat.write(notebook, path)
            changed.append(path)
    return changed


def set_address(root: Path, address: str) -> None:
    """Set the repository's address in _config.yml and in every notebook.

    Raises
    ------
    ValueError
        If ``address`` is not the https address of a repository.
    """
    address = address.rstrip("/").removesuffix(".git")
    if not re.fullmatch(r"https://[\w.-]+(/[\w.-]+){2,}", address):
        raise ValueError(
            "the address of a repository looks like https://github.com/you/your-book, "
            f"got {address!r}"
        )
    config = root / "_config.yml"
    text = config.read_text(encoding="utf-8")
    config.write_text(
        text.replace(address_in_config(config), address),
        encoding="utf-8",
        newline="\n",
    )
    write_setup_cells(root)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write"]:
            for path in write_setup_cells(ROOT):
                print(f"wrote the setup cell of {path.relative_to(ROOT)}")
        case ["address", url]:
            try:
                set_address(ROOT, url)
            except ValueError as error:
                sys.exit(str(error))
            print(f"The book now lives at {address_in_config(ROOT / '_config.yml')}")
        case _:
            sys.exit(__doc__)
