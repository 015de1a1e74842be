"""Keys stay in the process of a run: no other process is started with them in its environment."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from billing_server import BillingServer, Reply

KEY = "sk-only-for-the-process-of-the-run"
PASSWORD = "only-for-the-database"
COMMAND = [sys.executable, "-m", "costada.cli.entry"]
PROGRAM = "# EVOLVE-BLOCK-START\ndef value():\n    return 0.{}\n# EVOLVE-BLOCK-END"
HELPERS = ("gateway_process", "worker_processes", "trackers.process", "sandbox/inside/server_main")
ONLY_ON_LINUX = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


def command_line(process):
    return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()


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
    words += ["--gateway", "--evaluations=local:1", "--sandbox=process"]
    with Provider() as provider, Path(tmp_path / "log").open("w+") as output:
        run = subprocess.Popen(
            [*COMMAND, *words, *settings(provider)],
            env=environment(),
            stdout=output,
            stderr=output,
        )
        assert run.wait(120) == 0, Path(output.name).read_text()
    for helper in helpers:
        assert [each for each in provider.commands.values() if helper in each], helper
    others = provider.holders - {run.pid}
    assert not [command for pid, command in provider.commands.items() if pid in others]


@ONLY_ON_LINUX
@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every process; run as another user")
def test_other_programs_of_the_user_cannot_read_the_helpers_that_hold_secrets(near, tmp_path):
    looks = []

    def look(body):
        """Note which helpers can be read; one that another test starts can be for a moment."""
        seen = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = command_line(process)
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(near) in command or any(each in command for each in HELPERS[:2]):
                seen[process.name, command] = os.access(process / "environ", os.R_OK)
        looks.append(seen)
        return Reply(f"```python\n{PROGRAM.format(5)}\n```")

    words = ["run", str(near), f"--out={tmp_path / 'run'}", "--max-iterations=2"]
    words += ["--gateway", "--evaluations=local:1", "--sandbox=process"]
    with BillingServer() as provider:
        provider.default = look
        subprocess.run(
            [*COMMAND, *words, *settings(provider)], env=environment(), check=True, timeout=120
        )
    first, *_, last = looks
    assert first.keys() & last.keys()
    assert not [each for each in first.keys() & last.keys() if first[each] and last[each]]


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
        assert sweep.wait(120) == 0, Path(output.name).read_text()
        assert len(provider.requests) == 2
    assert [each for each in provider.commands.values() if "sweep_entry" in each]
    others = provider.holders - {sweep.pid}
    assert not [command for pid, command in provider.commands.items() if pid in others]
