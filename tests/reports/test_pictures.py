import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from call_rows import call_row
from langgraph.graph import END, START, StateGraph
from matplotlib.image import imread
from typing_extensions import TypedDict

from costada.reports.formats import duration, short_dollars
from costada.reports.graph_drawing import (
    LEFT,
    RIGHT,
    NodeSpending,
    RunSpending,
    draw_graph,
    fill_colour,
    layout,
    spending_by_node,
    spending_of_run,
)
from costada.reports.picture import ReportData, drawn_report, write_report
from costada.runs.folder import RunFolder
from costada.store.rows import CallRow, CallStatus
from costada.store.run_store import RunStore

Row = Callable[..., Any]


class Empty(TypedDict):
    pass


def loop() -> Any:
    graph = StateGraph(Empty)
    for name in ("first", "second", "third"):
        graph.add_node(name, lambda state: state)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_conditional_edges("second", lambda state: "", {"again": "first", "on": "third"})
    graph.add_conditional_edges("third", lambda state: "", {"more": "first", "enough": END})
    return graph.compile().get_graph()


def report(rows: list[Any], **changes: Any) -> ReportData:
    fields = {
        "title": "toy",
        "rows": rows,
        "budget": 0.1,
        "seed_objective": 4.9,
        "reference": None,
        "is_minimized": False,
    }
    return ReportData(**{**fields, **changes})


def some_rows(make_row: Row) -> list[Any]:
    return [
        make_row(iteration=1, spent=0.015),
        make_row(iteration=2, spent=0.04, objective=None, score=None, events=["guide_charged"]),
        make_row(iteration=3, spent=0.11, best_objective=6.1),
    ]


def test_a_report_is_a_wide_picture_with_ink_in_all_three_panels(tmp_path, make_row):
    write_report(report(some_rows(make_row), reference=7.0), tmp_path / "report.png")
    pixels = imread(tmp_path / "report.png")
    height, width = pixels.shape[:2]
    assert width > 1500
    assert height > 400
    for panel in range(3):
        part = pixels[:, panel * width // 3 : (panel + 1) * width // 3, :3]
        assert 0.02 < (part < 0.9).any(axis=2).mean() < 0.6


def test_legends_lie_between_title_and_panel_and_cover_neither(make_row):
    figure = drawn_report(report(some_rows(make_row), reference=7.0))
    figure.canvas.draw()
    for axes in figure.axes:
        legend = axes.get_legend().get_window_extent()
        panel = axes.get_window_extent()
        assert panel.y1 <= legend.y0
        assert legend.y1 <= axes.title.get_window_extent().y0
        assert panel.x0 <= legend.x0
        assert legend.x1 <= panel.x1
    words = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert words == ["candidate", "best so far", "counts as 1", "budget"]


@pytest.mark.parametrize("seed_objective", [None, 4.9])
def test_a_report_can_be_drawn_before_the_first_iteration(tmp_path, seed_objective):
    write_report(report([], seed_objective=seed_objective), tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 10_000


def test_a_report_can_be_drawn_while_nothing_valid_was_found(tmp_path, make_row):
    rows = [make_row(score=0.0, objective=None, best_objective=None, best_score=0.0)]
    write_report(report(rows, seed_objective=None, is_minimized=True), tmp_path / "report.png")
    assert [file.name for file in tmp_path.iterdir()] == ["report.png"]


def test_the_drawing_names_every_node_and_answer_in_order():
    svg = draw_graph(loop(), "svg").decode()
    texts = [part.split("-->")[0].strip() for part in svg.split("<!--")[1:]]
    assert [text for text in texts if text in ("first", "second", "third")] == [
        "first",
        "second",
        "third",
    ]
    assert {"start", "end", "again", "on", "more", "enough"} <= set(texts)
    ElementTree.fromstring(svg)


def test_the_drawing_as_png_is_large_enough_for_a_page(tmp_path):
    (tmp_path / "graph.png").write_bytes(draw_graph(loop(), "png"))
    height, width = imread(tmp_path / "graph.png").shape[:2]
    assert width > 800
    assert height > 500


NODES = {
    "first": NodeSpending(Decimal("0.40"), 2.0),
    "second": NodeSpending(Decimal("0.10"), 8.0),
    "third": NodeSpending(Decimal(0), 0.0),
}
SPENDING = RunSpending(12, NODES)


class Empty(TypedDict):
    pass


def loop() -> Any:
    graph = StateGraph(Empty)
    for name in NODES:
        graph.add_node(name, lambda state: state)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_conditional_edges("second", lambda state: "", {"again": "first", "on": "third"})
    graph.add_conditional_edges("third", lambda state: "", {"more": "first", "enough": END})
    return graph.compile().get_graph()


def call(role: str, cost: str, bound: str = "0", **changes: Any) -> CallRow:
    return call_row(role=role, cost=Decimal(cost), bound=Decimal(bound), **changes)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "$0"),
        ("0.00002", "<$0.0001"),
        ("0.00031", "$0.00031"),
        ("0.036", "$0.036"),
        ("0.314", "$0.31"),
        ("3.1", "$3.10"),
        ("1234.5", "$1,234.50"),
    ],
)
def test_dollars_are_short_and_never_rounded_to_nothing(amount, text):
    assert short_dollars(Decimal(amount)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.004, "<0.01 s"),
        (0.42, "0.42 s"),
        (4.24, "4.2 s"),
        (42.4, "42 s"),
        (150.0, "2.5 min"),
        (3500.0, "58 min"),
        (9000.0, "2.5 h"),
    ],
)
def test_times_are_told_in_the_unit_a_person_would_take(seconds, text):
    assert duration(seconds) == text


def test_a_node_is_the_bluer_the_more_dollars_it_has_spent():
    assert (fill_colour(0.0), fill_colour(1.0)) == ("#ffffff", "#2166ac")
    assert fill_colour(0.5) == "#90b2d6"
    first, second, third = (SPENDING.style_of(name) for name in NODES)
    assert (first.fill, second.fill, third.fill) == (
        fill_colour(1.0),
        fill_colour(0.25),
        fill_colour(0.0),
    )
    assert (first.ink, second.ink) == ("#ffffff", "#000000")
    assert (first.caption, third.caption) == ("$0.40 · 2.0 s", "$0 · 0 s")
    assert (first.bar, second.bar, third.bar) == (0.25, 1.0, 0.0)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_names_stay_readable_on_every_colour():
    for cents in range(101):
        nodes = {"dear": NodeSpending(Decimal(1)), "it": NodeSpending(Decimal(cents) / 100)}
        shade = RunSpending(1, nodes).style_of("it")
        lighter, darker = sorted((luminance(shade.fill), luminance(shade.ink)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, cents


def test_a_run_that_was_not_timed_shows_dollars_only():
    spending = RunSpending(1, {"first": NodeSpending(Decimal("0.4"))})
    assert spending.style_of("first").caption == "$0.40"
    assert spending.style_of("second").caption == "$0"
    assert spending.headline() == "1 iteration, $0.40"
    assert SPENDING.headline() == "12 iterations, $0.50, 10 s"


def test_a_run_that_has_spent_nothing_yet_is_white():
    spending = RunSpending(0, {})
    assert spending.style_of("first").fill == "#ffffff"
    ElementTree.fromstring(draw_graph(loop(), "svg", spending))


def test_arcs_go_around_those_they_overlap_and_no_others():
    lanes = {(arc.label, arc.side): arc.lane for arc in layout(loop()).arcs}
    assert lanes == {("again", LEFT): 0, ("more", LEFT): 1}
    assert layout(loop()).reach(RIGHT) == 0.0


def test_the_coloured_picture_names_every_number_and_explains_itself():
    svg = draw_graph(loop(), "svg", SPENDING).decode()
    texts = {part.split("-->")[0].strip() for part in svg.split("<!--")[1:]}
    told = {text.replace("\\$", "$") for text in texts}
    assert {"first", "$0.40 · 2.0 s", "$0.10 · 8.0 s", "$0 · 0 s"} <= told
    assert {"12 iterations, $0.50, 10 s", "time of a node:  0 s", "8.0 s", "$0.40"} <= told
    assert svg.count("#2166ac") >= 4
    ElementTree.fromstring(svg)


def test_the_same_run_gives_the_same_picture_byte_for_byte():
    assert draw_graph(loop(), "svg", SPENDING) == draw_graph(loop(), "svg", SPENDING)


def test_calls_are_put_down_to_the_node_that_makes_them():
    store = RunStore()
    store.call_log.put_call("run", call("generation", "0.010"))
    store.call_log.put_call("run", call("retry", "0.002", attempt=2))
    store.call_log.put_call("run", call("guide", "0.030"))
    lost = call("guide", "0", "0.05", attempt=2, status=CallStatus.ERROR, error="x: y")
    store.call_log.put_call("run", lost)
    store.timing.put("run", 1, {"generate": 3.0, "evaluate": 1.0})
    assert spending_by_node(store, "run") == {
        "generate": NodeSpending(Decimal("0.012"), 3.0),
        "guide": NodeSpending(Decimal("0.080"), None),
        "evaluate": NodeSpending(Decimal(0), 1.0),
    }
    spared = spending_by_node(store, "run", counts_lost=False)
    assert spared["guide"].dollars == Decimal("0.030")


def test_the_dollars_of_the_picture_are_those_of_the_ledger(finished):
    spending = spending_of_run(RunFolder(finished))
    last = json.loads((finished / "steps.jsonl").read_text().splitlines()[-1])
    assert spending.iterations == 3
    assert float(spending.dollars) == pytest.approx(last["spent"])
    assert spending.nodes["evaluate"].dollars == 0
    assert spending.nodes["evaluate"].seconds > 0  # type: ignore[operator]


@pytest.mark.parametrize("format", ["mermaid", "svg", "png"])
def test_the_graph_of_a_run_is_drawn_in_every_form(invoke, finished, tmp_path, format):
    target = tmp_path / "graph"
    result = invoke("graph", "--run", finished, "--format", format, "--out", target)
    assert result.exit_code == 0, result.output
    if format == "png":
        pixels = imread(target)
        is_blue = (pixels[:, :, 2] > 0.6) & (pixels[:, :, 0] < 0.2)
        assert is_blue.mean() > 0.01
    else:
        text = target.read_text()
        assert "3 iterations, $" in text.replace("\\$", "$")


def test_a_run_is_only_read_when_its_graph_is_drawn(invoke, finished):
    before = {file.name: file.read_bytes() for file in own_files(finished)}
    assert invoke("graph", "--run", finished).exit_code == 0
    assert {file.name: file.read_bytes() for file in own_files(finished)} == before


def own_files(folder: Path) -> list[Path]:
    """Return a run's files without those in which SQLite notes who is reading."""
    return [file for file in folder.iterdir() if not file.name.endswith(("-shm", "-wal"))]


def test_a_folder_without_a_run_is_refused_in_one_line(invoke, tmp_path):
    result = invoke("graph", "--run", tmp_path)
    assert result.exit_code == 2
    assert str(tmp_path) in result.output


def test_a_run_that_has_not_begun_is_refused_in_one_line(invoke, finished, tmp_path):
    (tmp_path / "settings.json").write_text((finished / "settings.json").read_text())
    result = invoke("graph", "--run", tmp_path)
    assert result.exit_code == 2
    assert "its run has not begun" in " ".join(result.output.split())
