"""Matplotlib figures as small SVG trees that leave the rest of a page alone."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from PIL import Image

#: Colour of text, axes and anything that should follow the page's text colour. On the page it
#: becomes ``currentColor``. Inside rasterised artists and images it stays this dark slate.
INK = "#1f2430"

#: Colour of the page behind the figure, for hollow markers and halos.
PAPER = "#fefdfc"

# Two image pixels for each pixel of a screen at 96 dpi.
RASTER_DPI = 192

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_NUMBER = re.compile(r"-?\d*\.\d+(?:e-?\d+)?")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_POINT = re.compile(r"-?[\d.]+ -?[\d.]+")


def drawing(fig: Figure, *, salt: str) -> ElementTree.Element:
    """Draw a figure as SVG that follows the page and shares no id with its neighbours.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        The figure; it stays open.
    salt : str
        Goes into the ids, together with the content.

    Returns
    -------
    xml.etree.ElementTree.Element
        The ``<svg>``, without namespaces; its ``viewBox`` is in points.
    """
    root = _render(fig)
    _strip(root)
    for element in root.iter():
        _restyle(element)
        _round_numbers(element)
        _shrink_image(element)
    _merge_digits(root)
    digest = hashlib.sha256(f"{salt}\0".encode() + ElementTree.tostring(root)).hexdigest()
    _rename_ids(root, f"f{digest[:10]}")
    return root


def _render(fig: Figure) -> ElementTree.Element:
    """Draw the figure as SVG and parse it, without namespaces or metadata."""
    for axes in fig.axes:
        # Matplotlib draws the grid above images, where it would read as data.
        if axes.images or any(isinstance(mesh, QuadMesh) for mesh in axes.collections):
            axes.grid(False)
    buffer = io.BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tutorials_lib"}):
        fig.savefig(buffer, format="svg", dpi=RASTER_DPI, facecolor="none", metadata=nothing)
    # Parsing drops Matplotlib's comments, which repeat every label.
    root = ElementTree.fromstring(buffer.getvalue())
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
        if _XLINK in element.attrib:
            element.set("href", element.attrib.pop(_XLINK))
    return root


def _references(root: ElementTree.Element) -> Iterator[str]:
    """Yield each id that something in the drawing points to."""
    for element in root.iter():
        for name, value in element.attrib.items():
            yield from _REFERENCE.findall(value)
            if name == "href" and value.startswith("#"):
                yield value[1:]


def _strip(root: ElementTree.Element) -> None:
    """Drop ids nobody points to, shapes that paint nothing, and groups that then say nothing."""
    used = set(_references(root))
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        element.text = _spaceless(element.text)
        element.tail = _spaceless(element.tail)

    # Tick marks have length 0 in this style, and Matplotlib still draws each of them.
    dots = {
        element.get("id")
        for element in root.iter("path")
        if element.get("id") and len(set(_POINT.findall(element.get("d", "")))) < 2
    }

    def keep(element: ElementTree.Element) -> bool:
        if element.tag in ("style", "metadata"):
            # Matplotlib's style sheet (* {...}) would restyle every other SVG of the page.
            return False
        if element.tag == "use":
            return element.get("href", "")[1:] not in dots
        if element.tag == "path":
            unpainted = "fill: none" in element.get("style", "") and (
                "stroke" not in element.get("style", "") and element.get("id") is None
            )
            return element.get("id") not in dots and not unpainted
        return True

    def visit(element: ElementTree.Element) -> list[ElementTree.Element]:
        element[:] = [kept for child in element if keep(child) for kept in visit(child)]
        if element.tag in ("g", "defs") and not len(element):
            return []
        if element.tag == "g" and not element.attrib:
            return list(element)
        return [element]

    root[:] = [kept for child in root for kept in visit(child) if keep(child)]


def _spaceless(text: str | None) -> str | None:
    return text if text and text.strip() else None


def _restyle(element: ElementTree.Element) -> None:
    """Replace ink, paper and fonts by what the page provides."""
    for name in ("style", "fill", "stroke"):
        if name in element.attrib:
            value = element.attrib[name].replace(INK, "currentColor")
            # Text measured in DejaVu Sans inherits the page's fonts; monospace stays monospace.
            value = re.sub(r"font-family: '?DejaVu Sans'?(,[^;]*)?(; |$)", "", value)
            value = value.replace(PAPER, "var(--figure-paper, Canvas)").rstrip("; ")
            element.attrib[name] = value.replace(": ", ":").replace("; ", ";")


def _round_numbers(element: ElementTree.Element) -> None:
    """Round coordinates to 0.01 pt; scale factors keep four digits."""
    for name in ("d", "x", "y", "width", "height", "points"):
        if name in element.attrib:
            text = _NUMBER.sub(_two_decimals, " ".join(element.attrib[name].split()))
            element.attrib[name] = re.sub(r" ?([A-Za-z]) ?", r"\1", text)
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    if "transform" in element.attrib:
        element.attrib["transform"] = _NUMBER.sub(
            lambda match: f"{float(match.group()):.6g}", element.attrib["transform"]
        )


def _two_decimals(match: re.Match[str]) -> str:
    text = f"{float(match.group()):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _shrink_image(element: ElementTree.Element) -> None:
    """Store a raster as an optimised PNG without metadata."""
    if element.tag != "image":
        return
    data = element.attrib["href"].partition("base64,")[2]
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        image.save(buffer, format="png", optimize=True)
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    element.attrib["href"] = f"data:image/png;base64,{encoded}"


def _merge_digits(root: ElementTree.Element) -> None:
    """Let the browser space the digits of one number.

    Mathtext, which log scales use for their tick labels, places each glyph by DejaVu's widths;
    in another font the digits of "10" would stand apart.
    """
    for text in root.iter("text"):
        merged: list[ElementTree.Element] = []
        for span in text:
            before = merged[-1] if merged else None
            if before is not None and _is_number(before) and _is_number(span):
                same = all(before.get(name) == span.get(name) for name in ("y", "style"))
                if same:
                    before.text = (before.text or "") + (span.text or "")
                    continue
            merged.append(span)
        text[:] = merged


def _is_number(span: ElementTree.Element) -> bool:
    return (
        span.tag == "tspan" and re.fullmatch(r"[\N{MINUS SIGN}\d.]+", span.text or "") is not None
    )


def _rename_ids(root: ElementTree.Element, prefix: str) -> None:
    """Give every id a name that no other drawing on the page has."""
    names: dict[str, str] = {}
    for element in root.iter():
        if "id" in element.attrib:
            names[element.attrib["id"]] = f"{prefix}-{len(names)}"
            element.attrib["id"] = names[element.attrib["id"]]
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == "href" and value.startswith("#"):
                element.attrib[name] = f"#{names[value[1:]]}"
            elif "url(#" in value:
                element.attrib[name] = _REFERENCE.sub(
                    lambda match: f"url(#{names[match.group(1)]})", value
                )
