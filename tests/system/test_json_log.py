"""Logs in JSON: everything that commands write, read line by line."""

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from threading import Event

import pytest
from billing_server import BillingServer, Refusal, Reply
from ports import free_port
from served_runs import TOKEN, call, ended, session_at, status_of, wait_until
from warm import PATIENCE_SECONDS, keyless_environment

from costada.runs.interruption import STOPPING
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "costada"]
CRASHES = """
import logging, sys, threading, warnings
from costada.reports.json_log import begin_if_asked, log_event
begin_if_asked()
nan = float("nan")
log_event("odd", "a\\x7f\\ud800 at postgresql://me:secret@host/db", value=nan, values=[{1: -nan}])
print("two\\nlines", file=sys.stderr)
warnings.warn("a warning")
logging.getLogger("theirs").warning("lost %d", 3, extra={"ticket": 7})
logging.getLogger("theirs").info("not told")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
print("no end", file=sys.stderr, end="")
raise LookupError("at last")
"""


def environment(**more):
    return {**keyless_environment(), "COSTADA_LOG": "json", "OPENAI_API_KEY": "no key", **more}


def parsed(line):
    """One line as an event; it must be a JSON object of printable ASCII."""

    def refuse(constant):
        raise ValueError(f"{constant} is no JSON")

    assert line.endswith("\n")
    assert line.isascii()
    assert line[:-1].isprintable()
    event = json.loads(line, parse_constant=refuse)
    assert list(event)[:3] == ["time", "level", "event"]
    assert datetime.fromisoformat(event["time"]).utcoffset() == datetime.now(UTC).utcoffset()
    return event


def logged(folder, *words, **more):
    """The events that a command logs, what it prints on standard output, and its exit code."""
    done = subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
    )
    return list(map(parsed, done.stderr.splitlines(keepends=True))), done.stdout, done.returncode


@contextmanager
def begun(folder, *words, **more):
    """A command that goes on."""
    with subprocess.Popen(
        [*COMMAND, *map(str, words)],
        cwd=folder,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process, name):
    """The events of a process up to one of this name."""
    events = []
    for line in process.stderr:
        events.append(parsed(line))
        if events[-1]["event"] == name:
            return events
    raise AssertionError(events)


def rest(process):
    """The later events, standard output and the exit code."""
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return list(map(parsed, err.splitlines(keepends=True))), out, process.returncode


def steps(folder):
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def calls_of(folder):
    with RunStore(folder / "run.sqlite", is_read_only=True) as store:
        return list(store.call_log.calls(store.run_ids()[-1]))


def test_a_run_logs_its_begin_each_iteration_and_its_totals_and_nothing_else(near, tmp_path):
    events, out, code = logged(tmp_path, "run", near, "--max-iterations", 3, "--out", "a/run")
    assert (out, code) == ("", 0)
    assert [each["event"] for each in events] == ["begin", *3 * ["iteration"], "end"]
    assert {each["run"] for each in events} == {"run"}
    first, *iterations, end = events
    assert (first["message"], first["budget"]) == ("near, costada, offline, seed 0", 1)
    for event, row in zip(iterations, steps(tmp_path / "a" / "run"), strict=True):
        facts = {name: event[name] for name in event.keys() & row.keys()}
        assert facts.items() <= row.items()
        wanted = {"iteration", "frontier", "action", "step_cost", "spent", "events"}
        assert wanted | {"objective", "best_objective"} <= facts.keys()
    assert (end["stop_reason"], end["iterations"]) == ("iterations", 3)
    paid = sum(call.cost for call in calls_of(tmp_path / "a" / "run"))
    assert Decimal(str(end["spent"])) == paid
    assert sum(end["dollars_by_role"].values()) == pytest.approx(float(paid))
    (begin, one, _), _, _ = logged(tmp_path, "resume", "a/run", "--max-iterations", 4)
    assert (begin["done_before"], one["iteration"]) == (3, 4)


def test_the_result_as_json_stays_on_standard_output_and_quiet_leaves_only_the_end(near, tmp_path):
    words = ("run", near, "--max-iterations", 1, "--json", "--quiet")
    events, out, code = logged(tmp_path, *words, "--out", "run")
    assert (code, [each["event"] for each in events]) == (0, ["end"])
    assert json.loads(out)["spent"] == events[0]["spent"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "no-such-problem"), "problem is 'no-such-problem'"),
        (("run", "--no-such-option"), "No such option: --no-such-option"),
        (("run", "circle_packing", "--budget", "-1"), "--budget"),
        (("watch", __file__), "is a file"),
        (("sweep", "--problems", "all", "--methods", "none", "--out", "x"), "--methods"),
    ],
)
def test_a_refused_command_logs_one_error(tmp_path, words, said):
    events, out, code = logged(tmp_path, *words)
    assert (out, code) == ("", 2)
    assert [(each["event"], each["level"]) for each in events] == [("error", "error")]
    assert said in events[0]["message"]


def test_messages_warnings_tracebacks_and_prints_are_events(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CRASHES],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    odd, *events = map(parsed, done.stderr.splitlines(keepends=True))
    assert odd["message"] == "a\x7f\ud800 at postgresql://me@host/db"
    assert (odd["value"], odd["values"]) == (None, [{"1": None}])
    printed = [each["message"] for each in events if each["event"] == "output"]
    assert printed == ["two", "lines", "no end"]
    warned, told = (each for each in events if each["event"] == "notice")
    assert "UserWarning: a warning" in warned["message"]
    assert (told["message"], told["logger"], told["ticket"]) == ("lost 3", "theirs", 7)
    errors = [each for each in events if each["event"] == "error"]
    assert [each["message"] for each in errors] == [
        "ZeroDivisionError: division by zero",
        "LookupError: at last",
    ]
    assert all("Traceback (most recent call last)" in each["traceback"] for each in errors)
    assert done.returncode == 1


def test_another_format_is_refused(tmp_path):
    done = subprocess.run(
        [*COMMAND, "list"],
        env=environment(COSTADA_LOG="xml"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "costada: COSTADA_LOG: got 'xml', expected json, or no such variable\n"


def test_texts_of_an_evaluator_are_escaped(near, tmp_path):
    folder = tmp_path / "coloured"
    folder.mkdir()
    for name in ("problem.md", "initial_program.py"):
        (folder / name).write_bytes((near / name).read_bytes())
    lines = ["import sys", "print('\\x1b[31mread\\x7f', file=sys.stderr)"]
    lines += ["def evaluate(path):", "    raise ValueError('\\x1b[31mred\\u202e\\x9b\\nand more')"]
    (folder / "evaluator.py").write_text("\n".join(lines))
    events, out, code = logged(tmp_path, "run", folder, "--out", "run")
    assert (out, code) == ("", 2)
    assert events[-1]["event"] == "error", events
    assert "[31mred\u202e" in events[-1]["message"]


def test_an_interrupted_run_logs_that_it_stops_and_how_far_it_came(near, tmp_path):
    words = ("run", near, "--max-iterations", 10_000, "--budget", 1e6, "--out", "run")
    with begun(tmp_path, *words) as process:
        before = until(process, "iteration")
        process.send_signal(signal.SIGINT)
        events, out, code = rest(process)
    assert (out, code) == ("", 130)
    assert [each["event"] for each in before] == ["begin", "iteration"]
    (notice,) = (each for each in events if each["event"] == "notice")
    assert notice["message"] == STOPPING
    end = events[-1]
    assert (end["event"], end["stop_reason"]) == ("end", "interrupted")
    assert end["iterations"] == len(steps(tmp_path / "run")) >= 1
    assert "best_objective" in end


def test_a_second_interruption_is_logged_as_an_error(near, tmp_path):
    asked, closing = Event(), Event()

    def wait(body):
        asked.set()
        closing.wait(PATIENCE_SECONDS)
        return Reply("nothing")

    with BillingServer(default=wait) as server:
        model = ("--model", "openai:mine", "--base-url", server.url, "--price", "1,2")
        with begun(tmp_path, "run", near, *model, "--out", "run") as process:
            until(process, "begin")
            assert asked.wait(PATIENCE_SECONDS)
            process.send_signal(signal.SIGINT)
            until(process, "notice")
            process.send_signal(signal.SIGINT)
            events, out, code = rest(process)
        closing.set()
    assert (out, code) == ("", 130)
    assert events[-1]["event"] == "error"
    assert events[-1]["message"] == "stopped at once"
    assert "costada resume run" in events[-1]["hint"]


def test_with_several_iterations_in_flight_each_has_its_own_ticket(near, tmp_path):
    """The first request is answered after two others, so its ticket is not that of iteration 1."""
    others, number = Event(), iter(range(1, 1000))

    def answer(body):
        mine = next(number)
        if mine == 1:
            assert others.wait(PATIENCE_SECONDS)
        if mine == 4:
            others.set()
        return Reply("nothing", output_tokens=100 * mine)

    with BillingServer(default=answer) as server:
        model = ("--model", "openai:mine", "--base-url", server.url, "--price", "1,2")
        limits = ("--parallel", 3, "--max-iterations", 6, "--max-failures", 100, "--no-gateway")
        events, _, code = logged(tmp_path, "run", near, *model, *limits, "--out", "run")
    assert code == 0, events
    iterations = [each for each in events if each["event"] == "iteration"]
    tickets = [each["ticket"] for each in iterations]
    assert [each["iteration"] for each in iterations] == [1, 2, 3, 4, 5, 6]
    assert sorted(tickets) == [1, 2, 3, 4, 5, 6] != tickets
    calls = calls_of(tmp_path / "run")
    for each in iterations:
        paid = sum(call.cost for call in calls if call.ticket == each["ticket"])
        assert each["step_cost"] == pytest.approx(float(paid))


def test_a_pause_for_a_provider_is_a_notice(near, tmp_path):
    with BillingServer(default=Reply("nothing")) as server:
        server.script(Reply("nothing"), *[Refusal(503, "down")] * 6)
        model = ("--model", "openai:mine", "--base-url", server.url, "--price", "1,2")
        limits = ("--max-iterations", 3, "--retry-wait", 0.01, "--out", "run")
        events, _, code = logged(tmp_path, "run", near, *model, *limits)
    assert code == 0, events
    paused = [each for each in events if each["event"] == "notice"]
    assert {(each["level"], each["run"]) for each in paused} == {("warning", "run")}
    assert paused[0]["message"].startswith("Paused: ")
    assert "answers again" in paused[-1]["message"]


def test_a_sweep_logs_each_run_that_ends(near, tmp_path):
    words = ("--problems", near, "--methods", "costada,uniform", "--seeds", 1, "--out", "s")
    events, out, code = logged(tmp_path, "sweep", *words, "--max-iterations", 1, "--jobs", 2)
    assert (out, code) == ("", 0)
    assert [each["event"] for each in events] == ["begin", "run_ended", "run_ended", "end"]
    ended = {each["run"]: each for each in events[1:3]}
    assert ended.keys() == {"near/costada/seed-0", "near/uniform/seed-0"}
    assert {each["status"] for each in ended.values()} == {"finished"}
    assert events[-1]["statuses"] == {"finished": 2}
    assert events[-1]["spent"] == sum(each["spent"] for each in ended.values()) > 0


def test_a_server_of_pages_does_not_log_its_token(tmp_path):
    with begun(tmp_path, "watch", ".", COSTADA_WATCH_TOKEN=TOKEN) as process:
        serving, waiting = until(process, "serving") + until(process, "serving")
        wait_until(lambda: status_of(serving["address"]) == 401, lambda: "no answer")
        process.send_signal(signal.SIGINT)
        events, out, code = rest(process)
    assert out == ""
    assert serving["address"].startswith("http://127.0.0.1:")
    assert "no run yet" in waiting["message"]
    assert TOKEN not in f"{serving}{waiting}{events}"
    assert (code, [each["event"] for each in events]) == (0, ["end"])


def test_a_server_of_pages_prints_a_token_of_its_own(tmp_path):
    with begun(tmp_path, "watch", ".") as process:
        address = process.stdout.readline().strip()
        (serving,) = until(process, "serving")
    assert address.partition("?token=")[0] == serving["address"]


def test_a_gateway_logs_where_it_serves_and_that_it_stops(tmp_path):
    words = ("gateway", "--upstream", "http://127.0.0.1:9/v1", "--journal", "journal")
    with begun(tmp_path, *words) as process:
        (serving,) = until(process, "serving")
        process.send_signal(signal.SIGTERM)
        events, out, code = rest(process)
    assert (out, code) == ("", 0)
    assert serving["address"].endswith("/v1")
    assert [each["message"] for each in events] == ["asked to stop"]


def test_a_server_of_searches_logs_its_runs(near, tmp_path):
    port = free_port()
    words = ("mcp", "--http", "--port", port, "--max-budget", 1, "--max-iterations", 2)

    async def search(address):
        async with session_at(address) as session:
            run = (await call(session, "discover", problem="near", budget=0.5))["run"]
        return await ended(address, run)

    with begun(tmp_path, *words, "--problems", near, COSTADA_MCP_TOKEN=TOKEN) as process:
        events = until(process, "serving") + until(process, "serving")
        wait_until(lambda: status_of(f"http://127.0.0.1:{port}/live") == 200, lambda: "no answer")
        status, _ = asyncio.run(search(f"http://127.0.0.1:{port}"))
        process.send_signal(signal.SIGTERM)
        later, out, _ = rest(process)
    assert out == ""
    assert TOKEN not in f"{events}{later}"
    assert events[0]["address"] == f"http://127.0.0.1:{port}/mcp"
    ours = [each for each in later if "logger" not in each]  # the SDK logs clients that leave
    assert [each["event"] for each in ours] == ["begin", "iteration", "iteration", "end"]
    assert {each["run"] for each in ours} == {status["run"]}
    assert ours[-1]["spent"] == status["spent"]
