"""Has a trusted process evaluate the whole collection in one layer, and watches from outside.

Run as `python -m hostile.watch LAYER ROOT [models]`; writes one JSON record per program to
`ROOT/records.jsonl`. With `models`, each program has a channel to models. Orphans of the trusted
process become children of this one, so nothing that a program starts gets out of sight.
"""

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic, sleep

from costada.evaluators.sandbox.slot_kind import LATE
from hostile.corpus import Program, own_programs, shared_programs
from hostile.ground import (
    ABSTRACT,
    MARK,
    PORT,
    Ground,
    Listener,
    descendants,
    kinds,
    own_memory_mb,
    system_objects,
)

PR_SET_CHILD_SUBREAPER = 36
WALL_SECONDS = 6.0
SHORT_WALL_SECONDS = 0.2
MEMORY_MB = 1024
SMALL_MEMORY_MB = 128
GRACE_SECONDS = 15.0
PATIENCE_SECONDS = 20.0
"""How long the end of processes may take, and removing files, on a machine that stalls."""
SETTLE_SECONDS = 0.1
"""In which a slot has made the folder for its next candidate."""
START_SECONDS = 60.0
CONTROL_EVERY = 4
"""A control follows each shared program, and each fourth of our own."""


class Trusted:
    """The trusted process, restarted when it dies or does not answer."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.errors = ground.root / "stderr.txt"
        self.start()

    def start(self) -> None:
        self.waiting = b""
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "hostile.trusted", self.ground.layer, *sys.argv[3:]],
                cwd=self.ground.project,
                env=self.ground.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        greeting = self.read(START_SECONDS)
        if greeting is None:
            raise RuntimeError(f"no trusted process: {self.errors.read_text()[-2000:]}")
        self.greeting = greeting

    def ask(self, request: dict, seconds: float, look: Callable[[], None]) -> dict | None:
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            return self.read(seconds, look)
        return None

    def read(self, seconds: float, look: Callable[[], None] = lambda: None) -> dict | None:
        deadline = monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.waiting and monotonic() < deadline:
                if selector.select(0.05):
                    chunk = os.read(self.process.stdout.fileno(), 1 << 20)
                    if not chunk:
                        return None
                    self.waiting += chunk
                look()
        line, ended, rest = self.waiting.partition(b"\n")
        self.waiting = rest
        return json.loads(line) if ended else None

    def stop(self) -> None:
        self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Watch:
    """Tries programs and records what each did."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.listener = Listener(ground.home / f"{MARK}.sock")
        self.trusted = Trusted(ground)
        self.control = next(p for p in own_programs() if p.name == "control_valid")
        self.num_tried = 0
        if "unavailable" not in self.trusted.greeting:
            self.settle()

    def settle(self) -> None:
        for memory_mb in (SMALL_MEMORY_MB, MEMORY_MB):
            for wall_seconds in (SHORT_WALL_SECONDS, WALL_SECONDS):
                self.calm = self.evaluate(self.control, wall_seconds, memory_mb) or {}
        self.accept_what_is()
        self.peak_mb = 0

    def accept_what_is(self) -> None:
        sleep(SETTLE_SECONDS)
        self.ground.restore()
        self.files = self.ground.files()
        self.num_scratch = self.ground.num_scratch()
        self.processes = descendants(os.getpid())
        self.objects = system_objects()

    def evaluate(self, program: Program, wall_seconds: float, memory_mb: int) -> dict | None:
        source = program.source.replace(PORT, str(self.listener.port))
        source = source.replace(ABSTRACT, self.listener.abstract_name)
        places = {"HOME": self.ground.home, "PROJECT": self.ground.project}
        for name, text in (places | {"MARK": self.ground.mark}).items():
            source = source.replace(f"@{name}@", str(text))
        request = {"source": source, "wall_seconds": wall_seconds, "memory_mb": memory_mb}
        look = self.measure if "memory" in program.tags else lambda: None
        return self.trusted.ask(request, wall_seconds + 2 * GRACE_SECONDS, look)

    def measure(self) -> None:
        known = {process.pid for process in self.processes}
        new = [p.pid for p in descendants(os.getpid()) if p.pid not in known]
        self.peak_mb = max(self.peak_mb, own_memory_mb(new))

    def try_program(self, program: Program) -> dict:
        wall_seconds = SHORT_WALL_SECONDS if "timeout" in program.tags else WALL_SECONDS
        memory_mb = SMALL_MEMORY_MB if "memory" in program.tags else MEMORY_MB
        self.peak_mb = 0
        evaluation = self.evaluate(program, wall_seconds, memory_mb)
        record = {"name": program.name, "evaluation": evaluation, "peak_mb": self.peak_mb}
        record |= {"wall_seconds": wall_seconds, "memory_mb": memory_mb}
        is_stopped = program.is_stopped_by(self.ground.layer)
        record |= self.wait_for_calm(is_stopped) | {"heard": self.listener.heard()}
        if evaluation is None:
            self.restart()
        self.num_tried += 1
        if not program.is_own or self.num_tried % CONTROL_EVERY == 0:
            record |= self.try_control()
        if not is_stopped:
            self.accept_what_is()
        return record

    def try_control(self) -> dict:
        control = self.evaluate(self.control, WALL_SECONDS, MEMORY_MB)
        if control is None or not control["is_valid"]:
            self.restart()
        if control is None:
            return {"control": None}
        num_fds = control["fds"] - self.calm["fds"]
        growth_mb = control["resident_mb"] - self.calm["resident_mb"]
        return {"control": control, "fds": num_fds, "growth_mb": growth_mb}

    def wait_for_calm(self, is_awaited: bool) -> dict:
        """What is still there, after some time if calm is awaited; restore the ground."""
        started = monotonic() if is_awaited else -inf
        while (left := self.leftovers()) and monotonic() < started + PATIENCE_SECONDS:
            sleep(0.02)
        while (scratch := self.left_in_scratch()) and monotonic() < started + PATIENCE_SECONDS:
            sleep(0.02)
        files = self.ground.files()
        changed = sorted(dict(files.items() ^ self.files.items()))
        if changed:
            self.ground.restore()
            self.files = self.ground.files()
        return {"left": left + scratch, "changed": changed}

    def leftovers(self) -> list[str]:
        """Processes and kernel objects that were not there when nothing was tried."""
        now = descendants(os.getpid())
        for process in now:
            is_orphan = process.parent == os.getpid() and process.pid != self.trusted.process.pid
            if process.is_zombie and is_orphan:
                os.waitpid(process.pid, os.WNOHANG)
        extra = kinds(now) - kinds(self.processes)
        left = [f"process {name}" for name in extra.elements()]
        # Of those that were there, the creator may have ended since.
        objects = system_objects().items()
        return left + [
            name for name, is_elsewhere in objects if name not in self.objects and not is_elsewhere
        ]

    def left_in_scratch(self) -> list[str]:
        """How many files are too many in the folder for temporary files."""
        num_files = self.ground.num_scratch() - self.num_scratch
        return [f"{num_files} files in scratch"] if num_files > 0 else []

    def restart(self) -> None:
        self.trusted.process.kill()
        self.trusted.stop()
        kill_descendants()
        self.trusted.start()
        self.settle()


def needs_all(program: Program) -> bool:
    """Whether a program has the slot load what every later child is forked with, too."""
    return LATE in program.source


def kill_descendants() -> list[str]:
    """Kill every process below this one and return the names of those that were alive."""
    below = descendants(os.getpid())
    for process in below:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return [process.name for process in below if not process.is_zombie]


def main() -> None:
    layer, root = sys.argv[1], Path(sys.argv[2])
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ground = Ground(root, layer)
    ground.lay_out()
    watch = Watch(ground)
    with (root / "records.jsonl").open("w") as records:
        if "unavailable" in watch.trusted.greeting:
            print(json.dumps(watch.trusted.greeting), file=records)
        else:
            for program in sorted([*shared_programs(), *own_programs()], key=needs_all):
                if program.is_run_in(layer, with_models=sys.argv[3:] == ["models"]):
                    print(json.dumps(watch.try_program(program)), file=records, flush=True)
        watch.trusted.stop()
        sleep(0.3)
        end = {"left": kill_descendants(), "stderr": watch.trusted.errors.read_text()}
        print(json.dumps({"name": "the end", **end}), file=records)


if __name__ == "__main__":
    main()
