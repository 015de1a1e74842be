import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from subprocess import PIPE
from threading import Event
from typing import Any

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem
from needed_programs import needs

from costada.runs.discovery import discover
from costada.runs.folder_lease import hold_lease, is_held

pytestmark = pytest.mark.process

HOLD = (
    "import sys; from pathlib import Path; from costada.runs.folder_lease import hold_lease\n"
    "with hold_lease(Path(sys.argv[1])):\n"
    "    print('held', flush=True); sys.stdin.read()\n"
)


@contextmanager
def held_by_another(folder):
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.stdin.close()


def test_a_second_process_learns_who_holds_the_run_and_since_when(tmp_path):
    before = datetime.now(UTC).replace(microsecond=0)
    with held_by_another(tmp_path) as other:
        with (
            pytest.raises(ValueError, match="another process is at work") as refused,
            hold_lease(tmp_path),
        ):
            pass
        holder = json.loads((tmp_path / "run.lease").read_text())
    assert (holder["pid"], holder["host"]) == (other.pid, socket.gethostname())
    assert before <= datetime.fromisoformat(holder["since"]) <= datetime.now(UTC)
    assert str(refused.value) == (
        f"{tmp_path}: another process is at work in this run:"
        f" process {other.pid} on {holder['host']} since {holder['since']}"
    )


def test_a_lease_is_given_back_also_after_an_error(tmp_path):
    with pytest.raises(KeyError), hold_lease(tmp_path):
        raise KeyError
    assert not (tmp_path / "run.lease").exists()
    with hold_lease(tmp_path):
        assert json.loads((tmp_path / "run.lease").read_text())["pid"] == os.getpid()


def test_the_lease_of_a_killed_process_is_taken_over(tmp_path):
    with held_by_another(tmp_path) as other:
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert json.loads((tmp_path / "run.lease").read_text())["pid"] == other.pid
        with hold_lease(tmp_path):
            assert json.loads((tmp_path / "run.lease").read_text())["pid"] == os.getpid()


def test_many_claims_in_a_row_are_never_granted_to_two(tmp_path):
    granted: list[int] = []

    def claim_often(number):
        for _ in range(100):
            with suppress(ValueError), hold_lease(tmp_path):
                granted.append(number)
                assert granted == [number]
                granted.clear()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(claim_often, range(4)))
    assert not (tmp_path / "run.lease").exists()


def test_checking_whether_a_run_is_held_keeps_no_process_from_holding_it(tmp_path):
    (tmp_path / "run.lease").write_text("left by a process that died")
    is_over = Event()

    def look_often():
        while not is_over.is_set():
            is_held(tmp_path)

    with ThreadPoolExecutor(2) as threads:
        for _ in range(2):
            threads.submit(look_often)
        try:
            for _ in range(200):
                with hold_lease(tmp_path):
                    assert is_held(tmp_path)
                (tmp_path / "run.lease").write_text("left by a process that died")
        finally:
            is_over.set()
    assert not is_held(tmp_path)


def test_one_process_cannot_hold_a_run_twice(tmp_path):
    with (
        hold_lease(tmp_path),
        pytest.raises(ValueError, match=f"process {os.getpid()} on"),
        hold_lease(tmp_path),
    ):
        pass


def test_a_live_run_is_neither_resumed_nor_extended_but_can_be_forked(finished, tmp_path, invoke):
    live = shutil.copytree(finished, tmp_path / "live")
    settings = (live / "settings.json").read_bytes()
    with held_by_another(live) as other:
        for options in ((), ("--budget", 2)):
            result = invoke("resume", live, *options)
            assert result.exit_code == 2
            assert f"another process is at work in this run: process {other.pid} on" in (
                result.output
            )
        assert invoke("fork", live, "--at", 3, "--out", tmp_path / "new").exit_code == 0
    assert (live / "settings.json").read_bytes() == settings


def test_discover_is_refused_a_live_run(tmp_path):
    out = tmp_path / "run"
    options: dict[str, Any] = {"price": "1,2", "out": out}
    model = ScriptedModel(answer=hashed_answer)
    discover(toy_problem(), model, budget=0.005, **options)
    num_prompts = len(model.prompts)
    with held_by_another(out), pytest.raises(ValueError, match="another process is at work"):
        discover(toy_problem(), model, budget=0.01, resume=True, **options)
    assert len(model.prompts) == num_prompts


@needs("bwrap")
def test_a_run_that_cannot_be_held_on_a_full_disk_names_the_file_and_how_to_go_on(
    finished, tmp_path
):
    """Nothing at all fits on the disk, not even the name of the holder."""
    resume = f"{sys.executable} -m costada.cli.entry resume disk/run --max-iterations 9"
    script = f"cp -r {finished} disk/run; cat /dev/zero >disk/rest 2>/dev/null; {resume}"
    disk = ("--size", str(2**24), "--tmpfs", str(tmp_path / "disk"))
    (tmp_path / "disk").mkdir()
    done = subprocess.run(
        ["bwrap", "--dev-bind", "/", "/", *disk, "--chdir", str(tmp_path), "sh", "-c", script],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "costada: disk/run/run.lease: No space left on device",
        "Free some space, then repeat the command.",
    ]
