"""How fast the page of a long run opens and pans, and what an iteration adds to it.

A run of many candidates is written with the classes of a run file. Its page is written by this
checkout and by another revision, and opened in Chromium from the file. Printed are the
milliseconds until the page is drawn, with the CPU time of its main thread, and the bytes that an
iteration adds to the page beyond its texts. Of this checkout alone: the frames per second while the
tree of candidates is panned, beside those of a page that does nothing.

    python bench/explorer.py [--candidates 5000] [--against origin/main] [--repeats 3]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from page_runs import MENU, call, candidate, router_rows, settings, step, write_steps

from costada.controller.router import start_router
from costada.controller.router_rules import DEFAULT_ROUTER
from costada.values.candidate import Program

ROOT = Path(__file__).parents[1]
LINES = 120
FAILING = 0.2
SEED_SCORE = 0.1
BLOCK = re.compile(rb'<script type="application/octet-stream".*?</script>\n', re.DOTALL)

WRITE = """
import sys
sys.meta_path = [each for each in sys.meta_path if not getattr(each, "__module__", "").startswith("__editable__")]
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from costada.reports.page.page import write_page
from costada.runs.folder import RunFolder
write_page(RunFolder(Path(sys.argv[2])), Path(sys.argv[3]))
"""  # noqa: E501

DRAWN = """() => new Promise((done) => {
  requestAnimationFrame(() => setTimeout(() => done(performance.now())));
})"""
IDLE = """() => new Promise((done) => {
  const begun = performance.now();
  let frames = 0;
  const turn = (now) => {
    frames += 1;
    if (now - begun < 1000) requestAnimationFrame(turn);
    else done(1000 * frames / (now - begun));
  };
  requestAnimationFrame(turn);
})"""
FRAMES = """(seconds) => new Promise((done) => {
  const canvas = document.querySelector("#tree-chart canvas");
  const box = canvas.getBoundingClientRect();
  const at = (x, y) => ({ clientX: box.left + x, clientY: box.top + y, bubbles: true, pointerId: 1, button: 0, buttons: 1 });
  const middle = [box.width / 2, box.height / 2];
  const send = (kind, x, y) => canvas.dispatchEvent(new PointerEvent(kind, at(x, y)));
  canvas.setPointerCapture = () => {};
  send("pointerdown", ...middle);
  const begun = performance.now();
  const gaps = [];
  let before = begun;
  const turn = (now) => {
    gaps.push(now - before);
    before = now;
    const angle = (now - begun) / 400;
    send("pointermove", middle[0] + 200 * Math.sin(angle), middle[1] + 120 * Math.sin(1.7 * angle));
    if (now - begun < 1000 * seconds) requestAnimationFrame(turn);
    else {
      send("pointerup", ...middle);
      gaps.sort((one, other) => one - other);
      done({ frames: 1000 * gaps.length / (now - begun), slowest: gaps[Math.floor(0.95 * gaps.length)] });
    }
  };
  requestAnimationFrame(turn);
})"""  # noqa: E501


def write_run(folder: Path, candidates: int) -> None:
    """A run of three models on three frontiers; a fifth of its candidates fail."""
    rng, names = random.Random(3), list(MENU)
    found = [candidate(0, score=SEED_SCORE, objective=SEED_SCORE)]
    frontiers: list[list[tuple[float, str, int]]] = [[(SEED_SCORE, "0.1", 0)] for _ in range(3)]
    router = router_rows(start_router(DEFAULT_ROUTER, names))
    steps, calls, best, spent = list[dict[str, Any]](), [], SEED_SCORE, 0.0
    for number in range(1, candidates + 1):
        place = rng.randrange(3)
        known = frontiers[place]
        above, parent, depth = max(rng.choices(known, k=4))
        is_valid = rng.random() > FAILING
        score = above + (1 - above) * (rng.random() - 0.8) * 0.08 if is_valid else 0.0
        name = rng.choice(names)
        gain, best, spent = max(0.0, score - best), max(best, score), spent + MENU[name]
        if is_valid:
            known.append((score, f"{number}.1", depth + 1))
        text = "\n".join(f"x{line} = {rng.random()}" for line in range(LINES))
        own = {"score": score, "objective": score if is_valid else None, "parent_id": parent}
        own |= {"is_valid": is_valid, "error": None if is_valid else "ValueError: no packing"}
        program = Program.of(f"def value():\n    return {score}\n{text}\n")
        found.append(candidate(number, **own, program=program, generation=depth + 1))
        facts = {"score": score, "objective": own["objective"], "best_score": best}
        facts |= {"best_objective": best, "global_gain": gain, "utility": gain, "spent": spent}
        facts |= {"remaining_ratio": 0.5, "failure": own["error"], "models": [name]}
        facts |= {"frontier": place + 1, "step_cost": MENU[name], "router": router}
        steps.append(step(number, **facts))
        calls.append(call(number, entry=name, model=name, answer=program.text))
    run = settings(folder, max_iterations=candidates, budget=spent * 1.2)
    write_steps(run, steps, calls=calls, candidates=found)


def write_page_of(checkout: Path, run: Path, out: Path, folder: Path) -> None:
    """The page of a run as a checkout writes it."""
    folder.mkdir()
    (folder / "costada").symlink_to(checkout)
    subprocess.run([sys.executable, "-c", WRITE, folder, run, out], check=True)


def opened(browser: Browser, page: Path) -> tuple[float, float, Page]:
    """Milliseconds until a page is drawn, those of its main thread's CPU, and its tab."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    tab.goto(page.as_uri())
    milliseconds = tab.evaluate(DRAWN)
    metrics = session.send("Performance.getMetrics")["metrics"]
    [seconds] = [each["value"] for each in metrics if each["name"] == "TaskDuration"]
    return milliseconds, 1000 * seconds, tab


def per_iteration(page: Path, candidates: int) -> float:
    """Bytes of a page without the blocks of its texts, for each candidate."""
    return len(BLOCK.sub(b"", page.read_bytes())) / candidates


def main() -> None:
    """Print the times and sizes of both pages, and the frames of this one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--candidates", type=int, default=5000)
    parser.add_argument("--against", default="origin/main", help="revision to compare with")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder of the run and its pages")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        folder = (options.keep or Path(temporary)).resolve()
        if not (folder / "run").exists():
            write_run(folder / "run", options.candidates)
        other = Path(temporary) / "other"
        git = ["git", "-C", ROOT, "worktree"]
        subprocess.run([*git, "add", "-f", "--detach", other, options.against], check=True)
        try:
            pages = {"this": folder / "this.html", options.against: folder / "other.html"}
            for name, checkout in zip(pages, (ROOT, other), strict=True):
                links = Path(temporary) / f"links-{len(name)}"
                write_page_of(checkout, folder / "run", pages[name], links)
        finally:
            subprocess.run([*git, "remove", "--force", other], check=True)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in pages}
        rates = []
        for _ in range(options.repeats):
            for name, page in pages.items():
                *taken, tab = opened(browser, page)
                times[name].append(tuple(taken))
                if name == "this":
                    tab.locator("#tree-chart").scroll_into_view_if_needed()
                    for place in ("By iteration", "By descent"):
                        tab.click(f"#tree-places >> text={place}")
                        rates.append((place, tab.evaluate(FRAMES, 3), tab.evaluate(IDLE)))
                tab.close()
        browser.close()
        sizes = {name: per_iteration(page, options.candidates) for name, page in pages.items()}
    print(f"{options.candidates} candidates, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    this, other_name = pages
    spans = [{name: [each[at] for each in found] for name, found in times.items()} for at in (0, 1)]
    print(f"{'':24}{'this':>10}{other_name:>16}{'ratio':>8}")
    middle = [{name: median(found) for name, found in each.items()} for each in spans]
    for words, values in zip(
        ("ms to open", "CPU ms to open", "bytes an iteration"), [*middle, sizes], strict=True
    ):
        one, two = values[this], values[other_name]
        print(f"{words:24}{one:10.0f}{two:16.0f}{one / two:8.2f}")
    for place, each, idle in rates:
        print(
            f"{place}: {each['frames']:.0f} frames a second while panning (95th percentile"
            f" {each['slowest']:.0f} ms), {idle:.0f} of a page at rest"
        )


if __name__ == "__main__":
    main()
