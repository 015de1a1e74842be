"""Kill a run with SIGKILL, resume it, and check that nothing was paid twice.

python examples/resume_after_a_crash.py
"""

import signal
import tempfile
import time
from multiprocessing import Process
from pathlib import Path

from costada import Discovery, OfflineModel, RunStore, discover


def search(folder: Path, *, resume: bool = False) -> Discovery:
    """Run or resume a search.

    A call in flight at the kill may have been billed, and by default counts with the most it can
    have cost. The offline model is never billed, so `lost_calls="ignore"` is safe here.
    """
    return discover(
        "circle_packing",
        OfflineModel(),
        budget=0.08,
        seed=2,
        lost_calls="ignore",
        out=folder,
        resume=resume,
    )


def kill_a_run(folder: Path) -> None:
    """Start a run in another process and kill it after two steps."""
    process = Process(target=search, args=(folder,))
    process.start()
    while steps_in(folder) < 2 and process.is_alive():
        time.sleep(0.01)
    process.kill()
    process.join()
    print(f"{signal.Signals(-process.exitcode).name} after {steps_in(folder)} steps")


def steps_in(folder: Path) -> int:
    """Number of steps that a run has finished."""
    rows = folder / "steps.jsonl"
    return len(rows.read_text().splitlines()) if rows.exists() else 0


def calls_of(folder: Path) -> list[str]:
    """The completed calls on the ledger of a run: step, role, attempt and cost."""
    with RunStore(folder / "run.sqlite", is_read_only=True) as store:
        (run_id,) = store.run_ids()
        calls = store.call_log.calls(run_id)
        return [
            f"{call.ticket} {call.role} {call.attempt} ${call.cost}"
            for call in calls
            if call.status == "done"
        ]


def main() -> None:
    """Compare a run that was killed and resumed with an uninterrupted one."""
    with tempfile.TemporaryDirectory() as name:
        killed, undisturbed = Path(name, "killed"), Path(name, "undisturbed")
        kill_a_run(killed)
        resumed, whole = search(killed, resume=True), search(undisturbed)
        print(f"resumed:     {resumed.iterations} steps, ${resumed.spent}")
        print(f"undisturbed: {whole.iterations} steps, ${whole.spent}")
        print("same best program:", resumed.best_program == whole.best_program)
        calls = calls_of(killed)
        print(f"same {len(calls)} calls, each once:", calls == calls_of(undisturbed))


if __name__ == "__main__":
    main()
