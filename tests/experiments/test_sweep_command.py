import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from time import monotonic, sleep

import pytest
from billing_server import BillingServer, Reply

from costada.experiments.sweep.loop import STOPPING, StopSignals, SweepLoop
from costada.experiments.sweep.run_process import ENTRY, RunProcess, last_error, options_of, start
from costada.experiments.sweep.sweep import Status, SweepGrid, last_step, sweep_runs
from costada.experiments.sweep.sweep_progress import SweepProgress, exit_code
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder, load_config
from costada.runs.interruption import ExitCode
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-c", "from costada.cli.main import main; main()"]
FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
METHOD = "no-cost-calibration"
ITERATIONS = 24
SETTINGS = {
    "preset": "glm-5",
    "max_iterations": ITERATIONS,
    "sandbox": "auto",
    "timeout": 7.5,
    "lost_calls": "ignore",
    "max_failures": 7,
    "generator": "agent",
    "tool_evaluations": 1,
    "step_cap": 0.5,
}
GIVEN = (
    "--keep-history",
    *(part for name, value in SETTINGS.items() for part in (f"--{name.replace('_', '-')}", value)),
)


LOOK_SECONDS, PATIENCE_SECONDS = 0.05, 120


def options(near: Path, out: Path, *more: object) -> list[object]:
    usual = {"--problems": near, "--methods": METHOD, "--out": out}
    return [
        "sweep",
        *(part for pair in usual.items() if pair[0] not in more for part in pair),
        *more,
    ]


def run_folder(out: Path, seed: int) -> Path:
    return out / "near" / METHOD / f"seed-{seed}"


def steps(out: Path, seed: int) -> Path:
    return run_folder(out, seed) / "steps.jsonl"


def wait_for_a_step(file: Path) -> None:
    end = monotonic() + PATIENCE_SECONDS
    while last_step(file) is None:
        assert monotonic() < end
        sleep(LOOK_SECONDS)


def kill_once_begun(folder: Path) -> None:
    wait_for_a_step(folder / "steps.jsonl")
    os.kill(json.loads((folder / "run.lease").read_text())["pid"], signal.SIGKILL)


@pytest.fixture(scope="module")
def undisturbed(near, tmp_path_factory, invoke):
    """The steps of an ordinary run of seed 3 without interruption."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    result = invoke("run", near, "--method", METHOD, "--seed", 3, *GIVEN, "--out", out)
    assert result.exit_code == FINISHED, result.output
    return (out / "steps.jsonl").read_bytes()


@pytest.fixture(scope="module")
def swept(near, tmp_path_factory, invoke):
    """A sweep whose run of seed 5 is killed, and that is resumed: folder and both results."""
    out = tmp_path_factory.mktemp("sweeps") / "sweep"
    words = options(near, out, "--seeds", "3,5", "--jobs", 2, *GIVEN)
    with ThreadPoolExecutor() as threads:
        killing = threads.submit(kill_once_begun, run_folder(out, 5))
        first = invoke(*words)
    killing.result()
    return out, first, invoke(*words)


def test_a_killed_run_is_reported_stops_no_other_and_is_resumed(swept, undisturbed):
    out, first, again = swept
    assert first.exit_code == FAILED, first.output
    assert f"  near/{METHOD}/seed-5: killed by SIGKILL" in first.output
    assert steps(out, 3).read_bytes() == undisturbed
    assert again.exit_code == FINISHED, again.output
    assert "1 finished before, 1 begun before" in again.output
    assert len(steps(out, 5).read_text().splitlines()) == ITERATIONS
    assert not list(out.rglob("*.log"))


def test_a_sweep_makes_ordinary_runs_with_its_settings_and_prints_the_largest_bill(
    swept, near, invoke
):
    out, first, _ = swept
    assert first.output.startswith(
        "2 runs, at most 2 at once. Largest bill from here on: $2 = 2 x $1;"
    )
    assert f"[2/2] near/{METHOD}/" in first.output
    folders = [path.parent for path in out.rglob("settings.json")]
    assert sorted(folders) == [run_folder(out, seed) for seed in (3, 5)]
    for seed in (3, 5):
        folder, named = run_folder(out, seed), {"problem": str(near), "method": METHOD}
        assert invoke("trace", folder).exit_code == FINISHED
        config = load_config(folder / "settings.json")
        assert config == RunConfig(**named, seed=seed, keep_history=True, **SETTINGS)


def test_finished_runs_are_kept_and_cost_nothing_more(near, swept, invoke):
    out = swept[0]
    before = {path: path.stat().st_mtime_ns for path in out.rglob("report.html")}
    result = invoke(*options(near, out, *GIVEN, "--seeds", "3,5", "--json"))
    assert result.exit_code == FINISHED
    assert "2 runs, all finished before: nothing is left to spend." in result.stderr
    facts = [(each["seed"], each["status"]) for each in json.loads(result.stdout)]
    assert facts == [(3, "finished"), (5, "finished")]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("report.html")} == before


def test_a_sweep_over_runs_with_other_settings_is_refused(near, swept, invoke):
    words = options(near, swept[0], *GIVEN, "--max-iterations", 9, "--seeds", "3,5,6")
    result = invoke(*words)
    assert result.exit_code == REFUSED
    assert f"other settings: max_iterations was {ITERATIONS}, got 9" in result.output
    assert not steps(swept[0], 6).exists()


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_saves_the_current_run_and_starts_no_other(
    near, undisturbed, tmp_path, invoke, number
):
    words = options(near, tmp_path, "--seeds", "3,5", "--jobs", 1, *GIVEN)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*COMMAND, *map(str, words)], **pipes) as process:
        wait_for_a_step(steps(tmp_path, 3))
        second = invoke(*words)
        process.send_signal(number)
        said, errors = process.communicate()
    assert second.exit_code == REFUSED
    assert f"{tmp_path}: another sweep is running in it" in second.output
    assert process.returncode == INTERRUPTED, errors
    assert STOPPING in errors
    assert "Finished 0 of 2 runs" in said
    assert f"near/{METHOD}/seed-3: interrupted" in said
    assert not steps(tmp_path, 5).exists()
    assert invoke("resume", run_folder(tmp_path, 3)).exit_code == FINISHED
    assert steps(tmp_path, 3).read_bytes() == undisturbed


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--methods", "costada,unifrom"], "Did you mean 'uniform'?"),
        (["--problems", "circle_packin"], "did you mean 'circle_packing'?"),
        (["--problems", " , "], "--problems: got ' , ', expected one or more"),
        (["--seeds", "4,,7"], "--seeds: got '4,,7', expected a number of seeds above 0 or a list"),
        (["--model", "offline,"], "--model: got 'offline,', expected one or more, separated by"),
        (["--methods", "uniform,,costada"], "got 'uniform,,costada', expected one or more"),
        (["--seeds", "none"], "--seeds: got 'none', expected a number of seeds above 0"),
        (["--seeds", "0"], "--seeds: got '0', expected a number of seeds above 0 or a list"),
        (["--seeds", "3,7,03"], "--seeds: got 3 2 times, expected it once"),
        (["--budget", "1,1"], "--budget: got 1 2 times, expected it once"),
        (["--budget", "1,1.0"], "budget-1.0/seed-0: asked for twice, expected each run once"),
        (["--model", "offline,offline"], "--model: got offline 2 times, expected it once"),
        (["--problems", "circle_packing,circle_packing"], "--problems: got circle_packing 2 times"),
        (["--seeds", "1,-1"], "--seed: got -1, expected greater than or equal to 0"),
        (["--budget", "1,dear"], "--budget: got 'dear', expected a number"),
        (["--model", "offlin"], "did you mean 'offline'?"),
        (["--model", "openai:mine", "--base-url", "http://localhost:1/v1"], "no known price"),
        (["--preset", "glm5"], "Did you mean 'glm-5'?"),
        (["--jobs", "0"], "--jobs"),
        (["--gateway"], "gateway: models of this run call no OpenAI-compatible server"),
        (["--step-cap", "1"], "--step-cap: got 1 with generator 'model'"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(near, tmp_path, invoke, more, text):
    result = invoke(*options(near, tmp_path / "sweep", *more))
    assert result.exit_code == REFUSED
    assert text in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "sweep").exists()


ALL = ("--problems", "all", "--methods", "all", "--preset", "gpt-5.4", "--model", "openai:gpt-5.4")
TWO = ("--problems", "circle_packing", "--methods", "uniform", "--seeds", 2)
BUDGETS = (*TWO, "--budget", "0.005,0.01", "--jobs", 2)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (ALL, ["288 runs", "Largest bill from here on: $1440 = 288 x $5;"]),
        (BUDGETS, ["4 runs, at most 2 at once", ": $0.03 = 2 x $0.005 + 2 x $0.01;"]),
        ((*TWO, "--budget-policy", "hard"), ["$2 = 2 x $1; no run exceeds its budget.\n"]),
        (TWO, ["; a run's last iteration may exceed its budget.\n"]),
    ],
)
def test_a_dry_run_computes_the_largest_bill_and_writes_nothing(tmp_path, invoke, words, shown):
    result = invoke("sweep", *words, "--out", tmp_path / "paper", "--dry-run")
    assert result.exit_code == FINISHED, result.output
    for text in shown:
        assert text in result.output
    assert not (tmp_path / "paper").exists()


def test_a_dry_run_names_a_model_without_a_price(tmp_path, invoke):
    words = (*TWO, "--model", "openai:unheard-of", "--out", tmp_path / "paper", "--dry-run")
    result = invoke("sweep", *words)
    assert result.exit_code == REFUSED
    assert "unheard-of" in result.output
    assert "price" in result.output


def test_a_dry_run_as_json_is_one_object(tmp_path, invoke):
    result = invoke("sweep", *BUDGETS, "--out", tmp_path / "paper", "--dry-run", "--json")
    facts = json.loads(result.stdout)
    assert facts.pop("largest_bill") == pytest.approx(0.03)
    counts = {"runs": 4, "jobs": 2, "finished": 0, "begun": 0, "spent": 0.0}
    budgets = {"unfinished_by_budget": {"0.005": 2, "0.01": 2}, "budget_policy": "crossing"}
    assert facts == counts | budgets


TRACEBACK = """costada: sandbox: weaker than asked for
Traceback (most recent call last):
  File "runner.py", line 1, in <module>
OSError: no space left
During task with name 'evaluate'
"""


def wait_for(process: RunProcess) -> tuple[Status, str]:
    while (ended := process.end()) is None:
        Event().wait(LOOK_SECONDS)
    return ended


def test_the_log_of_a_failed_process_is_kept(tmp_path):
    process = RunProcess(["resume", str(tmp_path / "run")], tmp_path / "run.log")
    status, error = wait_for(process)
    assert status is Status.FAILED
    assert error == f"{tmp_path / 'run'}: holds no run (there is no settings.json in it)"
    assert error in (tmp_path / "run.log").read_text()


@pytest.mark.parametrize("generator", ["model", "agent", "sh -c 'cp a b; exit 1' {prompt}"])
def test_the_run_command_accepts_the_options_of_a_sweep(generator, near, tmp_path, invoke):
    grid = SweepGrid((str(near),), ("uniform",), (), (7,), ("0.5",))
    (run,) = sweep_runs(grid, {"generator": generator}, tmp_path)
    result = invoke("run", *options_of(run), run.config.problem, "--dry-run")
    assert result.exit_code == ExitCode.FINISHED, result.output


def test_a_process_stopped_before_it_begins_is_no_failure(near, tmp_path):
    process = RunProcess(["run", str(near), f"--out={tmp_path / 'run'}"], tmp_path / "run.log")
    process.drain()
    assert wait_for(process) == (Status.INTERRUPTED, "")
    assert not (tmp_path / "run.log").exists()


def test_a_swept_run_that_gets_two_sigterms_keeps_the_answer_in_flight(near, tmp_path, monkeypatch):
    """Slurm sends one to every process of a job, and the job's own process passes it on."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    answered, out = Event(), tmp_path / "run"
    program = "# EVOLVE-BLOCK-START\ndef value():\n    return 0.5\n# EVOLVE-BLOCK-END"

    def late(body):
        assert answered.wait(60)
        return Reply(f"```python\n{program}\n```", input_tokens=700, output_tokens=300)

    with BillingServer() as server:
        server.default = late
        provider = ["--model=openai:m", f"--base-url={server.url}", "--price=1,2", "--no-gateway"]
        words = ["run", str(near), f"--out={out}", *provider]
        process = RunProcess(words, tmp_path / "run.log")
        while not server.requests:
            assert process.end() is None
            Event().wait(LOOK_SECONDS)
        for _ in range(2):
            process.drain()
            Event().wait(0.3)  # signals that come at once are one
        answered.set()
        assert wait_for(process) == (Status.INTERRUPTED, "")
    with RunStore(out / "run.sqlite", is_read_only=True) as store:
        (call,) = store.call_log.calls(store.run_ids()[-1])
    assert (call.status, call.usage.output_tokens) == (CallStatus.DONE, 300)


def test_a_second_ctrl_c_ends_runs_at_once(near, tmp_path):
    runs = sweep_runs(SweepGrid((str(near),), ("uniform",), (), (0, 1), ()), {}, tmp_path)
    heard = []

    def begin(run):
        process = start(run)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        return process

    with StopSignals(heard.append) as signals:
        ended = SweepLoop(runs, 2, begin, SweepProgress(), signals).execute()
    assert heard == [STOPPING]
    assert [run.status for run in ended] == [Status.INTERRUPTED, Status.WAITING]
    assert exit_code(ended) is ExitCode.INTERRUPTED
    assert list((tmp_path / "near" / "uniform").iterdir()) == []


def test_a_run_drains_when_its_sweep_dies(near, tmp_path):
    folder = RunFolder(tmp_path / "run")
    command = [sys.executable, "-m", ENTRY, "run", near, "--out", folder.path, "--quiet"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"{}\n")
        process.stdin.flush()
        while last_step(folder.steps) is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_SECONDS)
            assert process.returncode is None
        process.stdin.close()
        assert process.wait(timeout=PATIENCE_SECONDS) == 130
    assert folder.report.is_file()


def test_a_run_whose_sweep_dies_before_it_sends_the_environment_does_not_begin(near, tmp_path):
    command = [sys.executable, "-m", ENTRY, "run", near, "--out", tmp_path / "run"]
    ended = subprocess.run(command, input=b'{"OPENAI', capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("log", "code", "error"),
    [
        ("costada: warned\ncostada: no money\nResume with: x\n", 1, "no money"),
        (TRACEBACK.split("\n", 1)[1], 1, "OSError: no space left"),
        ("strange\n\n", 1, "strange"),
        ("", 3, "ended with exit code 3"),
        ("costada: warned\n", -signal.SIGKILL, "killed by SIGKILL"),
    ],
)
def test_the_line_that_says_why(log, code, error):
    assert last_error(log, code) == error
