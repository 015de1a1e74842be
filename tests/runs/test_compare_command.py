import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compared_runs import outcome, runs_of

from costada.runs.comparison.outcomes import append_outcomes

Invoke = Callable[..., Any]
FILES = ["comparison.csv", "comparison.html", "comparison.md", "comparison.tex"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_runs_are_compared_into_four_files(invoke: Invoke, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "runs" / "near" / "costada" / "seed-0")
    append_outcomes(tmp_path / "runs" / "more.curves.jsonl", runs_of({"evox": [0.5, 0.6]}))
    result = invoke("compare", tmp_path / "runs", "--out", tmp_path / "new" / "out")
    assert result.exit_code == 0, result.output
    assert names(tmp_path / "new" / "out") == FILES
    for word in ("near", "toy", "costada", "evox", "comparison.html"):
        assert word in result.stdout


def test_the_files_go_beside_the_runs_and_are_replaced(invoke: Invoke, tmp_path: Path) -> None:
    append_outcomes(tmp_path / "x.curves.jsonl", runs_of({"evox": [0.5], "uniform": [0.4]}))
    for baseline in ("evox", "uniform"):
        result = invoke("compare", tmp_path, "--baseline", baseline)
        assert result.exit_code == 0, result.output
        assert names(tmp_path) == [*FILES, "x.curves.jsonl"]
        assert f"Difference to {baseline}" in (tmp_path / "comparison.md").read_text()


def test_published_numbers_are_shown_only_when_asked_for(invoke: Invoke, tmp_path: Path) -> None:
    append_outcomes(tmp_path / "x.curves.jsonl", runs_of({"costada": [0.5]}))
    for options, is_shown in (((), False), (("--published",), True)):
        invoke("compare", tmp_path, *options)
        for file in ("comparison.md", "comparison.tex", "comparison.html"):
            text = (tmp_path / file).read_text()
            assert ("As published, other model and machine" in text) is is_shown


def test_what_is_left_out_is_printed_and_written(invoke: Invoke, tmp_path: Path) -> None:
    run = outcome([(1.0, 0.5)])
    append_outcomes(tmp_path / "x.curves.jsonl", [run, run])
    result = invoke("compare", tmp_path)
    assert f"left out {tmp_path}/x.curves.jsonl:2: the same run" in result.stdout
    assert "x.curves.jsonl:2" in (tmp_path / "comparison.html").read_text()


def test_a_theory_picture_below_the_folder_is_in_the_page(invoke: Invoke, tmp_path: Path) -> None:
    append_outcomes(tmp_path / "x.curves.jsonl", runs_of({"costada": [0.5]}))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "theory.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    invoke("compare", tmp_path)
    assert "data:image/svg+xml;base64," in (tmp_path / "comparison.html").read_text()


def test_nothing_to_compare_is_refused_with_the_reasons(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "x.curves.jsonl").write_text("{}\n" * 5)
    result = invoke("compare", tmp_path)
    assert result.exit_code == 2
    assert "holds no finished run" in result.stderr
    assert "x.curves.jsonl:1: problem: Field required" in result.stderr
    assert "and 2 more" in result.stderr
    assert names(tmp_path) == ["x.curves.jsonl"]


def test_an_unknown_baseline_is_refused(invoke: Invoke, tmp_path: Path) -> None:
    append_outcomes(tmp_path / "x.curves.jsonl", runs_of({"costada": [0.5]}))
    result = invoke("compare", tmp_path, "--baseline", "costade")
    assert result.exit_code == 2
    assert "Did you mean 'costada'?" in result.stderr
