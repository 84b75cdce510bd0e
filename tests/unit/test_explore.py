"""Figures with sliders: complete static pages, live widgets, and errors that help."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import ipywidgets
import matplotlib as mpl
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from nbclient import NotebookClient

from tutorials_lib import explore as module
from tutorials_lib import plotting
from tutorials_lib.explore import Slider, explore

TAU = Slider([0.05, 0.1, 0.2], label="temperature τ", format="{:.2f}", start=1)
KAPPA = Slider([1, 2], label="concentration κ")


@pytest.fixture(autouse=True)
def style(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The book's style, and no mode set from outside."""
    monkeypatch.delenv("TUTORIALS_LIB_FIGURES", raising=False)
    with mpl.rc_context():
        mpl.use("agg")
        plotting.use_book_style()
        yield
        plt.close("all")


def draw(tau: float, kappa: int = 1) -> Figure:
    fig, ax = plotting.figure(width=2, height=1)
    ax.plot([0, 1], [tau, kappa])
    return fig


def page(monkeypatch: pytest.MonkeyPatch, *arguments: Any, **options: Any) -> str:
    """Return the HTML that `explore` displays."""
    shown: list[plotting.Page] = []
    monkeypatch.setattr(module, "display", shown.append)
    explore(*arguments, **options)
    (only,) = shown
    return only._repr_html_()


class Reader(HTMLParser):
    """Collect what a page script and a reader rely on."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str, css: str | None = None) -> list[dict[str, str | None]]:
        return [
            attributes
            for name, attributes in self.tags
            if name == tag and (css is None or attributes.get("class") == css)
        ]


def two_sliders(monkeypatch: pytest.MonkeyPatch) -> Reader:
    markup = page(
        monkeypatch,
        draw,
        alt="Loss at τ = {tau:.2f} & κ = {kappa}.",
        caption="Move <both>.",
        tau=TAU,
        kappa=KAPPA,
    )
    return Reader(markup)


# --- static page ---------------------------------------------------------------------------------


def test_every_combination_has_a_frame_in_the_order_of_the_script(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """explore.js counts with the last slider fastest."""
    labels = [svg["aria-label"] for svg in two_sliders(monkeypatch).all("svg")]
    assert labels == [
        f"Loss at τ = {tau:.2f} & κ = {kappa}." for tau in (0.05, 0.1, 0.2) for kappa in (1, 2)
    ]


def test_only_the_frame_at_the_start_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = two_sliders(monkeypatch).all("div", "explore-frame")
    assert ["hidden" in frame for frame in frames] == [True, True, False, True, True, True]


def test_sliders_are_labelled_native_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = two_sliders(monkeypatch)
    inputs = reader.all("input")
    assert [(i["type"], i["min"], i["max"], i["value"]) for i in inputs] == [
        ("range", "0", "2", "1"),
        ("range", "0", "1", "0"),
    ]
    assert [i["aria-valuetext"] for i in inputs] == ["0.10", "1"]
    assert json.loads(inputs[0]["data-texts"] or "") == ["0.05", "0.10", "0.20"]
    ids = [i["id"] for i in inputs]
    assert [label["for"] for label in reader.all("label")] == ids
    assert [output["for"] for output in reader.all("output")] == ids


def test_sliders_wait_hidden_for_their_script_and_links_lead_to_each_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dead slider would mislead a reader without scripts."""
    reader = two_sliders(monkeypatch)
    (controls,) = reader.all("div", "explore-controls")
    assert "hidden" in controls
    frames = [f"#{frame['id']}" for frame in reader.all("div", "explore-frame")]
    assert [link["href"] for link in reader.all("a")] == frames


def test_page_runs_no_inline_script_and_escapes_words(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = two_sliders(monkeypatch)
    assert reader.all("script") == []
    assert reader.all("both") == []


def test_ids_are_unique_even_where_frames_look_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def constant(tau: float) -> Figure:
        return draw(0.5)

    ids = []
    for caption in ("One.", "Another."):
        reader = Reader(page(monkeypatch, constant, alt="At τ = {tau}.", caption=caption, tau=TAU))
        ids += [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) > 6
    assert len(ids) == len(set(ids))


def test_same_call_gives_the_same_page(monkeypatch: pytest.MonkeyPatch) -> None:
    assert two_sliders(monkeypatch).tags == two_sliders(monkeypatch).tags


def test_no_figure_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty frames in every chapter would fill the memory."""
    two_sliders(monkeypatch)
    assert plt.get_fignums() == []


def test_alt_may_be_a_function_of_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def describe(tau: float) -> str:
        return "A sharp valley." if tau < 0.08 else "A flat valley."

    reader = Reader(page(monkeypatch, draw, alt=describe, caption="Valleys.", tau=TAU))
    labels = [svg["aria-label"] for svg in reader.all("svg")]
    assert labels == ["A sharp valley.", "A flat valley.", "A flat valley."]


# --- mistakes ------------------------------------------------------------------------------------


def call(**changes: Any) -> None:
    options: dict[str, Any] = {
        "draw": draw,
        "alt": "At τ = {tau}.",
        "caption": "c",
        "tau": TAU,
        **changes,
    }
    explore(options.pop("draw"), **{k: v for k, v in options.items() if v is not None})


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"tau": None}, ValueError, "takes 1 or 2 sliders as keywords, got 0"),
        ({"b": KAPPA, "c": KAPPA}, ValueError, "1 or 2 sliders as keywords, got 3"),
        ({"tau": [0.1, 0.2]}, TypeError, r"tau must be a Slider, got list; write tau=Slider\("),
        ({"alt": ""}, ValueError, "alt is empty"),
        ({"alt": 3}, TypeError, "alt must be a string or a callable, got int"),
        ({"alt": "A curve."}, ValueError, r"alt says the same whatever tau is.*mention \{tau\}"),
        ({"alt": "At κ = {kappa}."}, ValueError, r"cannot be filled in.*it may use \{tau\}"),
        ({"alt": "At τ = {tau:d}."}, ValueError, "cannot be filled in"),
        ({"alt": r"At $\tau$ = {tau}."}, ValueError, "alt contains TeX"),
        ({"alt": lambda tau: None}, TypeError, "alt must be a string, got NoneType"),
        ({"caption": " "}, ValueError, "caption is empty"),
        ({"caption": "At τ = 0.05."}, ValueError, "say the same"),
        ({"draw": lambda tau: None}, TypeError, "draw must return the Figure .* got NoneType"),
        ({"draw": lambda tau: plotting.figure()}, TypeError, "got tuple; end it with `return fig`"),
        (
            {"tau": Slider(range(200), label="n")},
            ValueError,
            "the sliders make 200 frames, and a page holds at most 150",
        ),
    ],
)
def test_mistake_is_named(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(**changes)


def test_alt_must_mention_both_of_two_sliders() -> None:
    with pytest.raises(ValueError, match="whatever kappa is"):
        call(kappa=KAPPA)


def test_unknown_mode_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTORIALS_LIB_FIGURES", "dynamic")
    with pytest.raises(ValueError, match="must be 'static', 'live' or unset, got 'dynamic'"):
        call()


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"values": []}, ValueError, "has 0 values; it needs at least 2 to move"),
        ({"values": [1]}, ValueError, "has 1 values; it needs at least 2"),
        ({"values": "abc"}, TypeError, "got the string 'abc'"),
        ({"values": [1, float("nan")]}, TypeError, "must be a finite number or a string, got nan"),
        ({"values": [True, False]}, TypeError, "must be a finite number or a string, got True"),
        ({"values": [1, None]}, TypeError, "got None"),
        ({"label": " "}, ValueError, "label is empty"),
        ({"label": 3}, TypeError, "label must be a string, got int"),
        ({"start": 2}, ValueError, "start must be an index from 0 to 1, got 2"),
        ({"start": -1}, ValueError, "start must be an index from 0 to 1, got -1"),
        ({"start": 0.5}, ValueError, "start must be an index"),
        ({"values": [0.101, 0.102], "format": "{:.2f}"}, ValueError, "shows '0.10' for 2 values"),
        ({"values": ["a", "b"], "format": "{:.2f}"}, ValueError, "does not fit 'a'"),
        ({"format": "{tau}"}, ValueError, "does not fit 1"),
        ({"values": [2, 1], "continuous": True}, ValueError, "numbers in increasing order"),
        ({"values": ["a", "b"], "continuous": True}, ValueError, "numbers in increasing order"),
    ],
)
def test_slider_names_its_mistake(
    fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Slider(**{"values": [1, 2], "label": "n", **fields})


def test_slider_takes_arrays_and_gives_plain_numbers() -> None:
    """`draw` may hand a value to code that knows no NumPy or torch scalar."""
    for values in (np.array([1.5, 2.5]), torch.tensor([1.5, 2.5]), (1.5, 2.5)):
        slider = Slider(values, label="x")
        assert slider.values == (1.5, 2.5)
        assert all(type(value) is float for value in slider.values)


def test_values_are_written_for_people() -> None:
    assert Slider([-1.0, 0.5], label="x").texts == ["−1", "0.5"]
    assert Slider(["text-image", "none"], label="x").texts == ["text-image", "none"]


# --- live ----------------------------------------------------------------------------------------


def test_mode_follows_the_kernel_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not module._is_live()
    monkeypatch.setattr(module, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    assert module._is_live()
    monkeypatch.setattr(module, "get_ipython", lambda: SimpleNamespace())  # a terminal's IPython
    assert not module._is_live()
    monkeypatch.setenv("TUTORIALS_LIB_FIGURES", "live")
    assert module._is_live()
    monkeypatch.setattr(module, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setenv("TUTORIALS_LIB_FIGURES", "static")
    assert not module._is_live()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, 5], ipywidgets.IntSlider),
        ([0.1, 0.2, 0.3], ipywidgets.FloatSlider),
        ([-1.0, 0.0, 1.0], ipywidgets.FloatSlider),
        (np.geomspace(0.01, 1, 5), ipywidgets.FloatLogSlider),
    ],
)
def test_continuous_slider_spans_its_values(values: Any, kind: type) -> None:
    slider = Slider(values, label="x", start=1, continuous=True)
    widget = module._widget(slider)
    assert type(widget) is kind
    low, high = (
        (widget.base**widget.min, widget.base**widget.max)
        if kind is ipywidgets.FloatLogSlider
        else (widget.min, widget.max)
    )
    assert (low, high) == pytest.approx((slider.values[0], slider.values[-1]))
    assert widget.value == pytest.approx(slider.values[1])


def test_listed_slider_offers_only_its_values() -> None:
    """`draw` may look its values up in a table computed before."""
    widget = module._widget(TAU)
    assert isinstance(widget, ipywidgets.SelectionSlider)
    assert widget.value == 0.1
    assert [text for text, _ in widget.options] == ["0.05", "0.10", "0.20"]


LIVE_CELLS = [
    """
import ipywidgets
from tutorials_lib import plotting
from tutorials_lib.explore import Slider, explore

plotting.use_book_style()
asked = []

def draw(tau):
    asked.append(tau)
    if tau == 0.3:
        raise RuntimeError("no such frame")
    fig, ax = plotting.figure(width=2, height=1)
    ax.plot([0, tau])
    return fig

explore(draw, alt="Drawn at {tau}.", caption="c",
        tau=Slider([0.1, 0.2, 0.3], label="temperature"))
""",
    """
(slider,) = [w for w in ipywidgets.Widget.get_manager_state()["state"].items()
             if w[1]["model_name"] == "SelectionSliderModel"]
slider = ipywidgets.widgets.widget._instances[slider[0]]
slider.value = 0.2
assert asked == [0.1, 0.2], asked
""",
    "slider.value = 0.3",
]


def test_live_kernel_draws_one_frame_and_redraws_on_a_move(tmp_path: Any) -> None:
    """In a true kernel: widgets appear, a move draws afresh, an error in draw is shown."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in LIVE_CELLS],
        metadata={"kernelspec": {"name": "python3", "display_name": "", "language": "python"}},
    )
    NotebookClient(
        notebook, timeout=120, store_widget_state=True, resources={"metadata": {"path": tmp_path}}
    ).execute()

    first = notebook.cells[0].outputs
    assert any("application/vnd.jupyter.widget-view+json" in o.get("data", {}) for o in first)
    state = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    (output,) = (w["state"] for w in state.values() if w["model_name"] == "OutputModel")
    shown = json.dumps(output["outputs"], ensure_ascii=False)
    assert "Drawn at 0.2." in shown
    assert "Drawn at 0.1." not in shown
    assert "no such frame" in shown


def test_live_kernel_raises_where_the_first_frame_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A widget would swallow it, and a notebook's test would pass."""
    monkeypatch.setenv("TUTORIALS_LIB_FIGURES", "live")
    with pytest.raises(TypeError, match="draw must return the Figure"):
        call(draw=lambda tau: None)


def test_start_may_be_an_integer_of_numpy() -> None:
    """As argmin gives it; the message called an index in range out of range."""
    assert Slider([3, 1, 2], label="κ", start=np.argmin([3, 1, 2])) == Slider(
        [3, 1, 2], label="κ", start=1
    )
