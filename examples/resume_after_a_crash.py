"""Kill a run with SIGKILL in the middle, go on with it, and find that nothing was paid twice.

python examples/resume_after_a_crash.py
"""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from costada import Discovery, OfflineModel, RunStore, discover

BUDGET, SEED = 0.08, 2
SEARCH = f"""
from costada import OfflineModel, discover

settings = dict(budget={BUDGET}, seed={SEED}, lost_calls="ignore")
discover("circle_packing", OfflineModel(), **settings, out="killed")
"""


def steps_in(folder: Path) -> int:
    """Return how many steps a run has finished."""
    rows = folder / "steps.jsonl"
    return len(rows.read_text().splitlines()) if rows.exists() else 0


def kill_a_run(place: Path) -> None:
    """Start a run in a process of its own and kill it after two steps."""
    process = subprocess.Popen([sys.executable, "-c", SEARCH], cwd=place)
    while steps_in(place / "killed") < 2 and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    ended = signal.Signals(-process.wait()).name
    print(f"{ended} after {steps_in(place / 'killed')} steps")


def calls_of(folder: Path) -> list[str]:
    """Return every completed call on the ledger of a run: where, for what, and its price."""
    with RunStore(folder / "run.sqlite", is_read_only=True) as store:
        (run_id,) = store.run_ids()
        calls = store.ledger.calls(run_id)
        return [
            f"{call.iteration} {call.role} {call.attempt} ${call.cost}"
            for call in calls
            if call.status == "done"
        ]


def search(folder: Path, *, resume: bool = False) -> Discovery:
    """Return what the run finds.

    A call that was in flight at the kill may have been billed. Nobody bills the offline model, so
    that `lost_calls` may leave it out here; by default it counts at the most it can have cost.
    """
    return discover(
        "circle_packing",
        OfflineModel(),
        budget=BUDGET,
        seed=SEED,
        lost_calls="ignore",
        out=folder,
        resume=resume,
    )


with tempfile.TemporaryDirectory() as name:
    place = Path(name)
    kill_a_run(place)
    resumed = search(place / "killed", resume=True)
    print(f"resumed:     {resumed.iterations} steps, ${resumed.spent}")
    undisturbed = search(place / "undisturbed")
    print(f"undisturbed: {undisturbed.iterations} steps, ${undisturbed.spent}")
    print("same best program:", resumed.best_program == undisturbed.best_program)
    calls = calls_of(place / "killed")
    print(f"same {len(calls)} calls, each once:", calls == calls_of(place / "undisturbed"))
