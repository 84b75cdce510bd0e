"""Read the dependencies of ``tutorials_lib`` from the sections of requirements.txt.

pyproject.toml holds everything else. This file exists because requirements.txt is the one list of
dependencies, and a person who installs the library alone should not get the tools of the book.
"""

import pathlib
import re

from setuptools import setup

sections: dict[str, list[str]] = {}
text = pathlib.Path(__file__).with_name("requirements.txt").read_text(encoding="utf-8")
for line in text.splitlines():
    if heading := re.match(r"#\s*\[(\w+)\]", line):
        current = sections.setdefault(heading.group(1), [])
    elif line.strip() and not line.startswith("#"):
        current.append(line.strip())

setup(install_requires=sections.pop("library"), extras_require=sections)
