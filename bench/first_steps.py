"""What a new user does first, done for real: commands, seconds, lines written and the result.

Needs no key and no network:

    python bench/first_steps.py
"""

import ast
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

COSTADA = shutil.which("costada", path=os.fspath(Path(sys.executable).parent)) or "costada"
EXAMPLE = Path(__file__).parents[1] / "examples" / "agent_with_a_purse.py"
OWN_PROBLEM = {
    "problem.md": "Find the x and y at which the Himmelblau function is smallest.\n",
    "problem.toml": 'entry_point = "point"\n',
    "initial_program.py": "def point():\n    x = 2.5\n    y = 2.5\n    return [x, y]\n",
    "evaluator.py": """\
def score(output):
    x, y = output
    return {"combined_score": 1 / (1 + (x * x + y - 11) ** 2 + (x + y * y - 7) ** 2)}
""",
}
KILLED_AFTER = 5
"""Iterations of a run after which it is killed."""

NUM_TRIES = 5


@dataclass(frozen=True)
class Step:
    """A row of the table."""

    name: str
    commands: tuple[str, ...]
    seconds: float
    lines: int
    result: str


def main() -> None:
    """Print the table, then how soon a terminal shows first words and completions."""
    print("| first ... | commands | seconds | lines written | result |")
    print("| --- | --- | --- | --- | --- |")
    with TemporaryDirectory() as name:
        os.chdir(name)
        for step in steps(Path(name)):
            commands = "; ".join(f"`{command}`" for command in step.commands)
            cells = (step.name, commands, f"{step.seconds:.1f}", str(step.lines), step.result)
            print(f"| {' | '.join(cells)} |", flush=True)
        words = first_words(Path(name) / "words")
        completed = min(completion() for _ in range(NUM_TRIES))
    print(f"\nFirst words of `costada run` on a terminal after {words:.2f} s,")
    print(f"`costada run <TAB>` answered after {completed:.2f} s, once its cache is there.")


def steps(folder: Path) -> Iterator[Step]:
    """What a new user does, one after the other."""
    command = "costada run circle_packing --budget 0.05 --out first"
    seconds, output = timed(command)
    yield Step("result", (command,), seconds, 0, found(output))

    own = folder / "my-problem"
    own.mkdir()
    for name, text in OWN_PROBLEM.items():
        (own / name).write_text(text)
    command = "costada run my-problem --budget 0.15 --out own"
    seconds, output = timed(command)
    yield Step("own problem", (command,), seconds, num_lines(OWN_PROBLEM), found(output))

    source = EXAMPLE.read_text()
    Path("agent.py").write_text(source)
    begin = perf_counter()
    done = subprocess.run([sys.executable, "agent.py"], check=True, capture_output=True, text=True)
    seconds = perf_counter() - begin
    agent = Step(
        "agent with a purse",
        ("python agent.py",),
        seconds,
        agent_lines(source),
        done.stdout.splitlines()[-1],
    )
    yield agent

    command = (
        "costada sweep --problems circle_packing --methods costada,uniform --seeds 2"
        " --budget 0.05 --out sweep"
    )
    compare = "costada compare sweep"
    seconds, _ = timed(command)
    more, _ = timed(compare)
    runs = len(list(Path("sweep").rglob("run.sqlite")))
    yield Step("sweep", (command, compare), seconds + more, 0, f"{runs} runs and a comparison")

    command, resume = (
        "costada run circle_packing --budget 0.2 --out killed",
        "costada resume killed",
    )
    killed = kill_after(command, KILLED_AFTER, Path("killed") / "steps.jsonl")
    seconds, output = timed(resume)
    result = f"killed after {killed} iterations; {found(output)}"
    yield Step("resume after kill -9", (command, resume), seconds, 0, result)


def timed(command: str) -> tuple[float, str]:
    """Seconds and standard output of a command; exits with its errors if it fails."""
    begin = perf_counter()
    done = subprocess.run([COSTADA, *command.split()[1:]], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return perf_counter() - begin, done.stdout


def found(output: str) -> str:
    """The iterations and the best objective from the end of a run's output."""
    lines = output.splitlines()
    end = next(line for line in lines if line.startswith("Finished after"))
    best = next(line for line in lines if line.startswith("  best objective"))
    iterations = end.removeprefix("Finished after ").partition(":")[0]
    return f"{iterations}, best {best.split()[2]}"


def num_lines(files: Mapping[str, str]) -> int:
    """Lines of some files that are not blank."""
    return sum(bool(line.strip()) for text in files.values() for line in text.splitlines())


def agent_lines(source: str) -> int:
    """Lines of code of the example, without the model that stands in for a provider's."""
    written = set()
    for statement in ast.parse(source).body[1:]:
        module = getattr(statement, "module", "")
        if not isinstance(statement, ast.ClassDef) and not (module or "").startswith(
            "langchain_core"
        ):
            written |= set(range(statement.lineno, (statement.end_lineno or 0) + 1))
    lines = source.splitlines()
    return sum(bool(lines[number - 1].strip()) for number in written)


def kill_after(command: str, iterations: int, trace: Path) -> int:
    """Kill a run when its trace has that many rows; how many it has then."""
    process = subprocess.Popen(
        [COSTADA, *command.split()[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and rows_of(trace) < iterations:
        sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return rows_of(trace)


def rows_of(trace: Path) -> int:
    """Rows of a trace file; 0 if there is none."""
    return len(trace.read_text().splitlines()) if trace.exists() else 0


def first_words(out: Path) -> float:
    """Seconds until a run writes to a terminal."""
    master, terminal = pty.openpty()
    begin = perf_counter()
    command = [COSTADA, "run", "circle_packing", "--dry-run", "--out", os.fspath(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=terminal):
        os.close(terminal)
        os.read(master, 1)
        seconds = perf_counter() - begin
        with suppress(OSError):  # how Linux says that the other end is closed
            while os.read(master, 65536):
                pass
    os.close(master)
    return seconds


def completion() -> float:
    """Seconds until the command has answered a shell; the cache is there."""
    asked = {"_COSTADA_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "costada run c"}
    begin = perf_counter()
    done = subprocess.run([COSTADA], env={**os.environ, **asked}, capture_output=True, text=True)
    assert "circle_packing" in done.stdout, done.stdout
    return perf_counter() - begin


if __name__ == "__main__":
    main()
