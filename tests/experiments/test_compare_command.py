import shutil
from pathlib import Path

import pytest
from compared_runs import runs_of

from costada.experiments.comparison.outcomes import append_outcomes

FILES = ["comparison.csv", "comparison.html", "comparison.md", "comparison.tex"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def compared(invoke, finished, tmp_path_factory):
    """What the command says of a run folder, a file that tells a run twice, and a picture."""
    parent = tmp_path_factory.mktemp("compared")
    runs = parent / "runs"
    shutil.copytree(finished, runs / "near" / "costada" / "seed-0")
    (once,) = runs_of({"evox": [0.5]})
    append_outcomes(runs / "more.curves.jsonl", [once, once])
    (runs / "deep").mkdir()
    (runs / "deep" / "theory.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    result = invoke("compare", runs, "--out", parent / "new" / "out")
    return result, runs, parent / "new" / "out"


def test_runs_are_compared_into_four_files(compared):
    result, _, out = compared
    assert result.exit_code == 0, result.output
    assert names(out) == FILES
    for word in ("near", "toy", "costada", "evox", "comparison.html"):
        assert word in result.stdout


def test_what_is_left_out_is_printed_and_written(compared):
    result, runs, out = compared
    assert f"left out {runs}/more.curves.jsonl:2: the same run" in result.stdout
    assert "more.curves.jsonl:2" in (out / "comparison.html").read_text()


def test_a_theory_picture_below_the_folder_is_in_the_page(compared):
    assert "data:image/svg+xml;base64," in (compared[2] / "comparison.html").read_text()


def test_the_files_go_beside_the_runs_and_are_replaced(invoke, tmp_path):
    append_outcomes(tmp_path / "x.curves.jsonl", runs_of({"evox": [0.5], "uniform": [0.4]}))
    shown = "As published, other model and machine"
    for baseline, options in (("evox", ()), ("uniform", ("--published",))):
        result = invoke("compare", tmp_path, "--baseline", baseline, *options)
        assert result.exit_code == 0, result.output
        assert names(tmp_path) == [*FILES, "x.curves.jsonl"]
        assert f"Difference to {baseline}" in (tmp_path / "comparison.md").read_text()
        for file in ("comparison.md", "comparison.tex", "comparison.html"):
            assert (shown in (tmp_path / file).read_text()) is bool(options)


def test_nothing_to_compare_is_refused_with_the_reasons(invoke, tmp_path):
    (tmp_path / "x.curves.jsonl").write_text("{}\n" * 5)
    result = invoke("compare", tmp_path)
    assert result.exit_code == 2
    assert "holds no finished run" in result.stderr
    assert "x.curves.jsonl:1: problem: Field required" in result.stderr
    assert "and 2 more" in result.stderr
    assert names(tmp_path) == ["x.curves.jsonl"]


def test_an_unknown_baseline_is_refused(invoke, tmp_path):
    append_outcomes(tmp_path / "x.curves.jsonl", runs_of({"costada": [0.5]}))
    result = invoke("compare", tmp_path, "--baseline", "costade")
    assert result.exit_code == 2
    assert "Did you mean 'costada'?" in result.stderr
