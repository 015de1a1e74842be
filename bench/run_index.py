"""How fast `costada watch` lists many runs: this checkout against another revision.

Folders of finished runs are written, and one long run. For each number of runs, both revisions in
turn make the first listing, with the rows that runs keep and without, and a refresh in which
nothing has changed. Of the long run, a refresh after one new iteration is measured when it is short
and when it is long. CPU times are those of a process that has opened one run before; with
`--browser` also the milliseconds until Chromium shows all rows of `costada watch`.

    python bench/run_index.py [--runs 50,500] [--long 10000] [--against origin/main] [--browser]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from page_runs import call, settings, step, write_steps

from costada import discover
from costada.reports.indexed_run import IndexedRun, files_of
from costada.reports.kept_row import file_states, keep_row
from costada.runs.folder import RunFolder

ROOT = Path(__file__).parents[1]
ITERATIONS = 30
SHORT = 100
PATHS = """
import sys
sys.meta_path = [each for each in sys.meta_path if not getattr(each, "__module__", "").startswith("__editable__")]
sys.path.insert(0, sys.argv.pop(1))
"""  # noqa: E501

LIST = """
import time
from pathlib import Path
from costada.reports.run_index import RunIndex
from costada.runs.folder import RunFolder

def listing(index):
    begun, found = time.process_time(), {"revision": 0, "unread": 1}
    while found["unread"]:
        found = index.rows(found["revision"])
    print(1000 * (time.process_time() - begun), flush=True)

listing(RunIndex(Path(sys.argv[1]), RunFolder))
index = RunIndex(Path(sys.argv[2]), RunFolder)
for _ in sys.stdin:
    listing(index)
"""
WATCH = "from costada.cli.main import main; main()"


@contextmanager
def child(links: Path, code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that imports CostAda from the checkout that `links` names."""
    command = [sys.executable, "-c", PATHS + code, str(links), *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.terminate()


def answer(process: subprocess.Popen[str]) -> float:
    """The milliseconds of CPU time that the process prints next."""
    assert process.stdout is not None
    return float(process.stdout.readline())


def ask(process: subprocess.Popen[str]) -> float:
    """The milliseconds of CPU time of another listing."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return answer(process)


def time_listing(links: Path, one: Path, folder: Path) -> tuple[float, float]:
    """Milliseconds of the first listing, and of a refresh."""
    with child(links, LIST, str(one), str(folder)) as process:
        answer(process)
        return ask(process), median(ask(process) for _ in range(5))


def time_new_step(links: Path, one: Path, folder: Path) -> float:
    """Milliseconds of a refresh after the run below a folder has landed a step."""
    run = RunFolder(folder / "run")
    with child(links, LIST, str(one), str(folder)) as process:
        answer(process)
        ask(process)
        times = []
        for _ in range(5):
            add_steps(run, 1)
            times.append(ask(process))
        return median(times)


def time_page(links: Path, folder: Path, number: int) -> float:
    """Milliseconds from the request of the index to the row of its last run."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with child(links, WATCH, "watch", str(folder)) as process, sync_playwright() as playwright:
        assert process.stdout is not None
        address = process.stdout.readline().split()[0]
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page()
        begun = perf_counter()
        tab.goto(address)
        tab.locator("#listed", has_text=f"{number} runs").wait_for()
        taken = perf_counter() - begun
        browser.close()
    return 1000 * taken


def keep(run: RunFolder) -> None:
    """Keep the row of a copy of a finished run: that of the original does not count for it."""
    states, indexed = file_states(run), IndexedRun("", run, files_of)
    indexed.read()
    keep_row(run, indexed.row, states)


def add_steps(run: RunFolder, number: int) -> None:
    """Add iterations with a request each to a run written by hand."""
    written = run.path / "length"
    begin = int(written.read_text()) if written.exists() else 0
    steps = [step(begin + each, spent=1e-6 * (begin + each)) for each in range(1, number + 1)]
    write_steps(run, steps, calls=[call(each["iteration"]) for each in steps], candidates=[])
    written.write_text(str(begin + number))


def main() -> None:
    """Print the times of both revisions and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", default="50,500", help="numbers of runs, separated by commas")
    parser.add_argument("--long", type=int, default=10_000, help="iterations of the long run")
    parser.add_argument("--against", default="origin/main", help="revision to compare with")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--browser", action="store_true", help="also time the page in Chromium")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        one = folder / "one" / "run"
        discover("circle_packing", "offline", budget=1.0, max_iterations=ITERATIONS, out=one)
        numbers = [int(each) for each in options.runs.split(",")]
        for number in numbers:
            for place in range(number):
                keep(RunFolder(shutil.copytree(one, folder / str(number) / f"{place:04}")))
            left_out = shutil.ignore_patterns("row.json")
            shutil.copytree(folder / str(number), folder / f"{number}-unkept", ignore=left_out)
        for length in (SHORT, options.long):
            run = settings(folder / f"length-{length}" / "run", max_iterations=10**6, budget=10.0)
            add_steps(run, length)
        other = folder / "other"
        git = ["git", "-C", ROOT, "worktree"]
        subprocess.run([*git, "add", "-f", "--detach", other, options.against], check=True)
        try:
            names = {"this": ROOT, options.against: other}
            links = {name: folder / f"links-{place}" for place, name in enumerate(names)}
            for name, checkout in names.items():
                links[name].mkdir()
                (links[name] / "costada").symlink_to(checkout)
            taken: dict[str, dict[str, list[float]]] = {}
            for _ in range(options.repeats):
                for name, path in links.items():
                    for words, milliseconds in measure(path, folder, numbers, options):
                        taken.setdefault(words, {}).setdefault(name, []).append(milliseconds)
        finally:
            subprocess.run([*git, "remove", "--force", other], check=True)
    this, other_name = links
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':44}{'this':>10}{other_name:>16}{'ratio':>8}")
    for words, found in taken.items():
        ours, theirs = median(found[this]), median(found[other_name])
        print(f"{words:44}{ours:10.1f}{theirs:16.1f}{ours / theirs:8.2f}")


def measure(
    links: Path, folder: Path, numbers: list[int], options: argparse.Namespace
) -> Iterator[tuple[str, float]]:
    """What one revision takes: in words, and in milliseconds."""
    one = folder / "one"
    for number in numbers:
        first, again = time_listing(links, one, folder / str(number))
        yield f"CPU ms, first listing of {number} runs", first
        yield f"CPU ms, refresh of {number} runs", again
        first, _ = time_listing(links, one, folder / f"{number}-unkept")
        yield f"CPU ms, first listing of {number} without row.json", first
        if options.browser:
            shown = time_page(links, folder / str(number), number)
            yield f"ms until a page shows {number} runs", shown
    for length in (SHORT, options.long):
        new = time_new_step(links, one, folder / f"length-{length}")
        yield f"CPU ms, new step of a run of {length} steps", new


if __name__ == "__main__":
    main()
