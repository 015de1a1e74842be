"""Keys stay in the process of a run: no other process is started with them in its environment."""

import os
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from threading import Event
from time import monotonic, sleep

import pytest
from billing_server import BillingServer, Reply

from costada.evaluators.sandbox.inside.process_tree import descendants
from costada.plugins.gateway.gateway_protocol import read_address

pytestmark = pytest.mark.process

KEY = "sk-only-for-the-process-of-the-run"
PASSWORD = "only-for-the-database"
COMMAND = [sys.executable, "-m", "costada.cli.entry"]
PROGRAM = "# EVOLVE-BLOCK-START\ndef value():\n    return 0.{}\n# EVOLVE-BLOCK-END"
SECONDS = 120
HELPERS = (
    "gateway_process",
    "worker_processes",
    "reports.tracker_process",
    "sandbox/inside/server_main",
)
ONLY_ON_LINUX = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


def command_line(process):
    """The words of a process's command; none if it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def processes_of(folder):
    """Commands of the processes of a run in a folder, and those that this user can read.

    Its gateway leaves the process that starts it; its address file names it.
    """
    named = [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if f"{folder}/" in command_line(process)
    ]
    addresses = map(read_address, folder.rglob("*.address"))
    named += [address.pid for address in addresses if address]
    commands, readable = [], []
    for number in {*named, *chain.from_iterable(map(descendants, named))}:
        process = Path("/proc", str(number))
        commands.append(command_line(process))
        if os.access(process / "environ", os.R_OK):
            readable.append(commands[-1])
    return commands, readable


def processes_with(text):
    """Commands of this machine's processes by pid, and those started with a text around them."""
    commands, holders = {}, set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            commands[int(process.name)] = command_line(process)
            if text.encode() in (process / "environ").read_bytes():
                holders.add(int(process.name))
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue
    return commands, holders


class Provider(BillingServer):
    """Looks at all processes whenever a run calls it."""

    def __enter__(self):
        self.default = self.look
        self.commands, self.holders = {}, set()
        return super().__enter__()

    def look(self, body):
        commands, holders = processes_with(KEY)
        more, others = processes_with(PASSWORD)
        self.commands |= commands | more
        self.holders |= holders | others
        self.alive = commands
        program = PROGRAM.format(len(self.requests))
        return Reply(f"```python\n{program}\n```", input_tokens=700, output_tokens=300)


def settings(provider):
    return ["--model=openai:m", f"--base-url={provider.url}", "--price=1,2", "--quiet"]


def environment():
    return {**os.environ, "OPENAI_API_KEY": KEY, "PGPASSWORD": PASSWORD}


@ONLY_ON_LINUX
def test_helpers_of_a_run_are_started_without_its_keys(near, tmp_path):
    helpers = [*HELPERS] if find_spec("tensorboardX") else [HELPERS[0], HELPERS[1], HELPERS[3]]
    log = ["--log=tensorboard"] if find_spec("tensorboardX") else []
    words = ["run", str(near), f"--out={tmp_path / 'run'}", "--max-iterations=3", *log]
    words += ["--gateway", "--evaluate-on=local:1", "--sandbox=process"]
    with Provider() as provider, Path(tmp_path / "log").open("w+") as output:
        run = subprocess.Popen(
            [*COMMAND, *words, *settings(provider)],
            env=environment(),
            stdout=output,
            stderr=output,
        )
        assert run.wait(SECONDS) == 0, Path(output.name).read_text()
    for helper in helpers:
        assert [each for each in provider.commands.values() if helper in each], helper
    others = provider.holders - {run.pid}
    assert not [command for pid, command in provider.commands.items() if pid in others]


@ONLY_ON_LINUX
@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every process; run as another user")
def test_other_programs_of_the_user_cannot_read_the_helpers_that_hold_secrets(near, tmp_path):
    is_called, may_answer = Event(), Event()

    def answer(body):
        is_called.set()
        assert may_answer.wait(SECONDS)
        return Reply(f"```python\n{PROGRAM.format(5)}\n```")

    words = ["run", str(near), f"--out={tmp_path / 'run'}", "--max-iterations=1"]
    words += ["--gateway", "--evaluate-on=local:1", "--sandbox=process"]
    with BillingServer() as provider:
        provider.default = answer
        with subprocess.Popen([*COMMAND, *words, *settings(provider)], env=environment()) as run:
            try:
                assert is_called.wait(SECONDS)
                commands, readable = processes_of(tmp_path)
                end = monotonic() + SECONDS
                while readable and monotonic() < end:  # one that starts has yet to close itself
                    sleep(0.05)
                    commands, readable = processes_of(tmp_path)
            finally:
                may_answer.set()
    assert run.returncode == 0
    for helper in (HELPERS[0], HELPERS[1], HELPERS[3]):
        assert [each for each in commands if helper in each], helper
    assert not readable


@ONLY_ON_LINUX
def test_runs_of_a_sweep_get_their_keys_over_a_pipe(near, tmp_path):
    words = ["sweep", f"--problems={near}", "--methods=uniform", "--seeds=1", "--jobs=1"]
    words += [f"--out={tmp_path / 'swept'}", "--max-iterations=2", "--sandbox=process"]
    with Provider() as provider, Path(tmp_path / "log").open("w+") as output:
        sweep = subprocess.Popen(
            [*COMMAND, *words, *settings(provider)],
            env=environment(),
            stdout=output,
            stderr=output,
        )
        assert sweep.wait(SECONDS) == 0, Path(output.name).read_text()
        assert len(provider.requests) == 2
    assert [each for each in provider.commands.values() if "sweep_entry" in each]
    others = provider.holders - {sweep.pid}
    assert not [command for pid, command in provider.commands.items() if pid in others]
