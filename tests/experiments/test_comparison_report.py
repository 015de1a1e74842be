import csv
import io
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from compared_runs import outcome, runs_of

from costada.experiments.comparison.comparison import Comparison, compare_outcomes
from costada.experiments.comparison.comparison_report import to_csv, to_html, to_latex, to_markdown
from costada.experiments.comparison.figures import (
    MODEL_COLOURS,
    STYLES,
    line_styles,
    median_runs,
    model_styles,
    trajectories,
)
from costada.experiments.comparison.metrics import Point
from costada.experiments.comparison.outcomes import append_outcomes
from costada.experiments.comparison.tables import (
    Table,
    final_quality,
    missing_runs,
    objective,
    rerun_table,
    section_tables,
)

pytestmark = pytest.mark.process

HOSTILE = "<script>alert('x')</script>&\"|*$\\frac{[%_#"
PUBLISHED = Table("As published", "", ("a", "b"), (("c", "d"),), num_names=2)


class Tags(HTMLParser):
    """Checks that every element is closed, and collects what a page refers to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.sources: list[str] = []
        self.names: set[str] = set()
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attributes)
        if tag not in {"meta", "br", "img"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.ids += [text or "" for name, text in attributes if name == "id"]
        references = ("src", "href", "xlink:href")
        self.sources += [text or "" for name, text in attributes if name in references]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def small() -> Comparison:
    scores = {"costada": [0.8, 0.9], "evox": [0.6, 0.9]}
    runs = [*runs_of(scores, problem="one"), *runs_of(scores, problem="two")]
    for seed in (0, 1):
        runs += [outcome([(0.2, 0.5), (0.5, 0.7)], budget=0.5, seed=seed, problem="one")]
    return compare_outcomes(runs)


@pytest.fixture(scope="module")
def page():
    return to_html(small(), [PUBLISHED], [], [], Path())


def test_the_final_table_shows_mean_deviation_best_and_marks_the_best_method():
    table = final_quality(small().sections[0])
    assert "|".join(table.header) == (
        "method|objective|best objective|score|95% interval|best score|runs"
    )
    assert "|".join(table.rows[0]) == (
        "costada|8.5000 ± 0.71|9.0000|0.8500 ± 0.0707|0.8000 to 0.9000|0.9000|2"
    )
    assert table.best == {(0, 1), (0, 2), (1, 2), (0, 3), (0, 5), (1, 5)}


def test_the_smallest_is_the_best_of_a_minimised_objective():
    runs = [replace(each, is_minimized=True) for each in runs_of({"costada": [0.8], "evox": [0.6]})]
    (section,) = compare_outcomes(runs).sections
    table = final_quality(section)
    assert "lower is better" in table.title
    assert [(row, 1) in table.best for row in (0, 1)] == [False, True]


def test_a_run_within_its_budget_is_explained():
    (section,) = compare_outcomes([outcome([(0.75, 0.5)])]).sections
    (table,) = [each for each in section_tables(section) if "overshoot" in each.title]
    assert table.rows[0][6] == "-25.00 %"
    assert "ended within the budget" in table.note


def test_notes_count_runs_that_failures_ended():
    short = outcome([(0.2, 0.5)], method="evox", seed=5, has_given_up=True)
    comparison = compare_outcomes([*runs_of({"costada": [0.8], "evox": [0.7]}), short])
    note = "Ended by failures in a row, counted with their last iteration: 1 of evox."
    assert final_quality(comparison.sections[0]).note == note
    assert note in to_markdown(comparison, [], [])
    assert note in to_html(comparison, [], [], [], Path())
    assert final_quality(small().sections[0]).note == ""


MISSING = "costada has no comparable run of one, seed 1"
EQUAL = {"costada": [0.5, 0.7], "evox": [0.6, 0.6]}
UNEQUAL = f"Not over the same seeds, so nothing is bold: {MISSING}."


def unequal() -> Comparison:
    """Two problems with two seeds each; costada has no second seed of the first problem."""
    one = runs_of({"costada": [0.9], "evox": [0.8, 0.2]}, problem="one")
    return compare_outcomes([*one, *runs_of(EQUAL, problem="two")])


def test_averages_over_other_seeds_are_named_in_their_tables_and_nothing_is_bold():
    comparison = unequal()
    average = comparison.by_method[0].average
    assert average is not None
    one, two = comparison.sections
    tables = section_tables(average)
    final = next(each for each in tables if each.title == "Final quality")
    # ((0.9) / 1 + (0.5 + 0.7) / 2) / 2 and ((0.8 + 0.2) / 2 + (0.6 + 0.6) / 2) / 2
    assert [row[1] for row in final.rows] == ["0.7500", "0.5500"]
    for table in (*tables, *section_tables(one)):
        assert table.best == frozenset()
        if not table.title.startswith("Difference"):
            assert table.warning == UNEQUAL
    assert average.missing == one.missing == {("costada", "one"): [1]}
    assert two.missing == {}
    assert {table.warning for table in section_tables(two)} == {""}
    assert final_quality(two).best


def test_differences_are_over_the_seeds_that_both_methods_have():
    average = unequal().by_method[0].average
    assert average is not None
    table = next(each for each in section_tables(average) if each.title.startswith("Difference"))
    ((method, _, _, difference, _, pairs),) = table.rows
    # ((0.8 - 0.9) + ((0.6 - 0.5) + (0.6 - 0.7)) / 2) / 2
    assert (method, difference, pairs) == ("evox", "-0.0500", "3")
    assert table.warning == f"Each row is over the seeds that both methods have: {MISSING}."


def test_every_format_says_that_averages_are_not_over_the_same_seeds():
    comparison = unequal()
    text = to_markdown(comparison, [], [])
    assert f"**{UNEQUAL}**" in text
    of_one = text.split("## one, glm-5, $1")[1].split("\n## ")[0]
    assert "| **" not in of_one
    assert UNEQUAL in to_latex(comparison, [])
    page = to_html(comparison, [], [], [], Path())
    Tags(page)
    assert f'<p class="warning">{UNEQUAL}</p>' in page
    assert f'<p class="warning">Not over the same seeds: {MISSING}.</p>' in page
    rows = list(csv.DictReader(io.StringIO(to_csv(comparison))))
    missing = {(row["problem"], row["method"]): row["missing"] for row in rows}
    assert missing == {
        ("(mean over problems)", "costada"): "one:1",
        ("(mean over problems)", "evox"): "",
        ("one", "costada"): "one:1",
        **dict.fromkeys([("one", "evox"), ("two", "costada"), ("two", "evox")], ""),
    }
    for shown in (to_markdown(small(), [], []), to_html(small(), [], [], [], Path())):
        assert "same seeds:" not in shown


def test_missing_seeds_are_counted_in_ranges():
    methods = {"costada": (0, 1), "evox": (1, 2, 4, 5, 6)}
    runs = [
        outcome([(1.0, 0.5)], method=method, seed=seed)
        for method, seeds in methods.items()
        for seed in seeds
    ]
    (section,) = compare_outcomes(runs).sections
    assert missing_runs(section) == (
        "costada has no comparable run of toy, seeds 2, 4 to 6;"
        " evox has no comparable run of toy, seed 0"
    )


def test_an_objective_that_some_runs_lack_is_shown_with_its_count_and_not_bold():
    runs = runs_of({"costada": [0.8, 0.9], "evox": [0.6, 0.7]})
    bare = replace(runs[0], points=(Point(1, 1.1, 0.8, None),))
    (section,) = compare_outcomes([bare, *runs[1:]]).sections
    table = final_quality(section)
    assert [row[1] for row in table.rows] == ["9.0000 (1 of 2 runs)", "6.5000 ± 0.71"]
    assert {column for _, column in table.best} == {2, 3, 5}


def test_reruns_are_shown_with_their_difference():
    ((*row, difference, pairs),) = rerun_table(small().reruns).rows
    assert (row[0], row[3], row[6], difference) == ("one", "$0.5", "$1", "-0.1500")
    assert pairs == "2"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (2.635, "2.6350"),
        (0.036529889, "0.036530"),
        (651.265, "651.26"),
        (-12.5, "-12.500"),
        (3.2e-7, "3.2000e-07"),
        (123456.7, "123457"),
    ],
)
def test_objectives_have_five_digits(value, shown):
    assert objective(value) == shown


def test_the_csv_has_a_row_per_problem_method_and_metric():
    rows = list(csv.DictReader(io.StringIO(to_csv(small()))))
    keys = [(row["problem"], row["budget"], row["method"], row["metric"]) for row in rows]
    assert len(keys) == len(set(keys))
    by_key = dict(zip(keys, rows, strict=True))
    final = by_key["one", "1.0", "costada", "score_at_1"]
    assert float(final["mean"]) == pytest.approx(0.85)
    assert float(final["std"]) == pytest.approx(0.0707, abs=1e-4)
    assert (float(final["low"]), float(final["high"])) == pytest.approx((0.8, 0.9))
    assert final["n"] == "2"
    difference = by_key["one", "1.0", "evox", "score_at_1_minus:costada"]
    assert float(difference["mean"]) == pytest.approx(-0.1)
    assert by_key["one", "1.0", "evox", "share_to_reach:costada"]["mean"] == ""
    assert by_key["(mean over problems)", "1.0", "evox", "normalized_auc"]["n"] == "4"


def two_models(problems: tuple[str, ...] = ("one",)) -> Comparison:
    """Two methods with two models each, over two seeds of each problem."""
    finals = {"cheap": {"costada": [0.5, 0.7], "evox": [0.6, 0.6]}}
    finals["dear"] = {"costada": [0.8, 0.9], "evox": [0.9, 0.9]}
    runs = [
        run
        for model, scores in finals.items()
        for problem in problems
        for run in runs_of(scores, model=model, problem=problem)
    ]
    return compare_outcomes(runs)


def test_the_csv_has_rows_by_model_of_each_method():
    rows = list(csv.DictReader(io.StringIO(to_csv(two_models(("one", "two"))))))
    names = ("compared", "problem", "model", "method", "metric")
    keys = [tuple(row[name] for name in names) for row in rows]
    assert len(keys) == len(set(keys))
    by_key = dict(zip(keys, rows, strict=True))
    final = by_key["model", "one", "dear", "costada", "score_at_1"]
    assert float(final["mean"]) == pytest.approx((0.8 + 0.9) / 2)
    difference = by_key["model", "one", "dear", "evox", "score_at_1_minus:cheap"]
    assert float(difference["mean"]) == pytest.approx(0.9 - 0.6)
    average = by_key["model", "(mean over problems)", "cheap", "costada", "share_to_reach:dear"]
    assert average["mean"] == ""
    assert by_key["method", "one", "dear", "evox", "score_at_1_minus:costada"]["n"] == "2"


@pytest.mark.parametrize("problems", [("one",), ("one", "two")])
def test_models_are_drawn_like_methods(problems):
    comparison = two_models(problems)
    page = to_html(comparison, [], [], [], Path())
    tags = Tags(page)
    assert len(tags.ids) == len(set(tags.ids))
    # A group of one problem has two figures in its part, one of two has one in each of its three.
    assert page.count("<figure>") == 4 * (1 + len(problems))
    assert len(comparison.by_model) == len(comparison.by_method) == 2
    part = page.split('<section id="part-2">')[1].split("</section>")[0]
    assert "costada by model, $1" in part
    legend = re.findall(r'stroke="(#\w+)"[^>]*/></svg>([^<]+)</span>', part)
    assert legend[:2] == [(MODEL_COLOURS[0], "cheap"), (MODEL_COLOURS[1], "dear")]
    drawn = {shape.lower() for shape in re.findall(r"stroke: (#\w+)", part)}
    assert set(MODEL_COLOURS[:2]) <= drawn


def test_each_of_many_models_has_a_look_of_its_own():
    styles = model_styles(f"model-{number}" for number in range(32))
    assert len({(style.colour, style.dashes) for style in styles.values()}) == 32


def test_the_caption_names_the_runs_that_stand_for_the_others():
    scores = {"costada": [0.9, 0.5, 0.7, 0.6], "evox": [0.6, 0.8, 0.7]}
    comparison = compare_outcomes(runs_of(scores))
    (section,) = comparison.sections
    # the lower of 0.6 and 0.7, and the middle one of three
    assert {name: run.seed for name, run in median_runs(section).items()} == {
        "costada": 3,
        "evox": 2,
    }
    assert "costada seed 3, evox seed 2." in to_html(comparison, [], [], [], Path())


def test_markdown_tables_have_equally_many_cells_in_every_row():
    text = to_markdown(small(), [], ["runs/x: not finished"])
    assert "- runs/x: not finished" in text
    assert "| costada | **8.5000 ± 0.71** |" in text
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


def test_latex_tables_are_complete_and_escaped():
    text = to_latex(small(), [])
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") > 5
    assert text.count(r"\toprule") == text.count(r"\bottomrule")
    assert r"\textbf{8.5000 $\pm$ 0.71}" in text
    assert r"one, glm-5, \$1." in text
    for table in re.findall(r"\\begin\{tabular\}\{(l+r*)\}(.*?)\\end", text, flags=re.DOTALL):
        rows = [line for line in table[1].splitlines() if line.endswith(r"\\")]
        assert {row.count("&") for row in rows} == {len(table[0]) - 1}


def test_the_page_is_complete_reproducible_and_needs_no_other_file(page):
    tags = Tags(page)
    assert len(tags.ids) == len(set(tags.ids))
    assert all(source.startswith("#") for source in tags.sources)
    assert {source[1:] for source in tags.sources} <= set(tags.ids)
    assert "script" not in tags.names
    assert page.count("<figure>") == 5
    panels, keys = 2 + 1 + 3 * 3, 2 + 1 + 2 + 2 + 1
    assert page.count("<svg") == panels + keys
    assert "fill: #ffffff" not in page  # the ground is that of the page, also a dark one
    for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        ElementTree.fromstring(svg)
    assert to_html(small(), [PUBLISHED], [], [], Path()) == page


def test_the_objective_of_a_run_that_ended_early_lies_within_its_picture():
    late = outcome([(0.1, 0.5), (0.5, 0.9)])
    early = outcome([(0.05, 0.42), (0.1, 0.45)], method="evox")
    (section,) = compare_outcomes([late, early]).sections
    svg = trajectories(section, line_styles(["costada", "evox"]), "a")[0]
    (axis,) = re.findall(r'id="a-0-matplotlib\.axis_2">(.*?)id="a-0-patch', svg, flags=re.DOTALL)
    ticks = [float(text) for text in re.findall(r">([\d.]+)</text>", axis)]
    step = ticks[1] - ticks[0]
    assert min(ticks) - step < 4.5  # the objective at the end of the early run
    assert max(ticks) + step > 9.0


def test_names_from_files_are_escaped(tmp_path):
    picture = tmp_path / "theory.svg"
    picture.write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
    scores = {HOSTILE: [0.5, 0.6], "costada": [0.7, 0.7]}
    runs = runs_of(scores, problem=HOSTILE, model=HOSTILE, dollars_by_role={HOSTILE: 1.0})
    comparison = compare_outcomes(runs)
    page = to_html(comparison, [], [HOSTILE], [picture], tmp_path)
    assert "script" not in Tags(page).names
    assert "<script" not in page
    assert "data:image/svg+xml;base64," in page
    in_markdown = r"""\<script\>alert('x')\</script\>&"\|\*$\\frac{\[%_#"""
    in_latex = r"""$<$script$>$alert('x')$<$/script$>$\&"$|$*\$\textbackslash{}frac\{{[}\%\_\#"""
    assert in_markdown in to_markdown(comparison, [], [HOSTILE])
    assert in_latex in to_latex(comparison, [])
    assert {row["model"] for row in csv.DictReader(io.StringIO(to_csv(comparison)))} == {HOSTILE}


def test_runs_that_found_nothing_valid_can_be_drawn():
    nothing = {"seed_score": 0.0, "seed_objective": None, "points": (Point(1, 1.0, 0.0, None),)}
    bare = outcome([], **nothing)
    Tags(to_html(compare_outcomes([bare, replace(bare, seed=1)]), [], [], [], Path()))


def test_the_page_links_to_the_pages_of_runs_that_have_one(tmp_path):
    places = [tmp_path / "runs" / name for name in ("a", 'javascript:"<b>', "linked", "bare")]
    for place in places:
        place.mkdir(parents=True)
    for place in places[:2]:
        (place / "report.html").write_text("")
    (places[2] / "report.html").symlink_to(places[0] / "report.html")
    runs = [outcome([(1.1, 0.8)], seed=seed, place=str(each)) for seed, each in enumerate(places)]
    page = to_html(compare_outcomes(runs), [], [], [], tmp_path / "tables")
    links = [source for source in Tags(page).sources if not source.startswith("#")]
    assert links == ["../runs/a/report.html", "../runs/javascript%3A%22%3Cb%3E/report.html"]
    assert 'aria-label="costada, seed 1">seed 1</a>' in page


def test_every_method_has_a_colour_of_its_own():
    styles = line_styles([*STYLES, "mine", "yours"])
    assert len({style.colour for style in styles.values()}) == len(STYLES) + 2
    assert "evox" not in STYLES  # of a plug-in: its style does not depend on the other methods
    assert line_styles(["mine", "evox"])["evox"] == line_styles(["evox"])["evox"]


def test_a_published_table_is_in_every_text(page):
    assert "| c | d |" in to_markdown(small(), [PUBLISHED], [])
    assert r"c & d \\" in to_latex(small(), [PUBLISHED])
    assert 'href="#published"' in page


TARGET = 0.8
"""The first steps on `near` reach it, and its initial program does not."""

FILES = ["comparison.csv", "comparison.html", "comparison.md", "comparison.tex"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_command_compares_folders_and_curves_and_says_what_is_left_out(
    invoke, finished, tmp_path
):
    runs, out = tmp_path / "runs", tmp_path / "new" / "out"
    shutil.copytree(finished, runs / "near" / "costada" / "seed-0")
    (once,) = runs_of({"evox": [0.5]})
    append_outcomes(runs / "more.curves.jsonl", [once, once])
    (runs / "deep").mkdir()
    (runs / "deep" / "theory.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    result = invoke("compare", runs, "--out", out)
    assert result.exit_code == 0, result.output
    assert names(out) == FILES
    for word in ("near", "toy", "costada", "evox", "comparison.html"):
        assert word in result.stdout
    assert f"left out {runs}/more.curves.jsonl:2: the same run" in result.stdout
    page = (out / "comparison.html").read_text()
    assert "more.curves.jsonl:2" in page
    assert "data:image/svg+xml;base64," in page


def test_the_files_are_written_to_the_folder_of_the_runs_and_replaced(invoke, tmp_path):
    append_outcomes(tmp_path / "x.curves.jsonl", runs_of({"evox": [0.5], "uniform": [0.4]}))
    shown = "Beside the paper"
    for baseline, options in (("evox", ()), ("uniform", ("--published",))):
        result = invoke("compare", tmp_path, "--baseline", baseline, *options)
        assert result.exit_code == 0, result.output
        assert names(tmp_path) == [*FILES, "x.curves.jsonl"]
        assert f"Difference to {baseline}" in (tmp_path / "comparison.md").read_text()
        for file in ("comparison.md", "comparison.tex", "comparison.html"):
            assert (shown in (tmp_path / file).read_text()) is bool(options)


def test_runs_of_a_sweep_with_a_target_are_compared_by_the_dollars_to_it(invoke, near, tmp_path):
    out = tmp_path / "sweep"
    grid = ("--problems", near, "--methods", "costada,uniform", "--seeds", 1, "--out", out)
    swept = invoke("sweep", *grid, "--target", TARGET, "--json")
    assert swept.exit_code == 0, swept.output
    assert all(row["best_objective"] >= TARGET for row in json.loads(swept.stdout))
    assert all(row["spent"] < 1 for row in json.loads(swept.stdout))
    compared = invoke("compare", out)
    assert compared.exit_code == 0, compared.output
    assert "Dollars to reach the target" in (out / "comparison.md").read_text()


def test_a_run_whose_start_reaches_the_target_is_left_out_with_that_reason(invoke, near, tmp_path):
    swept = invoke("run", near, "--target", 0, "--out", tmp_path / "run")
    assert swept.exit_code == 0, swept.output
    result = invoke("compare", tmp_path)
    reason = "run: made no iteration: its initial program reaches the target"
    assert (result.exit_code, reason in result.stderr) == (2, True)


def test_nothing_to_compare_and_an_unknown_baseline_are_refused(invoke, tmp_path):
    file = tmp_path / "x.curves.jsonl"
    file.write_text("{}\n" * 5)
    result = invoke("compare", tmp_path)
    assert result.exit_code == 2
    assert "holds no finished run" in result.stderr
    assert "x.curves.jsonl:1: problem: Field required" in result.stderr
    assert "and 2 more" in result.stderr
    assert names(tmp_path) == ["x.curves.jsonl"]
    append_outcomes(file, runs_of({"costada": [0.5]}))
    result = invoke("compare", tmp_path, "--out", file)
    assert result.exit_code == 2
    assert f"--out: got {file}, which is a file; expected a folder" in result.stderr
    result = invoke("compare", tmp_path, "--baseline", "costade")
    assert result.exit_code == 2
    assert "Did you mean 'costada'?" in result.stderr
