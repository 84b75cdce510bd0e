"""One browser for all page tests, and the pages they visit.

The pages are those of _toc.yml, so that a page that was not built is a failure rather than one test
fewer. ``BOOK_ROOT`` names another folder with a _toc.yml and a _build/html.
"""

from __future__ import annotations

import functools
import http.server
import os
import posixpath
import shutil
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(os.environ.get("BOOK_ROOT", Path(__file__).resolve().parents[2]))
HTML = ROOT / "_build" / "html"

WIDE, PHONE = (1280, 800), (375, 800)

BROWSERS = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
]
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# axe-core takes a second per thousand elements. Set aside meanwhile: the inside of formulas and
# drawings, which MathJax and aria-label speak for, hidden frames, and all but the first few code
# tokens of each colour.
AXE_ON_THE_ARTICLE = """
async () => {
  const swaps = [];
  const swap = (original, copy) => {
    original.replaceWith(copy);
    swaps.push([original, copy]);
  };
  for (const box of document.querySelectorAll(
      "article mjx-container, article figure svg, .explore-frame[hidden]")) {
    if (box.isConnected) swap(box, box.cloneNode(false));
  }
  const seen = {};
  for (const pre of document.querySelectorAll("article pre")) {
    const copy = pre.cloneNode(true);
    for (const token of copy.querySelectorAll("span[class]:not(:has(*))")) {
      seen[token.className] = (seen[token.className] ?? 0) + 1;
      if (seen[token.className] > 3) token.replaceWith(token.textContent);
    }
    swap(pre, copy);
  }
  try {
    return await axe.run("article.bd-article", {resultTypes: ["violations"], preload: false});
  } finally {
    for (const [original, copy] of swaps.reverse()) copy.replaceWith(original);
  }
}
"""
NO_BROWSER = "no Chromium or Chrome found: the built pages were NOT checked; install one and rerun"


def toc_files(entry: Any) -> Iterator[str]:
    """Yield every file of a table of contents in reading order."""
    if isinstance(entry, list):
        for item in entry:
            yield from toc_files(item)
    elif isinstance(entry, dict):
        yield from (entry[key] for key in ("root", "file") if key in entry)
        for key in ("parts", "subtrees", "chapters", "entries", "sections"):
            yield from toc_files(entry.get(key, []))


def pages() -> list[str]:
    """Return the names of the book's pages, without suffix."""
    text = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    return list(toc_files(yaml.safe_load(text)))


def find_browser(bundled: str) -> str | None:
    """Return the path of a Chromium: the system's, or the one Playwright brought."""
    for name in BROWSERS:
        found = shutil.which(name)
        if found:
            return found
    return bundled if Path(bundled).is_file() else None


class Visit:
    """An open page, what it asked for, and what it complained about.

    Parameters
    ----------
    page : Page
        An empty page.
    address : str
        Where to go.
    own : str
        The start of every address that belongs to the book.
    """

    def __init__(self, page: Page, address: str, own: str) -> None:
        self.page = page
        self.requested: list[str] = []
        self.failed: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requested.append(request.url))
        page.on("requestfailed", lambda request: self.failed.append(request.url))
        page.on("response", self._note_status)
        page.on("console", self._note_message)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.own = own
        page.goto(address)
        self.finish_maths()

    def _note_status(self, response: Any) -> None:
        if response.status >= 400:
            self.failed.append(f"{response.url} ({response.status})")

    def _note_message(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(f"{message.text} {message.location}")

    @property
    def foreign(self) -> list[str]:
        """The requested addresses that lie outside the book."""
        inside = (self.own, "data:", "blob:")
        return [address for address in self.requested if not address.startswith(inside)]

    def finish_maths(self) -> None:
        """Wait until MathJax has set every formula; a page without formulas has no MathJax."""
        self.page.evaluate("() => window.MathJax?.startup?.promise")

    def look(self, theme: str, size: tuple[int, int]) -> Page:
        """Turn to a theme as the reader's system would ask for it, and to a width."""
        self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        if self.page.viewport_size["width"] != size[0]:
            self.page.set_viewport_size({"width": size[0], "height": size[1]})
            # The theme makes code that now scrolls reachable by keyboard 0.3 s after a resize.
            self.page.wait_for_timeout(400)
        self.page.wait_for_function(f"document.documentElement.dataset.theme === {theme!r}")
        return self.page

    def violations(self) -> list[str]:
        """Return axe-core's serious findings inside the article, one line each."""
        if not self.page.evaluate("() => 'axe' in window"):
            self.page.evaluate(AXE_SCRIPT)
        found = self.page.evaluate(AXE_ON_THE_ARTICLE)
        return [
            f"{violation['id']}: {node['html'][:200]}: {node['failureSummary']}"
            for violation in found["violations"]
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"]
        ]


@pytest.fixture(scope="session")
def html_root() -> Path:
    """The folder of the built pages."""
    if not (HTML / "index.html").is_file():
        pytest.fail(f"there is no built book in {HTML}; run `make book` first", pytrace=False)
    return HTML


@pytest.fixture(scope="session")
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    """A headless Chromium for the whole session."""
    with sync_playwright() as playwright:
        executable = find_browser(playwright.chromium.executable_path)
        if executable is None:
            request.config.stash[missing] = True
            pytest.skip(NO_BROWSER)
        chromium = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module", params=pages())
def visit(request: pytest.FixtureRequest, html_root: Path, browser: Browser) -> Iterator[Visit]:
    """Each page of the book in turn, opened once from the disk, without a server."""
    path = html_root / f"{request.param}.html"
    if not path.is_file():
        pytest.fail(f"{path} was not built; run `make book` first", pytrace=False)
    with browser.new_context(color_scheme="light") as context:
        yield Visit(context.new_page(), path.as_uri(), html_root.as_uri())


@pytest.fixture(scope="session")
def moving_page(html_root: Path) -> str:
    """The first page that holds a figure with sliders."""
    for page in pages():
        if 'class="book-figure explore"' in (html_root / f"{page}.html").read_text("utf-8"):
            return page
    pytest.fail("no page has a figure with sliders", pytrace=False)


class SubfolderHandler(http.server.SimpleHTTPRequestHandler):
    """Serve the book below /some/where/, as a project page on a shared host would."""

    prefix = "/some/where/"

    def translate_path(self, path: str) -> str:
        """Map an address to a file; what lies outside the sub-folder does not exist."""
        clean = posixpath.normpath(urllib.parse.unquote(urllib.parse.urlsplit(path).path))
        if not clean.startswith(self.prefix):
            return str(Path(self.directory) / "does-not-exist")
        return super().translate_path(clean.removeprefix(self.prefix.rstrip("/")))

    def do_GET(self) -> None:
        """Answer the browser's own question for an icon, which no page asks, with nothing."""
        if self.path == "/favicon.ico":
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_: Any) -> None:
        """Keep the test output quiet."""


@pytest.fixture(scope="session")
def served(html_root: Path) -> Iterator[str]:
    """The address of the book behind a local web server, in a sub-folder."""
    handler = functools.partial(SubfolderHandler, directory=str(html_root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}{SubfolderHandler.prefix}"
        server.shutdown()
        thread.join()


missing = pytest.StashKey[bool]()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say once, loudly, when the pages could not be looked at."""
    if config.stash.get(missing, False):
        terminalreporter.write_line(f"WARNING: {NO_BROWSER}", red=True, bold=True)
