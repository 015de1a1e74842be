"""What a run of 10,000 iterations costs to resume, to list, to report and to watch.

The run is made in this process with a model that answers at once, with programs of about 5 KB, and
the real sandbox; its folder is that of `costada run`. The commands then work on it: `resume` makes
one iteration more, with the real client and a loopback server. The import time of `langgraph.graph`
and `langchain_openai`, which no command with a model can do without, stands beside them.

    python bench/long_run.py [--iterations 10000] [--repeats 3] [--keep FOLDER]
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from langgraph.runtime import RunControl
from overhead import FILLER, HEAD, IDEAS, TAIL, InstantModel

from costada.reports.progress import Progress
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder, config_text
from costada.runs.plan import plan_run
from costada.runs.runner import execute_run
from costada.runs.search_request import SearchRequest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from billing_server import Answer, BillingServer, Body, Reply

COMMAND = str(Path(sys.executable).with_name("costada"))
IMPORTS = "import langgraph.graph, langchain_openai"
SETTINGS = 'entry_point = "value"\n'
EVALUATOR = "def score(output):\n    return {'combined_score': output}\n"


@dataclass
class Provider:
    """A loopback server that answers each request with a better program, and its clock."""

    server: BillingServer
    first: float = 0.0
    last: float = 0.0

    def answer(self, body: Body) -> Answer:
        """The answer to a request, whose time is noted."""
        now = time.perf_counter()
        self.first, self.last = self.first or now, now
        is_guide = "# Output" in str(body["messages"][-1]["content"])
        program = f"{HEAD}{now}\n{FILLER}{TAIL}"
        return Reply(IDEAS if is_guide else f"```python\n{program}```")


def write_problem(folder: Path) -> Path:
    """A problem folder whose score is the number that a program returns."""
    folder.mkdir(parents=True)
    (folder / "problem.md").write_text("Any number.")
    (folder / "problem.toml").write_text(SETTINGS)
    (folder / "evaluator.py").write_text(EVALUATOR)
    (folder / "initial_program.py").write_text(f"{HEAD}0.0{TAIL}")
    return folder


def make_run(folder: Path, iterations: int, url: str) -> Path:
    """The folder of a run that has reached its iteration limit."""
    config = RunConfig(
        problem=str(write_problem(folder / "problem")),
        budget=1e6,
        max_iterations=iterations,
        model="openai:stand-in",
        base_url=url,
        price="1,2",
    )
    run = RunFolder(folder / "run")
    plan = plan_run(SearchRequest(config, model=InstantModel()))
    run.claim(config)
    execute_run(plan, run, Progress(), RunControl())
    return run.path


def timed(*arguments: str) -> float:
    """Seconds that a command takes."""
    began = time.perf_counter()
    subprocess.run(arguments, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def resumed(run: Path, iterations: int, provider: Provider) -> tuple[float, float]:
    """Seconds until a resumed copy of a run makes its first request, and from its last to its end.

    The copy makes one iteration more.
    """
    copy = run.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run, copy)
    provider.first = 0.0
    began = time.perf_counter()
    command = [COMMAND, "resume", str(copy), "--max-iterations", str(iterations + 1)]
    environment = os.environ | {"OPENAI_API_KEY": "none"}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    ended = time.perf_counter()
    shutil.rmtree(copy)
    return provider.first - began, ended - provider.last


def watched(run: Path) -> float:
    """Seconds until `watch` has served the page of a run."""
    began = time.perf_counter()
    with subprocess.Popen([COMMAND, "watch", str(run)], stdout=subprocess.PIPE, text=True) as watch:
        try:
            address = watch.stdout.readline().split()[0]
            with urllib.request.urlopen(address) as page:  # noqa: S310  our own server
                page.read()
            return time.perf_counter() - began
        finally:
            watch.terminate()


def main() -> None:
    """Make a run, and print the median and the range of each time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder of the run, made if it does not exist")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, BillingServer() as server:
        provider = Provider(server)
        server.default = provider.answer
        folder = (options.keep or Path(temporary)).resolve()
        run = folder / "run"
        if not run.exists():
            began = time.perf_counter()
            make_run(folder, options.iterations, server.url)
            seconds = time.perf_counter() - began
            size = (run / "run.sqlite").stat().st_size / 1e6
            print(f"made {options.iterations} iterations in {seconds:.0f} s, {size:.0f} MB")
        settings = run / "settings.json"
        config = RunFolder(run).load().model_copy(update={"base_url": server.url})
        settings.write_text(config_text(config))
        resumes = [resumed(run, config.max_iterations, provider) for _ in range(options.repeats)]
        commands: dict[str, Callable[[], float]] = {
            IMPORTS: lambda: timed(sys.executable, "-c", IMPORTS),
            "trace": lambda: timed(COMMAND, "trace", str(run)),
            "trace --json": lambda: timed(COMMAND, "trace", str(run), "--json"),
            "report": lambda: timed(COMMAND, "report", str(run)),
            "watch, the page is served": lambda: watched(run),
        }
        times = {name: [take() for _ in range(options.repeats)] for name, take in commands.items()}
    times["resume, first request"] = [first for first, _ in resumes]
    times["resume, last request to end"] = [last for _, last in resumes]
    for name, found in times.items():
        print(f"{name:44}{median(found):6.2f} s  ({min(found):.2f} to {max(found):.2f})")


if __name__ == "__main__":
    main()
