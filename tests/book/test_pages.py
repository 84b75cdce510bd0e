"""The built pages in a browser: complete, self-contained, accessible, and moving."""

from __future__ import annotations

import functools
import re
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from conftest import PHONE, ROOT, WIDE, Visit, pages
from playwright.sync_api import Browser, ElementHandle, Page

ARTICLE = "article.bd-article"
# Markup that a reader must never see; in code it is meant.
RAW = re.compile(
    r"\$|\\[a-zA-Z]+|\\[()\[\]]|:::|```|\{(?:prf:)?[a-z]+\}`|\{prf:|(?:^|\s):[a-z]+:(?:\s|$)"
)

VISIBLE_TEXT = """
() => {
  const walker = document.createTreeWalker(
    document.querySelector("article.bd-article"), NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (!parent.closest("pre, code, script, style, noscript, mjx-container, svg")) {
      texts.push(walker.currentNode.data);
    }
  }
  return texts;
}
"""


def test_page_needs_no_network(visit: Visit) -> None:
    """Opened from the disk, a page loads all it needs and asks nobody else for anything."""
    visit.look("light", WIDE)
    visit.look("dark", WIDE)
    assert visit.foreign == []
    assert visit.failed == []


def test_page_has_no_script_errors(visit: Visit) -> None:
    """No script fails and nothing is written to the console as an error."""
    visit.look("dark", WIDE)
    assert visit.complaints == []


def test_every_formula_is_set(visit: Visit) -> None:
    """No formula is left as source, in error, or with an undefined macro in red."""
    page = visit.look("light", WIDE)
    unset = page.evaluate(
        "() => [...document.querySelectorAll('article .math')]"
        ".filter(e => !e.querySelector('mjx-container')).map(e => e.textContent)"
    )
    assert unset == []
    broken = page.evaluate(
        "() => [...document.querySelectorAll('merror, [data-mml-node=merror], [data-mjx-error]')]"
        ".map(e => e.closest('mjx-container')?.textContent ?? e.textContent)"
    )
    assert broken == []
    undefined = page.evaluate(
        "() => [...document.querySelectorAll('mjx-container [mathcolor=red], "
        "mjx-container [fill=red]')].map(e => e.closest('mjx-container').textContent)"
    )
    assert undefined == [], "undefined macros"


def test_no_markup_is_left_raw(visit: Visit) -> None:
    """No TeX, directive or role reaches the reader as source."""
    raw = [text.strip() for text in visit.page.evaluate(VISIBLE_TEXT) if RAW.search(text)]
    assert raw == []


def test_every_picture_has_words(visit: Visit) -> None:
    """Images and drawings have a text alternative, figures a caption."""
    mute = visit.page.evaluate(
        "() => [...document.querySelectorAll('article img')]"
        ".filter(e => !e.alt.trim()).map(e => e.src)"
    )
    assert mute == []
    mute = visit.page.evaluate(
        "() => [...document.querySelectorAll('article svg[role=img], article figure svg')]"
        ".filter(e => !e.closest('mjx-container'))"
        ".filter(e => e.role !== 'img' || !e.getAttribute('aria-label')?.trim())"
        ".map(e => e.outerHTML.slice(0, 200))"
    )
    assert mute == []
    bare = visit.page.evaluate(
        "() => [...document.querySelectorAll('article figure')]"
        ".filter(e => !e.querySelector('figcaption')?.textContent.trim())"
        ".map(e => e.outerHTML.slice(0, 200))"
    )
    assert bare == []


def test_drawings_share_no_ids(visit: Visit) -> None:
    """Ids inside figures are unique on the page, or clips and markers would be mixed up."""
    ids = visit.page.evaluate("() => [...document.querySelectorAll('figure [id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_labels_stay_inside_their_drawing(visit: Visit) -> None:
    """In the browser's fonts no label outgrows the room Matplotlib left for it.

    A label's box is a quarter higher than its letters.
    """
    page = visit.look("light", WIDE)
    outside = page.evaluate(
        """() => [...document.querySelectorAll("figure svg[role=img] text")].filter(text => {
          const a = text.getBoundingClientRect();
          const b = text.closest("svg").getBoundingClientRect();
          return a.width > 0 && (a.left < b.left - 2 || a.right > b.right + 2
            || a.top < b.top - a.height / 4 || a.bottom > b.bottom + a.height / 4);
        }).map(text => text.textContent)"""
    )
    assert outside == []


def test_labels_are_legible_on_a_phone(visit: Visit) -> None:
    """At 375 px no label of a figure is set smaller than 7 px."""
    page = visit.look("light", PHONE)
    small = page.evaluate(
        """() => [...document.querySelectorAll("figure svg[role=img]")].flatMap(svg => {
          const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
          return [...svg.querySelectorAll("text[style*=font-size]")]
            .map(text => [text.textContent, scale * parseFloat(text.style.fontSize)])
            .filter(([, size]) => size > 0 && size < 7);
        })"""
    )
    assert small == []


def test_phone_page_does_not_scroll_sideways(visit: Visit) -> None:
    """What is wider than a phone scrolls in its own box, not with the page."""
    page = visit.look("light", PHONE)
    wide = page.evaluate(
        """() => [...document.querySelectorAll("article *")].filter(e => {
          for (let box = e.parentElement; box; box = box.parentElement) {
            if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(box).overflowX)
                && box !== document.body && box !== document.documentElement) return false;
          }
          return e.getBoundingClientRect().right > innerWidth + 1;
        }).map(e => e.outerHTML.slice(0, 150))"""
    )
    assert wide == []
    assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE[0]


def visible_frames(figure: ElementHandle) -> list[str]:
    """Return the ids of the frames that a figure shows."""
    return figure.evaluate(
        "f => [...f.querySelectorAll('.explore-frame')].filter(e => e.offsetHeight > 0)"
        ".map(e => e.id)"
    )


def assert_moves(page: Page, figure: ElementHandle) -> None:
    """Check that one figure's sliders work by keyboard, and reach every frame."""
    for slider in figure.query_selector_all("input[type=range]"):
        slider.focus()
        page.keyboard.press("Home")
        before, said = visible_frames(figure), slider.get_attribute("aria-valuetext")
        page.keyboard.press("ArrowRight")
        after = visible_frames(figure)
        assert len(before) == len(after) == 1
        assert before != after
        assert slider.get_attribute("aria-valuetext") != said
        output = slider.evaluate("e => e.parentElement.querySelector('output').textContent")
        assert slider.get_attribute("aria-valuetext") == output
    reached = figure.evaluate(
        """figure => {
          const inputs = [...figure.querySelectorAll("input[type=range]")];
          const seen = [];
          const visit = axis => {
            if (axis === inputs.length) {
              const shown = [...figure.querySelectorAll(".explore-frame")].filter(e => !e.hidden);
              seen.push(shown.map(e => e.id).join());
              return;
            }
            for (let value = 0; value <= Number(inputs[axis].max); value++) {
              inputs[axis].value = value;
              inputs[axis].dispatchEvent(new Event("input", {bubbles: true}));
              visit(axis + 1);
            }
          };
          visit(0);
          return seen;
        }"""
    )
    frames = figure.evaluate("f => [...f.querySelectorAll('.explore-frame')].map(e => e.id)")
    assert reached == frames


def test_sliders_move_their_figures(visit: Visit) -> None:
    """Every figure with sliders changes by keyboard, and each of its frames can be reached."""
    page = visit.look("light", WIDE)
    for figure in page.query_selector_all("figure.explore"):
        assert_moves(page, figure)


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_article_is_accessible(visit: Visit, theme: str, size: tuple[int, int]) -> None:
    """axe-core finds nothing serious in the article, folded parts included."""
    page = visit.look(theme, size)
    page.evaluate(
        """() => {
          document.querySelectorAll("article details").forEach(e => { e.open = true; });
          document.querySelectorAll("article .toggle-hidden").forEach(e => {
            e.classList.remove("toggle-hidden");
          });
        }"""
    )
    assert visit.violations() == []


def test_page_printed_from_the_dark_theme_is_dark_on_white(visit: Visit) -> None:
    """Paper is white: no text may keep the dark theme's colour, and no box its ground."""
    page = visit.look("dark", WIDE)
    page.emulate_media(media="print")
    try:
        wrong = page.evaluate(
            """() => {
              const light = colour => {
                const [r, g, b, alpha = 1] = colour.match(/[0-9.]+/g).map(Number);
                return alpha === 0 ? null : 0.2126 * r + 0.7152 * g + 0.0722 * b > 120;
              };
              return [...document.querySelectorAll(
                "article :is(p, li, td, h2, pre, pre span, .cell_input, .highlight)")].filter(e => {
                const style = getComputedStyle(e);
                if (!e.checkVisibility()) return false;
                return light(style.color) || light(style.backgroundColor) === false;
              }).map(e => e.outerHTML.slice(0, 100));
            }"""
        )
    finally:
        page.emulate_media(media="screen")
    assert wrong == []


@functools.cache
def ids(path: Path) -> frozenset[str]:
    """Return the anchors of a built page."""
    return frozenset(re.findall(r'\b(?:id|name)="([^"]+)"', path.read_text(encoding="utf-8")))


def test_links_inside_the_book_resolve(visit: Visit) -> None:
    """Every link to a page or an anchor of the book leads there."""
    links = visit.page.evaluate(
        "() => [...document.querySelectorAll('a[href]')].map(e => [e.getAttribute('href'), e.href])"
    )
    dead = []
    for written, address in links:
        target = urllib.parse.urlsplit(address)
        if target.scheme != "file" or written in ("#", ""):
            continue
        path = Path(urllib.request.url2pathname(target.path))
        anchor = urllib.parse.unquote(target.fragment)
        if not path.is_file() or (anchor and path.suffix == ".html" and anchor not in ids(path)):
            dead.append(written)
    assert dead == []


def test_launch_button_leads_to_a_notebook_of_the_repository(visit: Visit) -> None:
    """The path in a Colab link exists in the repository."""
    for address in visit.page.evaluate(
        "() => [...document.querySelectorAll('a[href*=\"colab.research.google.com\"]')]"
        ".map(e => e.href)"
    ):
        path = urllib.parse.unquote(address).partition("/blob/")[2].partition("/")[2]
        assert (ROOT / path).is_file(), address


def test_book_works_in_a_subfolder_of_a_server(
    served: str, moving_page: str, browser: Browser
) -> None:
    """Served below some path, the start page and a moving one load all they need from there."""
    for name in (pages()[0], moving_page):
        with browser.new_context(color_scheme="light") as context:
            visit = Visit(context.new_page(), f"{served}{name}.html", served)
            assert visit.foreign == []
            assert visit.failed == []
            assert visit.complaints == []
            for figure in visit.page.query_selector_all("figure.explore"):
                assert_moves(visit.page, figure)


def test_front_door_leads_to_the_first_page(html_root: Path, browser: Browser) -> None:
    """The folder's index.html brings the reader to the book's first page."""
    with browser.new_context() as context:
        page = context.new_page()
        page.goto((html_root / "index.html").as_uri())
        page.wait_for_url((html_root / f"{pages()[0]}.html").as_uri())


def test_figures_can_be_read_without_scripts(
    html_root: Path, moving_page: str, browser: Browser
) -> None:
    """Without scripts a moving figure shows its first frame, and links lead to the others."""
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto((html_root / f"{moving_page}.html").as_uri())
        figure = page.locator("figure.explore").first
        shown = figure.locator(".explore-frame:visible")
        assert shown.count() == 1
        first = shown.get_attribute("id")
        assert not figure.locator(".explore-controls").is_visible()
        link = figure.locator(f".explore-links a:not([href='#{first}'])").first
        link.click()
        assert shown.count() == 1
        assert f"#{shown.get_attribute('id')}" == link.get_attribute("href")
