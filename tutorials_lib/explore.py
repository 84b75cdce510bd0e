"""Figures with sliders that also move on a web page without a kernel.

One call serves both. Under a live kernel the sliders are ipywidgets and each move draws afresh.
When the book is built there is nobody to draw later, so every frame is drawn ahead as inline SVG
and the page's script shows the one that the native range inputs point at.
"""

from __future__ import annotations

import hashlib
import html
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
from IPython import get_ipython
from IPython.display import display
from matplotlib.figure import Figure

from tutorials_lib.plotting import Page, check_texts, figure_page, figure_svg

__all__ = ["Slider", "explore"]

_MODE_VARIABLE = "TUTORIALS_LIB_FIGURES"
_MOST_FRAMES = 150


@dataclass(frozen=True)
class Slider:
    """The values one slider takes, and how they are written.

    Parameters
    ----------
    values : sequence of float, int or str
        At least two, all different when written with `format`.
    label : str
        Name of the slider as the reader sees it, such as "temperature τ".
    format : str, optional
        How a value is written, such as "{:.2f}". By default numbers as "{:g}", strings as they are.
    start : int
        Index into `values` of the frame shown first.
    continuous : bool
        Under a live kernel, take any value between the first and the last instead of only those in
        `values`. For numbers in increasing order; a constant ratio gives a logarithmic slider. The
        book's page has the listed values either way.

    Raises
    ------
    TypeError
        If a value is neither a finite number nor a string, or a text is not a string.
    ValueError
        If there are fewer than two values, two of them read the same, the label is empty, the
        format does not fit, or `start` is not an index into `values`.
    """

    values: Sequence[Any]
    label: str
    format: str | None = None
    start: int = 0
    continuous: bool = False

    def __post_init__(self) -> None:
        """Check the fields and turn the scalars of NumPy and torch into Python's."""
        if isinstance(self.values, str):
            raise TypeError(f"values must be a sequence of values, got the string {self.values!r}")
        values = tuple(v.item() if hasattr(v, "item") else v for v in self.values)
        object.__setattr__(self, "values", values)
        if isinstance(self.start, np.integer):
            object.__setattr__(self, "start", int(self.start))
        if not isinstance(self.label, str):
            raise TypeError(f"label must be a string, got {type(self.label).__name__}")
        if not self.label.strip():
            raise ValueError("label is empty; name the slider, for example 'temperature τ'")
        if len(values) < 2:
            raise ValueError(
                f"slider {self.label!r} has {len(values)} values; it needs at least 2 to move"
            )
        for value in values:
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not (number and np.isfinite(value)) and not isinstance(value, str):
                raise TypeError(
                    f"slider {self.label!r}: a value must be a finite number or a string, "
                    f"got {value!r}"
                )
        index = isinstance(self.start, int) and not isinstance(self.start, bool)
        if not index or not 0 <= self.start < len(values):
            raise ValueError(
                f"slider {self.label!r}: start must be an index from 0 to {len(values) - 1}, "
                f"got {self.start!r}"
            )
        texts = self.texts
        for text in texts:
            if texts.count(text) > 1:
                raise ValueError(
                    f"slider {self.label!r} shows {text!r} for {texts.count(text)} values, so "
                    "they cannot be told apart; remove one or give a finer format"
                )
        if self.continuous:
            ordered = all(isinstance(v, (int, float)) for v in values) and all(
                low < high for low, high in itertools.pairwise(values)
            )
            if not ordered:
                raise ValueError(
                    f"slider {self.label!r}: continuous=True needs numbers in increasing order, "
                    f"got {values!r}"
                )

    @property
    def texts(self) -> list[str]:
        """The values as the reader sees them."""
        return [self.text(value) for value in self.values]

    def text(self, value: Any) -> str:
        """Write one value.

        Raises
        ------
        ValueError
            If the format does not fit the value.
        """
        pattern = self.format
        if pattern is None:
            pattern = "{}" if isinstance(value, str) else "{:g}"
        try:
            text = pattern.format(value)
        except (ValueError, IndexError, KeyError, TypeError) as error:
            raise ValueError(
                f"slider {self.label!r}: format {pattern!r} does not fit {value!r} ({error}); "
                "use one like '{:.2f}' for numbers or '{}' for strings"
            ) from error
        return text if isinstance(value, str) else text.replace("-", "\N{MINUS SIGN}")


def explore(
    draw: Callable[..., Figure],
    *,
    alt: str | Callable[..., str],
    caption: str,
    **sliders: Slider,
) -> None:
    """Display a figure that one or two sliders change.

    Parameters
    ----------
    draw : callable
        ``draw(**values)`` returns a new Matplotlib figure for these values of the sliders. Keep
        the axes' limits fixed in it, or the frames jump.
    alt : str or callable
        Text alternative of a frame: a format string such as ``"Loss at τ = {tau:.2f}"``, or a
        callable of the same keywords that returns the text. It has to say what changes.
    caption : str
        The line below the figure, the same for every frame. Plain text.
    **sliders : Slider
        One or two, by the name of the argument of `draw`.

    Raises
    ------
    TypeError
        If `draw` returns no figure or a slider is no `Slider`.
    ValueError
        If there are no sliders or more than two, more than 150 frames, a text is empty or contains
        TeX, or `alt` stays the same while a slider moves.

    Notes
    -----
    The environment variable ``TUTORIALS_LIB_FIGURES`` chooses: "static" draws all frames ahead,
    "live" gives ipywidgets. Unset, widgets are used when there is an IPython kernel.

    Examples
    --------
    >>> explore(  # doctest: +SKIP
    ...     lambda tau: loss_figure(tau),
    ...     alt="Loss against angle at temperature {tau:.2f}.",
    ...     caption="A lower temperature sharpens the minimum.",
    ...     tau=Slider([0.05, 0.1, 0.2, 0.5], label="temperature τ", format="{:.2f}"),
    ... )
    """
    _check_sliders(sliders)
    check_texts(caption=caption)
    describe = _describer(alt, sliders)
    _check_alts(describe, sliders, caption)
    if _is_live():
        _show_widgets(draw, describe, caption, sliders)
        return
    page = _static_page(draw, describe, caption, sliders)
    display(Page(page, f"Figure with sliders: {caption}"))


def _check_sliders(sliders: Mapping[str, Slider]) -> None:
    if not 1 <= len(sliders) <= 2:
        raise ValueError(
            f"explore takes 1 or 2 sliders as keywords, got {len(sliders)}"
            + (f" ({', '.join(sliders)}); fix the others inside draw" if sliders else "")
        )
    for name, slider in sliders.items():
        if not isinstance(slider, Slider):
            raise TypeError(
                f"{name} must be a Slider, got {type(slider).__name__}; "
                f"write {name}=Slider(values, label=…)"
            )
    frames = int(np.prod([len(slider.values) for slider in sliders.values()]))
    if frames > _MOST_FRAMES:
        raise ValueError(
            f"the sliders make {frames} frames, and a page holds at most {_MOST_FRAMES}; "
            "give fewer values"
        )


def _describer(alt: str | Callable[..., str], sliders: Mapping[str, Slider]) -> Callable[..., str]:
    """Turn `alt` into a function of the sliders' values."""
    if callable(alt):
        return alt
    if not isinstance(alt, str):
        raise TypeError(f"alt must be a string or a callable, got {type(alt).__name__}")

    def describe(**values: Any) -> str:
        try:
            return alt.format(**values)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            names = ", ".join(f"{{{name}}}" for name in sliders)
            raise ValueError(
                f"alt {alt!r} cannot be filled in ({type(error).__name__}: {error}); "
                f"it may use {names}"
            ) from error

    return describe


def _frames(sliders: Mapping[str, Slider]) -> list[tuple[int, ...]]:
    """Positions of the sliders in each frame, the last slider fastest."""
    return list(itertools.product(*(range(len(s.values)) for s in sliders.values())))


def _values(sliders: Mapping[str, Slider], indices: tuple[int, ...]) -> dict[str, Any]:
    return {
        name: slider.values[index]
        for (name, slider), index in zip(sliders.items(), indices, strict=True)
    }


def _check_alts(describe: Callable[..., str], sliders: Mapping[str, Slider], caption: str) -> None:
    """Refuse descriptions that are empty or do not say what a slider changes."""
    alts = {indices: describe(**_values(sliders, indices)) for indices in _frames(sliders)}
    for alt in alts.values():
        check_texts(alt=alt, caption=caption)
    for position, name in enumerate(sliders):
        others: dict[tuple[int, ...], set[str]] = {}
        for indices, alt in alts.items():
            rest = indices[:position] + indices[position + 1 :]
            others.setdefault(rest, set()).add(alt)
        if all(len(texts) == 1 for texts in others.values()):
            raise ValueError(
                f"alt says the same whatever {name} is, so a reader who does not see the figure "
                f"learns nothing from the slider; mention {{{name}}} or what it changes"
            )


def _is_live() -> bool:
    mode = os.environ.get(_MODE_VARIABLE, "")
    if mode not in ("", "static", "live"):
        raise ValueError(
            f"the environment variable {_MODE_VARIABLE} must be 'static', 'live' or unset, "
            f"got {mode!r}"
        )
    if mode:
        return mode == "live"
    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def _drawn(draw: Callable[..., Figure], values: Mapping[str, Any]) -> Figure:
    fig = draw(**values)
    if not isinstance(fig, Figure):
        raise TypeError(
            f"draw must return the Figure it drew, got {type(fig).__name__}; end it with "
            "`return fig`, where fig is the first value that plotting.figure() returns"
        )
    return fig


def _static_page(
    draw: Callable[..., Figure],
    describe: Callable[..., str],
    caption: str,
    sliders: Mapping[str, Slider],
) -> str:
    """All frames and their sliders as HTML that the page's script moves."""
    first = tuple(slider.start for slider in sliders.values())
    drawn = []
    for indices in _frames(sliders):
        values = _values(sliders, indices)
        fig = _drawn(draw, values)
        drawn.append(
            (indices, figure_svg(fig, alt=describe(**values), salt=f"{caption}\0{indices}"))
        )
        plt.close(fig)
    content = "\0".join((caption, *sliders, *(picture for _, picture in drawn)))
    name = f"e{hashlib.sha256(content.encode()).hexdigest()[:10]}"

    controls = []
    for key, slider in sliders.items():
        texts = slider.texts
        values_json = html.escape(json.dumps(texts, ensure_ascii=False))
        controls.append(
            f'<div class="explore-control">'
            f'<label for="{name}-{key}">{html.escape(slider.label)}</label>'
            f'<input type="range" id="{name}-{key}" min="0" max="{len(texts) - 1}" step="1" '
            f'value="{slider.start}" autocomplete="off" '
            f'aria-valuetext="{html.escape(texts[slider.start])}" data-texts="{values_json}">'
            f'<output for="{name}-{key}" aria-live="off">{html.escape(texts[slider.start])}'
            f"</output></div>"
        )
    frames = []
    links = []
    for indices, picture in drawn:
        frame = f"{name}-{'-'.join(map(str, indices))}"
        hidden = "" if indices == first else " hidden"
        frames.append(f'<div class="explore-frame" id="{frame}"{hidden}>{picture}</div>')
        said = ", ".join(
            f"{slider.label} {slider.texts[index]}"
            for slider, index in zip(sliders.values(), indices, strict=True)
        )
        links.append(f'<a href="#{frame}">{html.escape(said)}</a>')
    # The sliders stay hidden until the script that moves them runs. Without it, links to the
    # frames do the same work through the style sheet's :target.
    return (
        '<figure class="book-figure explore">\n'
        f'<div class="explore-frames">{"".join(frames)}</div>\n'
        f'<div class="explore-controls" hidden>{"".join(controls)}</div>\n'
        '<p class="explore-said" aria-live="polite"></p>\n'
        f'<noscript><p class="explore-links">{" · ".join(links)}</p></noscript>\n'
        f"<figcaption>{html.escape(caption)}</figcaption>\n"
        "</figure>"
    )


def _show_widgets(
    draw: Callable[..., Figure],
    describe: Callable[..., str],
    caption: str,
    sliders: Mapping[str, Slider],
) -> None:
    """Widgets that draw a frame at each move."""
    widgets = {name: _widget(slider) for name, slider in sliders.items()}
    output = ipywidgets.Output()

    def frame() -> Page:
        values = {name: widget.value for name, widget in widgets.items()}
        return figure_page(_drawn(draw, values), alt=describe(**values), caption=caption)

    def redraw(_change: Any) -> None:
        # Inside the context an error in draw is shown below the sliders, not lost in a log.
        with output:
            page = frame()
            output.clear_output(wait=True)
            display(page)

    # The first frame is drawn outside of it, so that its errors are the cell's errors.
    first = frame()
    for widget in widgets.values():
        widget.observe(redraw, names="value")
    display(ipywidgets.VBox([*widgets.values(), output]))
    with output:
        display(first)


def _widget(slider: Slider) -> ipywidgets.Widget:
    common = {
        "description": slider.label,
        "style": {"description_width": "initial"},
        "layout": {"width": "min(100%, 32em)"},
        "continuous_update": False,
    }
    start = slider.values[slider.start]
    if not slider.continuous:
        options = list(zip(slider.texts, slider.values, strict=True))
        return ipywidgets.SelectionSlider(options=options, value=start, **common)
    low, high = slider.values[0], slider.values[-1]
    if all(isinstance(value, int) for value in slider.values):
        return ipywidgets.IntSlider(value=start, min=low, max=high, **common)
    readout = {"readout_format": ".3g"}
    ratios = [b / a for a, b in itertools.pairwise(slider.values)] if low > 0 else []
    if len(ratios) > 1 and np.allclose(ratios, ratios[0], rtol=0.01):
        low, high = float(np.log10(low)), float(np.log10(high))
        return ipywidgets.FloatLogSlider(
            value=start, min=low, max=high, step=(high - low) / 100, **readout, **common
        )
    step = (high - low) / 100
    return ipywidgets.FloatSlider(value=start, min=low, max=high, step=step, **readout, **common)
