"""The book's one plot style, and figures that read in light, in dark and on a phone.

Matplotlib draws each figure once. What the page gets is inline SVG whose ink is the CSS keyword
``currentColor``: text, axes and everything drawn in `INK` take the colour of the text around the
figure, so one drawing serves the light and the dark theme. Series colours come from `COLOURS`,
which keep a contrast of at least 3:1 on both backgrounds.
"""

from __future__ import annotations

import html
import re
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from IPython.display import display
from matplotlib.figure import Figure

from tutorials_lib._svg import INK, PAPER, RASTER_DPI, drawing

__all__ = [
    "COLOURS",
    "DIVERGING",
    "INK",
    "PAPER",
    "SEQUENTIAL",
    "figure",
    "show",
    "use_book_style",
]

#: Series colours: blue, orange, green, pink, brown, slate. Told apart under the common forms of
#: colour blindness, with a contrast of at least 3:1 against white and the dark theme's #14171c.
COLOURS = ["#1b66e8", "#e56b17", "#3aa26b", "#d267c6", "#a04e24", "#6a6972"]

#: Names of the colormaps for ordered values and for signed values around zero.
SEQUENTIAL = "viridis"
DIVERGING = "RdBu_r"

# Shown when the figure stands outside the book, where no style sheet speaks: DejaVu Sans, with
# which Matplotlib measures, is wider than each of these, so no label outgrows its place.
_FONTS = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'DejaVu Sans',sans-serif"

_PIXELS_PER_POINT = 4 / 3
# Column width of a 375 px phone. There a figure may shrink to _SMALLEST of its natural size, where
# its 10.5 pt tick labels are 9 px high; a wider one is scrolled sideways in its own box.
_PHONE_COLUMN = 343
_SMALLEST = 0.65
# Room in points above and below: the page's fonts may rise higher than the one Matplotlib measured.
_EDGE = 2

_TEX = re.compile(r"\$[^$]+\$|\\[A-Za-z]+|\\[()\[\]]")


def use_book_style() -> None:
    """Set Matplotlib's defaults to the book's style.

    Called once at the top of a chapter, after the imports and before anything is drawn. It changes
    `matplotlib.rcParams`, which is what a style is for.
    """
    mpl.rcParams.update(
        {
            "figure.figsize": (5.4, 3.4),
            "figure.facecolor": "none",
            "figure.constrained_layout.use": True,
            "savefig.facecolor": "none",
            "savefig.dpi": RASTER_DPI,
            "font.family": ["sans-serif"],
            "font.sans-serif": ["DejaVu Sans"],
            "font.size": 11,
            "axes.titlesize": 12,
            "axes.labelsize": 11.5,
            "xtick.labelsize": 10.5,
            "ytick.labelsize": 10.5,
            "legend.fontsize": 10.5,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": INK,
            "axes.facecolor": "none",
            "axes.titlecolor": INK,
            "axes.titlelocation": "left",
            "axes.titlepad": 8,
            "axes.labelpad": 5,
            "axes.linewidth": 0.8,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "axes.prop_cycle": cycler(color=COLOURS),
            "grid.color": INK,
            "grid.alpha": 0.12,
            "grid.linewidth": 0.8,
            "xtick.color": INK,
            "ytick.color": INK,
            "xtick.major.size": 0,
            "ytick.major.size": 0,
            "xtick.minor.size": 0,
            "ytick.minor.size": 0,
            "xtick.major.pad": 5,
            "ytick.major.pad": 5,
            "lines.linewidth": 2.0,
            "lines.markersize": 5.5,
            "lines.solid_capstyle": "round",
            "patch.edgecolor": "none",
            "hatch.color": INK,
            "legend.frameon": False,
            "legend.labelcolor": INK,
            "image.cmap": SEQUENTIAL,
            "svg.fonttype": "none",
        }
    )


def figure(
    rows: int = 1,
    columns: int = 1,
    *,
    height: float | None = None,
    width: float | None = None,
    **subplots_kw: Any,
) -> tuple[Figure, Any]:
    """Make a figure sized so that its labels stay legible on a phone.

    Parameters
    ----------
    rows, columns : int
        Grid of axes. Two rows read better on a phone than two columns: a figure wider than about
        5.4 inches is scrolled sideways there.
    height, width : float, optional
        Size in inches. By default 5.4 wide for one column, 7.2 for more, and 3.4 high for one row,
        2.7 for each of several.
    **subplots_kw
        Passed to `matplotlib.pyplot.subplots`, for example ``sharex=True``.

    Returns
    -------
    tuple
        The figure and its axes: one `Axes`, or an array of them as `subplots` gives.

    Raises
    ------
    ValueError
        If a size is not a finite number above 0.
    """
    if width is None:
        width = 5.4 if columns == 1 else 7.2
    if height is None:
        height = 3.4 if rows == 1 and columns == 1 else 2.7 * rows
    for name, value in (("width", width), ("height", height)):
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number of inches > 0, got {value!r}")
    subplots_kw.setdefault("layout", "constrained")
    fig, axes = plt.subplots(rows, columns, figsize=(width, height), **subplots_kw)
    return fig, axes


def show(fig: Figure, *, alt: str, caption: str) -> None:
    """Display a figure as inline SVG with a text alternative and a caption, and close it.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        The figure. Everything drawn in `INK` follows the page's text colour and everything in
        `PAPER` its background. Pass ``rasterized=True`` to a scatter of more than a few hundred
        points: it is then stored as an image, at twice the screen's resolution.
    alt : str
        What a reader who does not see the figure needs to know: the axes and what the curves do.
        Plain text.
    caption : str
        The line below the figure. Plain text; Unicode such as τ and κ is fine, TeX is not.

    Raises
    ------
    TypeError
        If `fig` is not a Matplotlib figure, or a text is not a string.
    ValueError
        If a text is empty or contains TeX, or `alt` repeats `caption`.
    RuntimeError
        If `use_book_style` has not been called.
    """
    display(figure_page(fig, alt=alt, caption=caption))


class Page:
    """HTML for a front end that shows it, and a line of text for one that does not.

    Parameters
    ----------
    content : str
        The HTML.
    text : str
        What a terminal prints instead.
    """

    def __init__(self, content: str, text: str) -> None:
        self.content = content
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.content


def figure_page(fig: Figure, *, alt: str, caption: str) -> Page:
    """Return what `show` displays, and close the figure.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        The figure.
    alt, caption : str
        As in `show`, with the same errors.

    Returns
    -------
    Page
        An HTML ``<figure>``.
    """
    check_texts(alt=alt, caption=caption)
    picture = figure_svg(fig, alt=alt)
    plt.close(fig)
    content = (
        f'<figure class="book-figure">\n{picture}\n'
        f"<figcaption>{html.escape(caption)}</figcaption>\n</figure>"
    )
    return Page(content, f"Figure: {caption}")


def check_texts(**texts: str) -> None:
    """Refuse a text that is missing, not plain, or says the same as another.

    Parameters
    ----------
    **texts : str
        The texts by name, as in ``check_texts(alt=alt, caption=caption)``.

    Raises
    ------
    TypeError
        If one is not a string.
    ValueError
        If one is empty or contains TeX, or two are equal.
    """
    for name, text in texts.items():
        if not isinstance(text, str):
            raise TypeError(f"{name} must be a string, got {type(text).__name__}")
        if not text.strip():
            raise ValueError(f"{name} is empty; say in words what the figure shows")
        tex = _TEX.search(text)
        if tex:
            raise ValueError(
                f"{name} contains TeX ({tex.group()!r}), which is shown raw here; "
                "write it in words or Unicode, for example τ, κ, √d"
            )
    if len({text.strip() for text in texts.values()}) < len(texts):
        raise ValueError(
            f"{' and '.join(texts)} say the same, so a screen reader reads it twice; "
            "let alt describe what is seen and caption what it means"
        )


def figure_svg(fig: Figure, *, alt: str, salt: str = "") -> str:
    """Render a figure as one ``<div>`` with inline SVG, ready for a page.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        The figure; it stays open.
    alt : str
        Becomes the ``aria-label``.
    salt : str
        Goes into the ids, with the content. Equal drawings on one page need different salts.

    Returns
    -------
    str
        HTML. The same figure, `alt` and `salt` give the same text in every process.

    Raises
    ------
    TypeError
        If `fig` is not a Matplotlib figure.
    RuntimeError
        If `use_book_style` has not been called.
    """
    if not isinstance(fig, Figure):
        raise TypeError(
            f"expected a matplotlib Figure, got {type(fig).__name__}; pass the first value that "
            "plotting.figure() returns, not the axes"
        )
    if mpl.rcParams["text.color"] != INK:
        raise RuntimeError(
            "the figure is not in the book's style and would vanish on a dark page; call "
            "plotting.use_book_style() once, before anything is drawn"
        )
    root = drawing(fig, salt=f"{salt}\0{alt}")
    width, height = (float(size) for size in root.attrib["viewBox"].split()[2:])
    natural = round(width * _PIXELS_PER_POINT)
    least = round(natural * _SMALLEST)
    scrolls = least > _PHONE_COLUMN
    root.attrib = {
        "viewBox": f"0 {-_EDGE} {width:g} {height + 2 * _EDGE:g}",
        "role": "img",
        "aria-label": alt,
        "stroke-linejoin": "round",
        "style": (
            f"display:block;width:100%;min-width:{least if scrolls else 0}px;max-width:{natural}px;"
            f"height:auto;margin:0 auto;font-family:{_FONTS}"
        ),
    }
    # A box that scrolls must be reachable by keyboard; one that never does must not be a stop.
    focus = ' tabindex="0" role="group" aria-label="Wide figure, scrolls sideways"'
    svg = ElementTree.tostring(root, encoding="unicode")
    return f'<div class="figure-box" style="overflow-x:auto"{focus if scrolls else ""}>{svg}</div>'
