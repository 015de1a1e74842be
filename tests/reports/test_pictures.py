import json
import pathlib
import re
import shutil
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree

import pytest
from langgraph.graph import END, START, StateGraph
from matplotlib.image import imread
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path
from rows import call_row
from typing_extensions import TypedDict

from costada.evaluators.registry import problem
from costada.graph.build import compile_search
from costada.models.chat_models import chat_model
from costada.nodes.settings import Settings
from costada.reports.formats import duration, short_dollars
from costada.reports.graph_drawing import (
    LEFT,
    RIGHT,
    NodeSpending,
    RunSpending,
    draw_graph,
    fill_colour,
    layout,
    plot_graph,
    spending_by_node,
    spending_of_run,
)
from costada.reports.picture import ReportData, draw_report, write_report
from costada.runs.folder import RunFolder
from costada.store.rows import CallRow, CallStatus
from costada.store.run_store import RunStore

ROOT = pathlib.Path(__file__).parents[2]


class Empty(TypedDict):
    pass


def loop():
    graph = StateGraph(Empty)
    for name in NODES:
        graph.add_node(name, lambda state: state)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_conditional_edges("second", lambda state: "", {"again": "first", "on": "third"})
    graph.add_conditional_edges("third", lambda state: "", {"more": "first", "enough": END})
    return graph.compile().get_graph()


def comments_of(svg):
    """The texts of a picture, which matplotlib writes as comments."""
    return [part.split("-->")[0].strip().replace("\\$", "$") for part in svg.split("<!--")[1:]]


def report(rows, **changes):
    fields = {"title": "toy", "rows": rows, "budget": 0.1, "seed_objective": 4.9}
    return ReportData(**{**fields, "reference": None, "is_minimized": False, **changes})


def some_rows(make_row):
    failed = {"objective": None, "score": None}
    return [
        make_row(iteration=1, spent=0.015),
        make_row(iteration=2, spent=0.04, **failed, events=["guide_charged"]),
        make_row(iteration=3, spent=0.11, best_objective=6.1),
    ]


def test_a_report_is_a_wide_picture_with_ink_in_all_three_panels(tmp_path, make_row):
    write_report(report(some_rows(make_row), reference=7.0), tmp_path / "report.png")
    pixels = imread(tmp_path / "report.png")
    height, width = pixels.shape[:2]
    assert (width > 1500, height > 400) == (True, True)
    for panel in range(3):
        part = pixels[:, panel * width // 3 : (panel + 1) * width // 3, :3]
        assert 0.02 < (part < 0.9).any(axis=2).mean() < 0.6


def test_legends_lie_between_title_and_panel_and_cover_neither(make_row):
    figure = draw_report(report(some_rows(make_row), reference=7.0))
    figure.canvas.draw()
    for axes in figure.axes:
        legend, panel = axes.get_legend().get_window_extent(), axes.get_window_extent()
        assert panel.y1 <= legend.y0
        assert legend.y1 <= axes.title.get_window_extent().y0
        assert panel.x0 <= legend.x0
        assert legend.x1 <= panel.x1
    words = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert words == ["candidate", "best so far", "score 1", "budget"]


@pytest.mark.parametrize("reference", [0.5, 5.0])
def test_the_axis_of_objectives_reaches_the_objective_that_counts_as_1(make_row, reference):
    rows = [make_row(iteration=1, spent=0.05, objective=6.0, best_objective=6.0)]
    low, high = draw_report(report(rows, reference=reference)).axes[0].get_ylim()
    assert low < reference < 6.0 < high


def test_the_cost_of_an_iteration_has_the_colour_of_its_model(make_row):
    router = [{"name": name} for name in ("small", "large")]
    rows = [
        make_row(iteration=1, models=["large"], router=router, step_cost=0.03),
        make_row(iteration=2, models=["large", "small"], router=router, step_cost=0.01),
        make_row(iteration=3, models=[], router=router, step_cost=0.002),
    ]
    axes = draw_report(report(rows)).axes[1]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        *("small", "large", "no attempt")
    ]
    small, large, _ = axes.containers
    assert [(bar.get_x() + 0.4, bar.get_height()) for bar in small] == [(2, 0.01)]
    assert [(bar.get_x() + 0.4, bar.get_height()) for bar in large] == [(1, 0.03)]
    assert small[0].get_facecolor() != large[0].get_facecolor()


NOTHING_VALID = {"score": 0.0, "objective": None, "best_objective": None, "best_score": 0.0}


@pytest.mark.parametrize(
    ("rows", "changes"),
    [
        ([], {"seed_objective": None}),
        ([], {}),
        ([NOTHING_VALID], {"seed_objective": None, "is_minimized": True}),
    ],
)
def test_a_report_can_be_drawn_before_anything_valid_is_found(tmp_path, make_row, rows, changes):
    data = report([make_row(**row) for row in rows], **changes)
    write_report(data, tmp_path / "report.png")
    assert [file.name for file in tmp_path.iterdir()] == ["report.png"]
    assert (tmp_path / "report.png").stat().st_size > 10_000


def test_the_drawing_names_every_node_and_answer_in_order(tmp_path):
    svg = draw_graph(loop(), "svg").decode()
    texts = comments_of(svg)
    assert [text for text in texts if text in NODES] == ["first", "second", "third"]
    assert {"start", "end", "again", "on", "more", "enough"} <= set(texts)
    ElementTree.fromstring(svg)
    (tmp_path / "graph.png").write_bytes(draw_graph(loop(), "png"))
    height, width = imread(tmp_path / "graph.png").shape[:2]
    assert (width > 600, height > 500) == (True, True)


NODES = {
    "first": NodeSpending(Decimal("0.40"), 2.0),
    "second": NodeSpending(Decimal("0.10"), 8.0),
    "third": NodeSpending(Decimal(0), 0.0),
}
SPENDING = RunSpending(12, NODES)


def call(role: str, cost: str, bound: str = "0", **changes: Any) -> CallRow:
    return call_row(role=role, cost=Decimal(cost), bound=Decimal(bound), **changes)


@pytest.mark.parametrize(
    ("format", "cases"),
    [
        (
            lambda amount: short_dollars(Decimal(amount)),
            {
                **{"0": "$0", "0.00002": "<$0.0001", "0.00031": "$0.00031", "0.036": "$0.036"},
                **{"0.314": "$0.31", "3.1": "$3.10", "1234.5": "$1,234.50"},
            },
        ),
        (
            duration,
            {
                **{0.0: "0 s", 0.004: "<0.01 s", 0.42: "0.42 s", 4.24: "4.2 s", 42.4: "42 s"},
                **{150.0: "2.5 min", 3500.0: "58 min", 9000.0: "2.5 h"},
            },
        ),
    ],
)
def test_quantities_are_short_and_never_rounded_to_nothing(format, cases):
    assert {value: format(value) for value in cases} == cases


def test_a_node_is_the_bluer_the_more_dollars_it_has_spent():
    assert [fill_colour(share) for share in (0.0, 0.5, 1.0)] == ["#ffffff", "#90b2d6", "#2166ac"]
    styles = [SPENDING.style_of(name) for name in NODES]
    assert [each.fill for each in styles] == [fill_colour(share) for share in (1.0, 0.25, 0.0)]
    assert [each.ink for each in styles[:2]] == ["#ffffff", "#000000"]
    assert [each.caption for each in styles] == ["$0.40 · 2.0 s", "$0.10 · 8.0 s", "$0 · 0 s"]
    assert [each.bar for each in styles] == [0.25, 1.0, 0.0]


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_names_stay_readable_on_every_colour():
    for cents in range(101):
        nodes = {"most": NodeSpending(Decimal(1)), "it": NodeSpending(Decimal(cents) / 100)}
        style = RunSpending(1, nodes).style_of("it")
        lighter, darker = sorted((luminance(style.fill), luminance(style.ink)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, cents


def test_a_run_without_times_shows_dollars_only_and_one_without_dollars_is_white():
    spending = RunSpending(1, {"first": NodeSpending(Decimal("0.4"))})
    assert [spending.style_of(name).caption for name in ("first", "second")] == ["$0.40", "$0"]
    assert spending.headline() == "1 iteration, $0.40"
    assert SPENDING.headline() == "12 iterations, $0.50, 10 s"
    nothing = RunSpending(0, {})
    assert nothing.style_of("first").fill == "#ffffff"
    ElementTree.fromstring(draw_graph(loop(), "svg", nothing))


def test_arcs_go_around_those_they_overlap_and_no_others():
    lanes = {(arc.label, arc.side): arc.lane for arc in layout(loop()).arcs}
    assert lanes == {("again", LEFT): 0, ("more", LEFT): 1}
    assert layout(loop()).reach(RIGHT) == 0.0


def open_path(path):
    """An arrow's line and head; a close has no place, and would lead to the origin."""
    is_drawn = path.codes != Path.CLOSEPOLY
    return Path(path.vertices[is_drawn], path.codes[is_drawn])


def crossed_labels(graph):
    """The labels of a drawn graph that a line or another label passes."""
    figure = plot_graph(graph)
    figure.canvas.draw()
    (axes,) = figure.axes
    arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    lines = [axes.transData.transform_path(open_path(arrow.get_path())) for arrow in arrows]
    boxes = [(text.get_text(), text.get_window_extent()) for text in axes.texts]
    is_crossed = [
        any(box.overlaps(other) for _, other in boxes if other is not box)
        or any(line.intersects_bbox(box, filled=False) for line in lines)
        for _, box in boxes
    ]
    assert len(lines) == len(graph.edges)
    return [text for (text, _), crossed in zip(boxes, is_crossed, strict=True) if crossed]


@pytest.mark.parametrize("method", ["costada", "evox", "uniform"])
def test_no_line_crosses_the_label_of_another(method):
    search = compile_search(
        problem("circle_packing"),
        chat_model("offline"),
        budget=1.0,
        settings=Settings(method=method),
    )
    assert crossed_labels(search.get_graph()) == []


def test_the_drawing_of_the_documentation_has_the_edges_of_the_graph():
    graph = compile_search(
        problem("circle_packing"), chat_model("offline"), budget=1.0, settings=Settings()
    ).get_graph()
    svg = (ROOT / "docs/images/graph.svg").read_text()
    drawn = re.findall(r'id="edge:([^"]*)"', svg)
    edges = (
        f"{edge.source}:{str(edge.data or '').replace(' ', '-')}:{edge.target}"
        for edge in graph.edges
    )
    assert sorted(drawn) == sorted(edges), "draw it: costada graph --out docs/images/graph.svg"
    assert set(graph.nodes) - {"__start__", "__end__"} <= set(comments_of(svg))


def test_no_line_of_a_loop_crosses_the_label_of_another():
    assert crossed_labels(loop()) == []


def test_the_coloured_picture_names_every_number_and_is_reproducible():
    svg = draw_graph(loop(), "svg", SPENDING).decode()
    texts = set(comments_of(svg))
    assert {"first", "$0.40 · 2.0 s", "$0.10 · 8.0 s", "$0 · 0 s"} <= texts
    assert {"12 iterations, $0.50, 10 s", "time of a node:  0 s", "8.0 s", "$0.40"} <= texts
    assert svg.count("#2166ac") >= 4
    ElementTree.fromstring(svg)
    assert draw_graph(loop(), "svg", SPENDING).decode() == svg


def test_calls_are_charged_to_the_node_that_makes_them():
    store = RunStore()
    for role, cost, attempt in (
        ("generation", "0.01", 1),
        ("retry", "0.002", 2),
        ("guide", "0.03", 1),
    ):
        store.call_log.put_call("run", call(role, cost, attempt=attempt))
    lost = call("guide", "0", "0.05", attempt=2, status=CallStatus.ERROR, error="x: y")
    store.call_log.put_call("run", lost)
    store.timing.put("run", 1, {"generate": 3.0, "evaluate": 1.0})
    assert spending_by_node(store, "run") == {
        "generate": NodeSpending(Decimal("0.012"), 3.0),
        "guide": NodeSpending(Decimal("0.080"), None),
        "evaluate": NodeSpending(Decimal(0), 1.0),
    }
    assert spending_by_node(store, "run", counts_lost=False)["guide"].dollars == Decimal("0.030")


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
        assert is_blue.mean() > 0.005
    else:
        text = target.read_text()
        assert "3 iterations, $" in text.replace("\\$", "$")


def test_the_graph_of_a_run_is_that_of_its_method(invoke, finished, tmp_path):
    folder = tmp_path / "evox"
    shutil.copytree(finished, folder)
    settings = json.loads((finished / "settings.json").read_text())
    assert "evolve_strategy" not in invoke("graph", "--run", finished).stdout
    settings["method"] = "evox"
    (folder / "settings.json").write_text(json.dumps(settings))
    drawn = invoke("graph", "--run", folder).stdout
    assert "evaluate -. &nbsp;evox&nbsp; .-> review_strategy" in drawn
    assert "review_strategy -. &nbsp;evolution&nbsp; .-> evolve_strategy" in drawn


def contents(folder):
    """The files of a run, without those in which SQLite notes its readers."""
    files = [file for file in folder.iterdir() if not file.name.endswith(("-shm", "-wal"))]
    return {file.name: file.read_bytes() for file in files}


def test_a_run_is_only_read_when_its_graph_is_drawn(invoke, finished):
    before = contents(finished)
    assert invoke("graph", "--run", finished).exit_code == 0
    assert contents(finished) == before


def test_a_folder_without_a_run_and_one_that_has_not_begun_are_refused(invoke, finished, tmp_path):
    result = invoke("graph", "--run", tmp_path)
    assert (result.exit_code, str(tmp_path) in result.output) == (2, True)
    (tmp_path / "settings.json").write_text((finished / "settings.json").read_text())
    result = invoke("graph", "--run", tmp_path)
    assert result.exit_code == 2
    assert "its run has not started" in " ".join(result.output.split())
