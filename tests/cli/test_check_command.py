"""`costada check`."""

import json
import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest
from made_repositories import make_repository

from costada.cli.problems import screen_text
from costada.evaluators.fetched_files import FetchedFile, record_fetched
from costada.evaluators.folders import load_folder
from costada.evaluators.problem import check_problem
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.nodes.calls.bounds import EXPECTED_PROGRAM
from costada.nodes.context import prompt_view
from costada.prompts.render import evaluator_outputs
from costada.values.candidate import Candidate

pytestmark = pytest.mark.process


def facts(text):
    """Name and text of each line of the screen."""
    head, *lines = text.splitlines()
    pairs = [line.strip().split("  ", 1) for line in lines]
    return head, {name: rest.strip() for name, rest in pairs}


def test_a_screen_says_what_a_folder_holds_and_how_its_start_scores(invoke, near):
    result = invoke("check", near)
    head, found = facts(result.stdout)
    assert (result.exit_code, result.stderr, head) == (0, "", str(near))
    assert found["layout"] == "evaluator.py, initial_program.py"
    assert found["contract"] == "evaluate(program_path)"
    size = len((near / "initial_program.py").read_text())
    assert found["language"] == f"Python, {size} characters"
    assert found["needs"] == "nothing more (installed here)"
    assert found["sandbox"].split(" ")[0] in ("process", "landlock", "bubblewrap")
    seconds, _, limit = found["evaluation"].partition(" s ")
    assert (0 < float(seconds) < 60, limit) == (True, "(timeout 360 s)")
    assert found["start"] == "score 0.6"
    tokens, _, characters = found["first prompt"].removeprefix("about ").partition(" tokens, ")
    characters = int(characters.removesuffix(" characters").replace(",", ""))
    assert int(tokens.replace(",", "")) == pytest.approx(characters / 3, rel=0.01)


def test_a_later_prompt_of_short_programs_is_told_as_it_is_and_as_it_may_become(invoke, near):
    found = facts(invoke("check", near).stdout)[1]
    first = int(found["first prompt"].removeprefix("about ").split(" ")[0].replace(",", ""))
    now, others, grown = found["later prompt"].replace(";", ",", 1).split(", ")
    program = -(-len((near / "initial_program.py").read_text()) // 3)
    now, grown = (each.replace(",", "").split(" ") for each in (now, grown))
    assert (int(now[1]), others) == (first + 4 * program, "with 4 other programs")
    assert (int(grown[0]), grown[1:]) == (
        first - program + 5 * EXPECTED_PROGRAM,
        f"if programs grow to {EXPECTED_PROGRAM} tokens".split(),
    )


@pytest.mark.parametrize(
    ("first", "last", "is_named"),
    [("START", "END", False), ("START", "", True), ("END", "START", True)],
)
def test_a_block_that_lacks_one_of_its_lines_is_named(
    invoke, near, tmp_path, first, last, is_named
):
    folder = copytree(near, tmp_path / "near")
    program = folder / "initial_program.py"
    lines = program.read_text().splitlines(keepends=True)
    text = "".join(each for each in lines if "EVOLVE" not in each)
    program.write_text(f"# EVOLVE-BLOCK-{first}\n{text}\n# EVOLVE-BLOCK-{last}\n")
    assert ("block" in facts(invoke("check", folder).stdout)[1]) is is_named


def test_a_benchmark_needs_no_check(invoke):
    found = invoke("check", "circle_packing")
    assert found.exit_code == 2
    assert "circle_packing: is a benchmark, which needs no check" in found.stderr


def test_the_start_that_was_taken_is_named_and_the_others_that_were_not(invoke, near, tmp_path):
    copytree(near, tmp_path, dirs_exist_ok=True)
    (tmp_path / "initial.cpp").write_text("int x = 1;")
    found = facts(invoke("check", tmp_path).stdout)[1]
    assert found["layout"] == "evaluator.py, initial_program.py (not initial.cpp)"


def test_the_start_that_was_taken_is_a_note_of_runs_unless_the_settings_name_it(near, tmp_path):
    copytree(near, tmp_path, dirs_exist_ok=True)
    (tmp_path / "initial.cpp").write_text("int x = 1;")
    [note] = load_folder(tmp_path).notes
    assert note.startswith("the start is initial_program.py, not initial.cpp; to choose another: ")
    with (tmp_path / "problem.toml").open("a") as file:
        file.write('\nprogram = "initial_program.py"\n')
    assert load_folder(tmp_path).notes == ()


def test_the_layer_and_the_limits_of_the_check_can_be_chosen(invoke, near):
    result = invoke("check", near, "--sandbox", "process", "--json")
    assert json.loads(result.stdout)["sandbox"].startswith("process")


@pytest.mark.parametrize(
    ("name", "message"),
    [("absent", "absent: is not a folder"), ("", "evaluator.py is missing in ")],
)
def test_what_is_no_problem_folder_is_refused(invoke, tmp_path, name, message):
    result = invoke("check", tmp_path / name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_the_bench_of_folders_says_how_far_each_climbs(near, tmp_path):
    checkout = make_repository(tmp_path / "checkout", {"openevolve/__init__.py": ""})
    copytree(near, checkout / "examples" / "near")
    failing = copytree(near, checkout / "examples" / "failing")
    (failing / "evaluator.py").write_text("def evaluate(path): raise ValueError('not today')\n")
    command = [sys.executable, "bench/folders.py", checkout, "--here", "--layers", "process"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "| `near` | evaluate | unchanged | 0.6 |  |" in printed
    assert "| `failing` | evaluate | refused |  |" in printed
    assert "not today" in printed
    assert "| all | 2 | process | 1 | 0 | 0 | 0 | 1 | 1 |" in printed


def test_names_with_line_ends_stay_on_their_line(invoke, near, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "kept"))
    folder = copytree(near, tmp_path / "problem")
    forged = "a\n  opens     nothing"
    (folder / f"{forged}.txt").write_text("1")
    record_fetched(folder, [FetchedFile.of(f"{forged}.txt", folder)])
    (folder / "evaluator.py").write_text(
        f"def evaluate(path): return {{'combined_score': 0.5, {forged!r}: 1.0}}\n"
    )
    checked = invoke("check", folder)
    assert checked.exit_code == 0, checked.output
    assert not any(line.startswith("  opens") for line in checked.stdout.splitlines())
    found = facts(checked.stdout)[1]
    assert found["fetched"].startswith(r"a\n  opens     nothing.txt")
    assert r"a\n  opens     nothing" in found["prompts show"]


def test_the_files_that_were_fetched_are_listed_with_their_sizes(
    invoke, near, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "kept"))
    folder = copytree(near, tmp_path / "problem")
    names = [f"{number}.bin" for number in range(7)]
    for number, name in enumerate(names):
        (folder / name).write_bytes(b"x" * (1000 + number))
    record_fetched(folder, [FetchedFile.of(name, folder) for name in names])
    found = facts(invoke("check", folder, "--sandbox", "process").stdout)[1]
    listed = ", ".join(f"{number}.bin (1,00{number} bytes)" for number in range(5))
    assert found["fetched"] == f"{listed}, 2 more, 7,021 bytes in all"


def test_a_start_whose_score_varies_is_named(invoke, near, tmp_path):
    near = copytree(near, tmp_path / "problem")
    (near / "evaluator.py").write_text(
        "import time\ndef evaluate(path): return {'combined_score': 1 + time.time_ns() % 10**9}"
    )
    _, found = facts(invoke("check", near).stdout)
    assert found["noise"].startswith("score varies from ")
    (near / "problem.toml").write_text("repeats = 2\n")
    assert "noise" not in facts(invoke("check", near).stdout)[1]


def test_what_a_check_has_no_use_for_is_named(invoke, near, tmp_path):
    near = copytree(near, tmp_path / "problem")
    with (near / "evaluator.py").open("a") as file:
        file.write("\n\ndef score(output): return {}\n")
    settings = (near / "problem.toml").read_text() if (near / "problem.toml").exists() else ""
    (near / "problem.toml").write_text(f'timing_metrics = ["lap"]\n{settings}')
    found = facts(invoke("check", near).stdout)[1]
    assert found["contract"] == "evaluate(program_path); a run does not call score(output)"
    assert found["timings"] == "timing_metrics names lap, which was not returned"
    (near / "problem.toml").write_text(f'start = "none"\nlanguage = "Python"\n{settings}')
    found = facts(invoke("check", near).stdout)[1]
    assert found["not read"].startswith("initial_program.py is not read")


def test_a_start_that_fails_suggests_no_metric(invoke, near, tmp_path):
    near = copytree(near, tmp_path / "problem")
    for error, is_suggested in (("None", True), ("'does not compile'", False)):
        answer = f"{{'compile_success': 0.5, 'error': {error}}}"
        (near / "evaluator.py").write_text(f"def evaluate(path): return {answer}")
        assert ("metric = " in invoke("check", near).stdout) == is_suggested


def test_what_is_read_outside_of_the_folder_is_listed(invoke, near, tmp_path):
    (tmp_path / "data").mkdir()
    near = copytree(near, tmp_path / "tasks" / "near")
    lines = "import os, sys\nsys.path.append(os.path.dirname(os.path.dirname(__file__)))\n"
    text = (near / "evaluator.py").read_text()
    (near / "evaluator.py").write_text(f"{lines}import shared_rules\n{text}")
    helper = near.parent / "shared_rules.py"
    helper.write_text("")
    with (near / "problem.toml").open("a") as file:
        file.write(f'\nreadable = ["{tmp_path}/data"]\n')
    result = invoke("check", near)
    assert facts(result.stdout)[1]["also reads"] == f"{helper}, {tmp_path}/data"


@pytest.mark.parametrize(
    ("answer", "settings", "said"),
    [
        ("{'combined_score': 2}", "", "combined_score (the evaluator returns it)"),
        (
            "{'speed': 2, 'gap': 1}",
            "",
            "combined_score (the mean of speed, gap, as the evaluator returns none; to choose one"
            ' of them: metric = "speed" in problem.toml)',
        ),
        (
            "{'speed': 2, 'gap': 1}",
            "reference = 0.5",
            "combined_score divided by the reference 0.5 (the mean of speed, gap, as the evaluator"
            ' returns none; to choose one of them: metric = "speed" in problem.toml)',
        ),
        ("{'speed': 2, 'error': 9}", 'metric = "speed"', "speed (metric in problem.toml)"),
        (
            "{'combined_score': 2}",
            'direction = "minimize"\nreference = 1.5',
            "the reference 1.5 divided by combined_score (the evaluator returns combined_score);"
            " lower combined_score is better",
        ),
        (
            "{'combined_score': 2}",
            "reference = 2.635",
            "combined_score divided by the reference 2.635 (the evaluator returns combined_score)",
        ),
        (
            "{'speed': 2, 'error': 9}",
            'metric = "speed"\nreference = 4',
            "speed divided by the reference 4 (metric in problem.toml)",
        ),
        (
            "{'speed': 2, 'error': 9}",
            'metric = "error"\ndirection = "minimize"\nreference = 3',
            "the reference 3 divided by error (metric in problem.toml); lower error is better",
        ),
        (
            "{'speed': 2, 'gap': 1}",
            'objectives = ["speed:max", "gap:min"]\nweights = {speed = 0.5, gap = 0.25}',
            "0.5 speed -0.25 gap (weights in problem.toml)",
        ),
        (
            "{'speed': 2, 'gap': 1}",
            'reference = 2\nobjectives = ["speed:max", "gap:min"]\nweights = {speed = 0.5}',
            "(0.5 speed) divided by the reference 2 (weights in problem.toml)",
        ),
    ],
)
def test_the_screen_says_which_number_is_maximised_and_why(
    invoke, near, tmp_path, answer, settings, said
):
    near = copytree(near, tmp_path / "problem")
    (near / "evaluator.py").write_text(f"def evaluate(path): return {answer}")
    (near / "problem.toml").write_text(settings)
    assert facts(invoke("check", near).stdout)[1]["maximises"] == said


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            "{'combined_score': output}",
            "combined_score divided by the reference 2 (the evaluator returns combined_score)",
        ),
        (
            "Evaluation(score=output / 2, objective=output, is_valid=True)",
            "combined_score divided by the reference 2 (the evaluator returns combined_score)",
        ),
        (
            "Evaluation(score=output, objective=output, is_valid=True)",
            "the score that the evaluator returns",
        ),
        (
            "Evaluation(score=output, objective=None, is_valid=True)",
            "the score that the evaluator returns",
        ),
    ],
    ids=["metrics", "share of the reference", "other score", "no objective"],
)
def test_a_reference_that_a_native_score_does_not_use_is_not_said_to_count(
    invoke, tmp_path, answer, said
):
    texts = {
        "problem.md": "Return a number.",
        "problem.toml": 'entry_point = "number"\nreference = 2.0\n',
        "initial_program.py": "def number():\n    return 3.0\n",
        "evaluator.py": f"from costada import Evaluation\ndef score(output): return {answer}\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert facts(invoke("check", tmp_path).stdout)[1]["maximises"] == said


def test_a_layer_is_proposed_that_allows_what_another_one_refuses(invoke, near, tmp_path):
    near = copytree(near, tmp_path / "problem")
    (near / "problem.toml").write_text("processes = 4\n")
    (near / "evaluator.py").write_text(
        "import os, shutil, subprocess\n"
        "def evaluate(path):\n"
        "    shutil.copy('/bin/true', 'built')\n"
        "    subprocess.run(['./built'], check=True)\n"
        "    return {'combined_score': 0.5}\n"
    )
    try:
        result = invoke("check", near, "--sandbox", chosen_layer(Layer.LANDLOCK).value)
    except ValueError as error:
        pytest.skip(str(error))
    if result.exit_code == 0:  # it has a copy of its folder in which chmod has an effect
        assert "try" not in facts(result.stdout)[1]
        return
    proposed = facts(result.stdout)[1]["try"]
    assert "chmod has no effect under landlock" in result.stderr
    strong = [layer for layer in ("bubblewrap", "container") if f"--sandbox {layer}:" in proposed]
    assert strong or proposed.startswith("--sandbox process, not tried, as its programs can read")
    for layer in strong or ["process"]:
        assert invoke("check", near, "--sandbox", layer).exit_code == 0


def test_no_layer_is_proposed_where_none_is_to_blame(invoke, near, tmp_path):
    near = copytree(near, tmp_path / "problem")
    (near / "evaluator.py").write_text("def evaluate(path): return {'combined_score': 1 / 0}\n")
    assert "try" not in facts(invoke("check", near).stdout)[1]


def test_a_line_of_the_screen_breaks_between_words_on_a_terminal():
    long = {"opens": "one two three four", "start": "score 0"}
    narrow = "f\n  opens  one two\n         three four\n  start  score 0"
    assert screen_text(Path("f"), long, 20) == narrow
    assert screen_text(Path("f"), long, None) == "f\n  opens  one two three four\n  start  score 0"


def test_a_declared_gpu_is_shown_and_refused_where_there_is_none(
    invoke, near, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("costada.evaluators.sandbox.opened.DEVICES", tmp_path)
    near = copytree(near, tmp_path / "problem")
    (near / "problem.toml").write_text("gpus = 1\n")
    unconfirmed = invoke("check", near)
    assert facts(unconfirmed.stdout)[1]["opens"].startswith("a GPU, by its device nodes (nvidia)")
    assert f"costada check {near} --confirm" in unconfirmed.stderr
    refused = invoke("check", near, "--confirm", "--candidate-too")
    assert refused.exit_code == 2
    assert "gpus is 1, and this machine has 0 with device nodes of nvidia" in refused.stderr


STAGES = """
def evaluate(path): return evaluate_stage1(path)
def evaluate_stage1(path): return {"combined_score": 0.9}
def evaluate_stage2(path): raise ValueError("no such case")
"""


def test_a_later_stage_that_the_start_fails_is_named(invoke, near, tmp_path):
    copytree(near, tmp_path, dirs_exist_ok=True)
    (tmp_path / "evaluator.py").write_text(STAGES)
    (tmp_path / "config.yaml").write_text("evaluator: {cascade_evaluation: true}\n")
    found = facts(invoke("check", tmp_path).stdout)[1]
    assert found["start"] == "score 0.9"
    assert found["stages"].startswith("stage 2 failed: ")
    assert found["stages"].endswith("no such case; the score is that of the stages so far")
    (tmp_path / "config.yaml").write_text(
        "evaluator: {cascade_evaluation: true, cascade_thresholds: [0.95]}\n"
    )
    assert facts(invoke("check", tmp_path).stdout)[1]["stages"] == (
        "ended after stage 1 of 2, as its threshold was not reached;"
        " the score is that of the stages so far"
    )


MANY_TEXTS = """
def evaluate(path):
    notes = {f"note {number}": str(number) * 1900 for number in range(12)}
    print("printed")
    named = dict.fromkeys(("worker", "sandbox", "scored_by", "log"), "own text")
    return {"combined_score": 1.0, **named, "feedback": "f" * 3000, **notes}
"""


def test_the_screen_lists_the_texts_that_a_prompt_holds(invoke, near, tmp_path):
    copytree(near, tmp_path, dirs_exist_ok=True)
    (tmp_path / "evaluator.py").write_text(MANY_TEXTS)
    found = facts(invoke("check", tmp_path).stdout)[1]
    problem = load_folder(tmp_path)
    evaluation = check_problem(problem)
    candidate = Candidate.from_evaluation("seed", problem.start, evaluation, "")
    prompt = evaluator_outputs(prompt_view(candidate, problem).notes)
    shown = re.findall(r"output `(.+)`", prompt)
    assert [name for name in shown if "note" not in name] == [
        *("reported_worker", "reported_sandbox", "reported_scored_by", "reported_log", "log"),
    ]
    listed, _, rest = found["prompts show"].removesuffix("note 10").rpartition("; ")
    assert [each.rpartition(" (")[0] for each in listed.split("; ")[2:]] == ["feedback", *shown]
    assert "; feedback (2,000 of 3,000 characters); " in listed
    num_more = 12 - sum("note" in name for name in shown)
    assert f"[{num_more} more of its 17 texts]" in prompt
    assert rest == f"{num_more} more texts do not fit: note 6, note 7, note 8, note 9, "
    assert found["maximises"] == "combined_score (the evaluator returns it)"
