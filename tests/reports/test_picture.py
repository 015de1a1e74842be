from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
from langgraph.graph import END, START, StateGraph
from matplotlib.image import imread
from typing_extensions import TypedDict

from costada.reports.graph_drawing import draw_graph
from costada.reports.picture import ReportData, drawn_report, write_report

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
