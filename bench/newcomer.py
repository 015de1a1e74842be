"""What a newcomer does with CostAda, ShinkaEvolve, OpenEvolve and GEPA: steps, lines and seconds.

Each tool is installed from its index by pip and used as its own documentation says, on the same
problem, with the same answers of a local provider. No key and no paid model is needed:

    python bench/newcomer.py install ENVIRONMENTS --wheel dist/costada-0.1.0-py3-none-any.whl
    python bench/newcomer.py example ENVIRONMENTS --checkouts FOLDER
    python bench/newcomer.py own ENVIRONMENTS
    python bench/newcomer.py money ENVIRONMENTS
    python bench/newcomer.py served
    python bench/newcomer.py runs ENVIRONMENTS --checkouts FOLDER

`install` makes an environment of each tool, the others use them. FOLDER holds clones of OpenEvolve
and ShinkaEvolve, which are only read. `served` needs `langgraph-cli[inmem]`, `money` the extra
`mcp`. Beside the seconds of the clock stand those of the processors, which other work on the
machine disturbs less.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from billing_server import BillingServer
from first_steps import num_lines
from langgraph_server import CLI, ROOT, answer
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from newcomer_tools import (
    COSTADA,
    COSTADA_TOOLS,
    MODELS_FILE,
    NEWCOMERS,
    OPENEVOLVE,
    OPENEVOLVE_SAVING,
    PRICE,
    Newcomer,
    Provider,
)
from ports import free_port
from waiting import within

ITERATIONS, KILLED_AT = 10, 8
RUNS = 50
LIMIT = 900
"""Seconds after which a command is killed."""


@dataclass(frozen=True)
class Places:
    """Where the environments are, the clones, and the wheel to install."""

    environments: Path
    checkouts: Path
    wheel: str

    def variables(self, tool: Newcomer, url: str) -> dict[str, str]:
        """The variables with which a tool's commands run: its programs first, and the provider."""
        path = f"{self.environments / tool.name.partition(',')[0] / 'bin'}:{os.environ['PATH']}"
        address = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": url}
        return {**os.environ, **address, "PATH": path, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


@dataclass(frozen=True)
class Desk:
    """An empty folder in which a newcomer works, and the provider that answers."""

    folder: Path
    variables: Mapping[str, str]
    provider: Provider
    server: BillingServer

    def write(self, files: Mapping[str, str]) -> None:
        """Write files, by their paths in the folder."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def begin(self, command: str) -> subprocess.Popen[str]:
        """Begin a command in a session of its own; its output goes to the file `output`."""
        with open(self.folder / "output", "w") as output:
            return subprocess.Popen(
                ["/bin/sh", "-c", command],
                cwd=self.folder,
                env=self.variables,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
            )

    def run(self, command: str) -> "Taken":
        """What a command takes; exits with its output if it fails."""
        with measured() as taken:
            code = self.begin(command).wait(LIMIT)
        if code:
            sys.exit(f"{command}: exit code {code}\n{self.output()[-3000:]}")
        return taken()

    def output(self) -> str:
        """What the last command has written."""
        return (self.folder / "output").read_text()

    def dollars(self) -> float:
        """What the provider has charged for texts."""
        price_in, price_out = (float(price) / 1e6 for price in PRICE.split(","))
        texts = [each for each in self.server.bill if "embedding" not in each.model]
        return sum(price_in * t.input_tokens + price_out * t.output_tokens for t in texts)


class Taken(NamedTuple):
    """Seconds of the clock, and of the processors for all processes that were waited for."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.1f} ({self.cpu:.1f})"


@contextmanager
def measured() -> Iterator[Callable[[], Taken]]:
    """Measure a block; call what it yields for the seconds since its beginning."""
    began, spent = time.monotonic(), children_seconds()
    yield lambda: Taken(time.monotonic() - began, children_seconds() - spent)


def children_seconds() -> float:
    """Seconds of the processors that finished child processes have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def desk_of(tool: Newcomer, places: Places) -> Iterator[Desk]:
    """An empty desk with the files of the user's own problem and a new provider."""
    provider = Provider()
    with BillingServer(default=provider.answer) as server, TemporaryDirectory() as name:
        desk = Desk(Path(name), places.variables(tool, server.url), provider, server)
        desk.write(tool.files)
        yield desk


def install(tools: list[Newcomer], places: Places) -> None:
    """Install each tool with pip into a new environment."""
    table("tool", "command", "version", "seconds (CPU)", "packages", "MB")
    for tool in tools:
        home = places.environments / tool.name
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        taken = pip_install(home, tool.package.format(wheel=places.wheel))
        print_installed(tool.name, home, tool.package, places, taken)
    if COSTADA in tools:
        package = "{wheel}[mcp]"
        taken = pip_install(home := places.environments / COSTADA.name, f"{places.wheel}[mcp]")
        print_installed("CostAda, for agents", home, package, places, taken)


def pip_install(home: Path, package: str) -> Taken:
    """What it takes to install a package into an environment."""
    with measured() as taken:
        subprocess.run([home / "bin/pip", "install", "-qq", package], check=True)
    return taken()


def print_installed(name: str, home: Path, package: str, places: Places, taken: Taken) -> None:
    """Print the row of an environment."""
    listed = [home / "bin/pip", "list", "--format", "json"]
    found = json.loads(subprocess.run(listed, check=True, capture_output=True).stdout)
    versions = {each["name"]: each["version"] for each in found}
    shown = package.format(wheel="costada")
    version = versions[shown.partition("[")[0].replace("_", "-")]
    size = sum(file.lstat().st_size for file in home.rglob("*") if file.is_file())
    row(name, f"`pip install {shown}`", version, taken, len(found), size >> 20)


def example(tools: list[Newcomer], places: Places) -> None:
    """Run the first example of each tool's documentation."""
    table("tool", "clone", "command", "lines", "requests", "seconds (CPU)")
    row("CostAda, no key", "no", f"`{COSTADA_OFFLINE}`", 0, 0, offline(places))
    for tool in tools:
        with desk_of(tool, places) as desk:
            if tool.checkout:
                shutil.copytree(
                    places.checkouts / tool.checkout / "examples", desk.folder / "examples"
                )
            desk.write(tool.example_files)
            command = tool.example.format(iterations=ITERATIONS)
            taken = desk.run(command)
            clone = "yes" if tool.checkout else "no"
            lines = num_lines(tool.example_files)
            row(tool.name, clone, f"`{command}`", lines, desk.provider.began, taken)


COSTADA_OFFLINE = "costada run circle_packing --budget 0.05 --out demo-run"


def offline(places: Places) -> Taken:
    """What is taken by CostAda's first example, which asks no provider."""
    with desk_of(COSTADA, places) as desk:
        return desk.run(COSTADA_OFFLINE)


def own(tools: list[Newcomer], places: Places) -> None:
    """Run the user's own problem for ten iterations, then kill such a run and finish it."""
    table("tool", "files", "lines", "characters of the command", "requests", "seconds (CPU)")
    kills = []
    for tool in [*tools, *([OPENEVOLVE_SAVING] if OPENEVOLVE in tools else [])]:
        with desk_of(tool, places) as desk:
            command = tool.run.format(iterations=ITERATIONS, dollars=1)
            taken, whole = desk.run(command), desk.provider.began
            written = (len(tool.files), num_lines(tool.files), len(command))
            row(tool.name, *written, whole, taken)
        kills.append(killed(tool, places, whole))
    print()
    table("tool", "uninterrupted", "answered at the kill", "in flight", "after", "again", "seconds")
    for each in kills:
        row(*each)


def killed(tool: Newcomer, places: Places, whole: int) -> tuple[object, ...]:
    """Kill a run with SIGKILL at its eighth request, and finish it; the cells of its row."""
    with desk_of(tool, places) as desk:
        process = desk.begin(tool.run.format(iterations=ITERATIONS, dollars=1))
        within(LIMIT, lambda: desk.provider.began >= KILLED_AT)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        answered, began = desk.provider.ended, desk.provider.began
        taken = desk.run(continuation(tool, desk.folder))
        after = desk.provider.began - began
    again = after - (whole - answered)
    return tool.name, whole, answered, began - answered, after, again, taken


def continuation(
    tool: Newcomer, folder: Path, iterations: int = ITERATIONS, dollars: float = 1
) -> str:
    """The command that continues a run, up to so many iterations and dollars in all."""
    saved = list(folder.glob("out/checkpoints/checkpoint_*"))
    last = max((int(path.name.rpartition("_")[2]) for path in saved), default=0)
    if "{last}" in tool.go_on and not last:
        return tool.run.format(iterations=iterations, dollars=dollars)
    place = f"out/checkpoints/checkpoint_{last}"
    given = {"iterations": iterations, "dollars": dollars, "rest": iterations - last}
    return tool.go_on.format(last=place, **given)


FIRST, MORE = 0.001, 0.004
"""Dollars of a run at its start, and in all after it got more."""

FIRST_STEPS, MORE_STEPS, MANY = 6, 24, 100
"""About as many iterations for a tool without dollars, and more than any dollars here pay for."""


def money(tools: list[Newcomer], places: Places) -> None:
    """Start a run, look at it, give it more money, stop it and let it finish."""
    table("tool", "operation", "how", "seconds (CPU)", "requests", "dollars")
    for tool in tools:
        saving = OPENEVOLVE_SAVING if tool is OPENEVOLVE else tool
        with desk_of(saving, places) as desk:
            if tool is COSTADA:
                asyncio.run(by_tools(desk))
            else:
                by_shell(saving, desk, places)


def by_shell(tool: Newcomer, desk: Desk, places: Places) -> None:
    """The handles of a run for an agent that has a shell."""

    def print_done(operation: str, how: str, taken: Taken) -> None:
        dollars = f"{desk.dollars():.5f}"
        row(tool.name, operation, f"`{how}`", taken, desk.provider.began, dollars)

    if tool.needs_skills:
        shutil.copytree(places.checkouts / tool.checkout / "skills", desk.folder / "skills")
    few, many = (FIRST_STEPS, MORE_STEPS) if "{dollars}" not in tool.run else (MANY, MANY)
    command = tool.run.format(iterations=few, dollars=FIRST)
    print_done("start", command, desk.run(command))
    command, before = continuation(tool, desk.folder, many, MORE), desk.provider.began
    with measured() as taken:
        process = desk.begin(command)
        within(LIMIT, lambda: desk.provider.began >= before + 4)
    print_done("more", command, taken())
    with measured() as taken:
        shown = subprocess.run(
            ["/bin/sh", "-c", tool.status], cwd=desk.folder, env=desk.variables, capture_output=True
        )
    assert shown.returncode == 0, shown.stderr
    print_done("status", tool.status, taken())
    with measured() as taken:
        if tool.stop:
            subprocess.run(tool.stop.split(), cwd=desk.folder, check=True)
        else:
            os.killpg(process.pid, signal.SIGINT)
        process.wait(LIMIT)
    print_done("stop", tool.stop or "Ctrl-C", taken())
    (desk.folder / "out/gepa.stop").unlink(missing_ok=True)
    command = continuation(tool, desk.folder, many, MORE)
    print_done("continue", command, desk.run(command))


async def by_tools(desk: Desk) -> None:
    """The handles of a run for an agent that has the tools of `costada mcp`."""
    words = COSTADA_TOOLS.split()
    server = StdioServerParameters(
        command=words[0], args=words[1:], env=dict(desk.variables), cwd=desk.folder
    )

    async def call(operation: str, tool: str, **arguments: object) -> dict[str, Any]:
        with measured() as taken:
            answer = await client.call_tool(tool, arguments)
        assert not answer.isError, answer.content
        state: dict[str, Any] = answer.structuredContent or {}
        how, dollars = f"`{tool}` {arguments}", f"{desk.dollars():.5f}"
        row("CostAda", operation, how, taken(), desk.provider.began, dollars)
        return state

    with measured() as taken:
        async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
            await client.initialize()
            row("CostAda", "serve", f"`{COSTADA_TOOLS}`", taken(), 0, 0)
            state = await call("start", "discover", problem="my-problem", budget=FIRST)
            run = state["run"]
            await call("", "wait_for_run", run=run)
            await call("more", "continue_run", run=run, dollars=MORE - FIRST)
            began = desk.provider.began
            while desk.provider.began < began + 4:
                await asyncio.sleep(0.01)
            await call("status", "run_status", run=run)
            await call("stop", "stop_run", run=run)
            await call("", "wait_for_run", run=run)
            await call("continue", "continue_run", run=run, dollars=0)
            state = await call("", "wait_for_run", run=run)
            print(f"\nIts ledger says ${state['spent']:.5f}, its state {state}")


SERVED = {
    "OPENAI_API_KEY": "none",
    "COSTADA_PROBLEM": "my-problem",
    "COSTADA_MODELS": "searcher",
    "COSTADA_CHOOSE_SETTINGS": "max_iterations",
    "COSTADA_STORE": "calls.sqlite",
}
"""How the server is started, beside `models.toml`."""


def served(tools: list[Newcomer], places: Places) -> None:
    """Cancel a run of a real `langgraph dev` and resume it; kill the server of another one."""
    for is_killed in (False, True):
        provider = Provider()
        with BillingServer(default=provider.answer) as server, TemporaryDirectory() as name:
            desk = Desk(Path(name), os.environ | SERVED, provider, server)
            desk.write(COSTADA.files | {"models.toml": MODELS_FILE.format(url=server.url)})
            serve_once(desk, is_killed=is_killed)


def serve_once(desk: Desk, *, is_killed: bool) -> None:
    """Begin a run on a server, cancel it or kill the server at its eighth request, and resume."""
    order = {
        "assistant_id": "costada",
        "context": {"budget": 1, "settings": {"max_iterations": 10}},
    }
    process, address = serve(desk)
    name = answer(address, "threads", {})["thread_id"]
    thread, given = f"threads/{name}/runs", None
    run = answer(address, thread, {**order, "input": {"seed": 1}})["run_id"]
    within(LIMIT, lambda: desk.provider.began >= KILLED_AT)
    if is_killed:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process, address = serve(desk)
        # It saves its threads now and then, so it may know this one or not.
        answer(address, "threads", {"thread_id": name, "if_exists": "do_nothing"})
        given = {"seed": 1}
    else:
        answer(address, f"{thread}/{run}/cancel?wait=true", {})
    before = desk.provider.began, desk.provider.ended
    with measured() as taken:
        try:
            found = answer(address, f"{thread}/wait", {**order, "input": given})
        except HTTPError as error:
            found = {"refused": f"{error.code} {error.read().decode()[:200]}"}
    what = "server killed" if is_killed else "run cancelled"
    print(
        f"{what} at {before[0]} requests, {before[1]} of them answered; {taken().wall:.1f} s later:"
    )
    print(f"  {desk.provider.began} requests, bill ${desk.dollars():.6f}")
    shown = ("iterations", "spent", "in_doubt", "best_score", "stop_reason", "refused", "__error__")
    print("  " + ", ".join(f"{key} {found[key]}" for key in shown if key in found))
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(LIMIT)


def serve(desk: Desk) -> tuple["subprocess.Popen[str]", str]:
    """Start `langgraph dev` in the desk's folder; the process and its address."""
    port = free_port()
    options = f"--no-browser --no-reload --config {ROOT / 'langgraph.json'} --port {port}"
    process = desk.begin(f"exec {CLI} dev {options}")
    address = f"http://127.0.0.1:{port}"
    within(LIMIT, lambda: page(f"{address}/ok"))
    return process, address


def page(address: str, **headers: str) -> str:
    """The text at an address; empty while nobody answers."""
    try:
        request = Request(address, headers=headers)  # noqa: S310 (an address of this machine)
        with urlopen(request, timeout=LIMIT) as found:  # noqa: S310
            return str(found.read().decode())
    except (URLError, ConnectionError):
        return ""


def runs(tools: list[Newcomer], places: Places) -> None:
    """Show fifty finished runs, copies of one, with each tool's own viewer."""
    table("tool", "command", "seconds to the list", "runs in it")
    for tool in tools:
        if not tool.view:
            row(tool.name, "none", "", 0)
            continue
        with desk_of(OPENEVOLVE_SAVING if tool is OPENEVOLVE else tool, places) as desk:
            desk.run(tool.run.format(iterations=2, dollars=1))
            for number in range(RUNS):
                shutil.copytree(desk.folder / "out", desk.folder / f"runs/run-{number:02}")
            if tool.needs_scripts:
                shutil.copytree(
                    places.checkouts / tool.checkout / "scripts", desk.folder / "scripts"
                )
            command = tool.view.format(port=(port := free_port()))
            with measured() as taken:
                process = desk.begin(f"exec {command}")
                token = within(LIMIT, lambda: token_of(tool, desk))  # noqa: B023
                address = f"http://127.0.0.1:{port}{tool.listing}"
                expected = 1 if tool is OPENEVOLVE else RUNS
                while (listed := num_listed(tool, address, token)) < expected:
                    time.sleep(0.1)
            row(tool.name, f"`{command}`", f"{taken().wall:.1f}", listed)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def num_listed(tool: Newcomer, address: str, token: str) -> int:
    """How many runs a viewer lists; 0 while it does not answer."""
    shown = page(address, Authorization=f"Bearer {token}")
    return tool.num_listed(json.loads(shown)) if shown else 0


def token_of(tool: Newcomer, desk: Desk) -> str:
    """The token that CostAda prints with the address of its page; any text for the others."""
    found = re.search(r"token=(\S+)", desk.output())
    return found[1] if found else "" if tool is COSTADA else "none"


def table(*names: str) -> None:
    """Print the head of a table."""
    row(*names)
    row(*["---"] * len(names))


def row(*cells: object) -> None:
    """Print a row of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


TASKS: dict[str, Callable[[list[Newcomer], Places], None]] = {
    "install": install,
    "example": example,
    "own": own,
    "money": money,
    "served": served,
    "runs": runs,
}


def main() -> None:
    """Print the table of one task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("environments", type=Path, nargs="?", default=Path("newcomers"))
    parser.add_argument("--checkouts", type=Path, default=Path("peers"), metavar="FOLDER")
    parser.add_argument("--wheel", default="costada", metavar="FILE")
    parser.add_argument("--tools", help="of these names only, with commas between")
    given = parser.parse_args()
    names = given.tools.split(",") if given.tools else [tool.name for tool in NEWCOMERS]
    tools = [tool for tool in NEWCOMERS if tool.name in names]
    places = Places(given.environments.absolute(), given.checkouts.absolute(), given.wheel)
    TASKS[given.task](tools, places)


if __name__ == "__main__":
    main()
