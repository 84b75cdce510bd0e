"""Figures as inline SVG: ink that follows the page, ids that do not collide, words for everyone."""

from __future__ import annotations

import base64
import io
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from xml.etree import ElementTree

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image

from tutorials_lib import plotting

LIGHT, DARK = "#ffffff", "#14171c"


@pytest.fixture(autouse=True)
def style() -> Iterator[None]:
    """The book's style, without leaving it on for other tests."""
    with mpl.rc_context():
        mpl.use("agg")
        plotting.use_book_style()
        yield
        plt.close("all")


def line_figure(slope: float = 1.0) -> Figure:
    fig, ax = plotting.figure()
    x = np.linspace(0, 10, 300)
    for power in (1, 2, 3):
        ax.plot(x, np.sin(x * slope / power), label=f"κ = {power}")
    ax.set_xlabel("angle (rad)")
    ax.set_ylabel("weight")
    ax.legend()
    return fig


def parse(markup: str) -> ElementTree.Element:
    """Return the <svg> of a rendered figure; fails if it is not well-formed."""
    return ElementTree.fromstring(markup)[0]


def svg(fig: Figure, **options: str) -> ElementTree.Element:
    return parse(plotting.figure_svg(fig, alt="A line that rises.", **options))


# --- colours -----------------------------------------------------------------------------------


def linear_rgb(colour: str) -> np.ndarray:
    """sRGB to linear light (IEC 61966-2-1)."""
    channels = np.array(mpl.colors.to_rgb(colour))
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(first: str, second: str) -> float:
    """Contrast ratio as WCAG 2.2 defines it."""
    weights = [0.2126, 0.7152, 0.0722]
    low, high = sorted(linear_rgb(colour) @ weights for colour in (first, second))
    return (high + 0.05) / (low + 0.05)


def cielab(linear: np.ndarray) -> np.ndarray:
    """CIE L*a*b* under D65 from linear sRGB."""
    to_xyz = [[0.41246, 0.35758, 0.18044], [0.21267, 0.71515, 0.07218], [0.01933, 0.11919, 0.9503]]
    x, y, z = np.cbrt(np.maximum(np.array(to_xyz) @ linear / [0.95047, 1.0, 1.08883], 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


# Full dichromacy in linear RGB: Machado, Oliveira and Fernandes (2009), table for severity 1.
VISION = {
    "normal": np.eye(3),
    "protan": np.array(
        [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]
    ),
    "deutan": np.array(
        [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]
    ),
    "tritan": np.array(
        [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]
    ),
}


@pytest.mark.parametrize("background", [LIGHT, DARK])
@pytest.mark.parametrize("colour", plotting.COLOURS)
def test_series_colours_stand_out_in_both_themes(colour: str, background: str) -> None:
    """3:1 is what WCAG 1.4.11 asks of graphics."""
    assert contrast(colour, background) >= 3


@pytest.mark.parametrize("vision", VISION)
def test_series_colours_differ_under_colour_blindness(vision: str) -> None:
    """No two are closer than 20 in CIE76, where 2.3 is a just noticeable difference."""
    seen = [cielab(np.clip(VISION[vision] @ linear_rgb(c), 0, 1)) for c in plotting.COLOURS]
    distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)]
    assert min(distances) >= 20


def test_contrast_of_the_reference_is_black_on_white() -> None:
    assert contrast("black", "white") == pytest.approx(21)


def test_colormap_names_exist() -> None:
    assert plotting.SEQUENTIAL in mpl.colormaps
    assert plotting.DIVERGING in mpl.colormaps


# --- figure ------------------------------------------------------------------------------------


def test_figure_gives_one_axes_or_an_array() -> None:
    _, ax = plotting.figure()
    assert isinstance(ax, mpl.axes.Axes)
    _, axes = plotting.figure(2, 3, sharex=True)
    assert axes.shape == (2, 3)


def test_figure_of_one_column_fits_a_phone_and_size_can_be_set() -> None:
    fig, _ = plotting.figure()
    assert "tabindex" not in plotting.figure_svg(fig, alt="a")
    fig, _ = plotting.figure(width=9, height=2)
    assert tuple(fig.get_size_inches()) == (9, 2)


@pytest.mark.parametrize("size", [0, -1, float("nan"), float("inf")])
def test_figure_refuses_a_size_that_is_none(size: float) -> None:
    with pytest.raises(ValueError, match="height must be a finite number of inches > 0"):
        plotting.figure(height=size)


# --- SVG ---------------------------------------------------------------------------------------


def test_ink_follows_the_page_and_series_colours_stay() -> None:
    markup = plotting.figure_svg(line_figure(), alt="a")
    assert plotting.INK not in markup
    assert "currentColor" in markup
    for colour in plotting.COLOURS[:3]:
        assert colour in markup


def test_paper_becomes_the_page_background_and_white_stays_white() -> None:
    fig, ax = plotting.figure()
    ax.plot([0, 1], "o", markerfacecolor=plotting.PAPER)
    ax.text(0, 0, "on a dark cell", color="white")
    markup = plotting.figure_svg(fig, alt="a")
    assert "var(--figure-paper" in markup
    assert plotting.PAPER not in markup
    assert "fill:#ffffff" in markup


def test_background_is_transparent() -> None:
    fig, _ = plotting.figure()
    for path in svg(fig).iter("path"):
        fill = re.search(r"fill:([^;]+)", path.get("style", ""))
        assert fill is None or fill.group(1) in ("none", "currentColor")


def test_svg_scales_with_its_column_up_to_its_natural_size() -> None:
    root = svg(line_figure())
    assert "width" not in root.attrib and "height" not in root.attrib
    assert root.get("viewBox") == "0 -2 388.8 248.8"
    style = root.get("style", "")
    assert "width:100%" in style and "max-width:518px" in style and "height:auto" in style


def test_wide_figure_scrolls_in_a_box_that_the_keyboard_reaches() -> None:
    fig, _ = plotting.figure(1, 2)
    box = ElementTree.fromstring(plotting.figure_svg(fig, alt="a"))
    assert box.get("tabindex") == "0"
    assert box.get("aria-label")
    assert "overflow-x:auto" in box.get("style", "")


def test_text_stays_text_in_the_page_fonts() -> None:
    root = svg(line_figure())
    texts = ["".join(text.itertext()) for text in root.iter("text")]
    assert {"angle (rad)", "weight", "κ = 1"} <= set(texts)
    assert all("font-family" not in text.get("style", "") for text in root.iter("text"))
    assert "sans-serif" in root.get("style", "")


def test_monospaced_text_stays_monospaced() -> None:
    fig, ax = plotting.figure()
    ax.text(0, 0, "code", family="monospace")
    assert "Mono" in plotting.figure_svg(fig, alt="a")


def test_digits_of_a_log_scale_are_set_together() -> None:
    """Mathtext places each glyph apart, by the widths of a font the reader may not have."""
    fig, ax = plotting.figure()
    ax.plot([1e-12, 1], [1e-12, 1])
    ax.set_yscale("log")
    spans = [span.text for span in svg(fig).iter("tspan")]
    assert "10" in spans and "−10" in spans


def test_svg_carries_nothing_that_reaches_beyond_it() -> None:
    """A <style> would restyle every drawing of the page; metadata holds a date."""
    tags = {element.tag for element in svg(line_figure()).iter()}
    assert not tags & {"style", "metadata", "script"}


def test_ids_of_different_figures_differ_and_references_resolve() -> None:
    all_ids: list[str] = []
    for slope, salt in ((1.0, ""), (2.0, ""), (1.0, "again")):
        root = svg(line_figure(slope), salt=salt)
        ids = [element.get("id") for element in root.iter() if element.get("id")]
        used = re.findall(
            r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", ElementTree.tostring(root).decode()
        )
        assert ids
        assert set(ids) == {first or second for first, second in used}
        all_ids += ids
    assert len(all_ids) == len(set(all_ids))


SCRIPT = """
import matplotlib
matplotlib.use("agg")
from tutorials_lib import plotting
plotting.use_book_style()
fig, ax = plotting.figure()
ax.plot([0, 1, 4], "o-", label="a")
ax.legend()
import hashlib
print(hashlib.sha256(plotting.figure_svg(fig, alt="a").encode()).hexdigest())
"""


def test_same_figure_gives_same_bytes_in_every_process() -> None:
    """A rebuilt page must not differ, so nothing may depend on time or on Python's hash seed."""
    digests = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            capture_output=True,
            text=True,
            check=True,
            env={**environment, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        digests.add(run.stdout)
    assert len(digests) == 1


def test_coordinates_are_rounded_and_a_line_plot_stays_small() -> None:
    root = svg(line_figure())
    for path in root.iter("path"):
        decimals = re.findall(r"\.(\d+)", path.get("d", ""))
        assert all(len(digits) <= 2 for digits in decimals)
    assert len(ElementTree.tostring(root)) < 15_000


def test_rounding_moves_no_point_by_more_than_half_of_a_hundredth() -> None:
    """Against the transform that Matplotlib itself uses, in points from the top left."""
    fig, ax = plotting.figure()
    (line,) = ax.plot([0.1, 0.37, 0.9], [0.2, 0.8, 0.33])
    root = svg(fig)
    pixels = ax.transData.transform(line.get_xydata())
    expected = pixels * 72 / fig.dpi
    expected[:, 1] = 72 * fig.get_size_inches()[1] - expected[:, 1]
    drawn = next(p for p in root.iter("path") if plotting.COLOURS[0] in p.get("style", ""))
    points = np.array(re.findall(r"-?[\d.]+", drawn.get("d", "")), dtype=float).reshape(-1, 2)
    np.testing.assert_allclose(points, expected, atol=0.0051)


def test_rasterised_points_are_a_transparent_png_at_twice_the_screen_resolution() -> None:
    fig, ax = plotting.figure()
    points = np.random.default_rng(0).random((2000, 2))
    ax.scatter(*points.T, rasterized=True)
    (image,) = svg(fig).iter("image")
    header, _, data = image.get("href", "").partition(",")
    assert header == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
        assert picture.mode == "RGBA"
        assert picture.getpixel((0, 0))[3] == 0
        width_on_screen = float(image.get("width", "nan")) * 4 / 3
        assert picture.width == pytest.approx(2 * width_on_screen, rel=0.01)


def test_no_grid_is_drawn_over_an_image() -> None:
    fig, ax = plotting.figure()
    ax.imshow(np.eye(3))
    assert "stroke-opacity:0.12" not in plotting.figure_svg(fig, alt="a")


def test_figure_svg_leaves_the_figure_open_and_unchanged() -> None:
    fig = line_figure()
    first = plotting.figure_svg(fig, alt="a")
    assert plotting.figure_svg(fig, alt="a") == first
    assert plt.fignum_exists(fig.number)


# --- words -------------------------------------------------------------------------------------


class Attributes(HTMLParser):
    """Read the text alternative and the caption as a browser would."""

    def __init__(self) -> None:
        super().__init__()
        self.alt = self.caption = ""
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "svg":
            self.alt = dict(attrs)["aria-label"] or ""
        self.inside = tag == "figcaption"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.caption += data


words = st.text(
    st.characters(blacklist_categories=["C", "Zl", "Zp"], blacklist_characters="$\\"), min_size=1
).filter(str.strip)


@settings(max_examples=15, deadline=None)
@given(alt=words, caption=words)
def test_any_plain_text_reaches_the_reader_unchanged(alt: str, caption: str) -> None:
    """Quotes, angle brackets and ampersands included."""
    if alt.strip() == caption.strip():
        caption += " too"
    page = plotting.figure_page(Figure(figsize=(2, 1)), alt=alt, caption=caption)
    reader = Attributes()
    reader.feed(page._repr_html_())
    reader.close()
    assert (reader.alt, reader.caption.strip()) == (alt, caption.strip())


def test_show_displays_closes_and_prints_one_line_in_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fig = line_figure()
    plotting.show(fig, alt="Three waves.", caption="Waves.")
    assert capsys.readouterr().out == "Figure: Waves.\n"
    assert not plt.fignum_exists(fig.number)


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        ({"alt": "", "caption": "c"}, ValueError, "alt is empty"),
        ({"alt": " \n", "caption": "c"}, ValueError, "alt is empty"),
        ({"alt": "a", "caption": ""}, ValueError, "caption is empty"),
        ({"alt": None, "caption": "c"}, TypeError, "alt must be a string, got NoneType"),
        ({"alt": "a", "caption": r"at $\tau$"}, ValueError, "caption contains TeX"),
        ({"alt": r"at \kappa", "caption": "c"}, ValueError, "alt contains TeX"),
        ({"alt": "same", "caption": "same "}, ValueError, "say the same"),
    ],
)
def test_words_that_do_not_serve_the_reader_are_refused(
    texts: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plotting.show(line_figure(), **texts)


def test_a_price_is_not_tex() -> None:
    plotting.check_texts(alt="It costs $5.", caption="A price.")


def test_axes_in_place_of_the_figure_are_refused() -> None:
    _, ax = plotting.figure()
    with pytest.raises(TypeError, match="expected a matplotlib Figure, got Axes"):
        plotting.show(ax, alt="a", caption="c")


def test_a_figure_without_the_style_is_refused() -> None:
    """Black ink would vanish on a dark page."""
    fig = line_figure()
    mpl.rcdefaults()
    with pytest.raises(RuntimeError, match=r"call plotting\.use_book_style\(\) once"):
        plotting.show(fig, alt="a", caption="c")
