"""Kill runs hundreds of times and compare their ledgers with the provider's bill.

python tests/system/soak.py [--runs 10] [--kills 30] [--power]
"""

import argparse
import sys
import tempfile
from pathlib import Path
from random import Random

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import power_loss  # noqa: E402
from crash_runs import check_against_bill, kill_often, record_of, run_to_end, serve  # noqa: E402

HEAD = " run  kills  alive  calls  lost  billed  same as uninterrupted"
POWER_HEAD = " run  kills  alive  calls  lost  billed  dollars   reported"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--kills", type=int, default=30, help="of each run")
    parser.add_argument(
        "--power", action="store_true", help="the machine dies, and its clock is wrong each time"
    )
    given = parser.parse_args()
    print(POWER_HEAD if given.power else HEAD)
    line = power_line_of if given.power else line_of
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.runs):
            print(line(Path(folder), seed, given.kills), flush=True)


def line_of(folder: Path, seed: int, kills: int) -> str:
    """Return what came of one run; raises `AssertionError` where the ledger is wrong."""
    options: dict[str, object] = {"lost_calls": "ignore", "budget": 0.4, "seed": seed}
    server, provider = serve()
    with server:
        run_to_end(folder / f"whole-{seed}", server.url, options)
        provider.forget()
        hits = kill_often(folder / f"killed-{seed}", server, provider, seed, kills, options)
    whole, killed = (record_of(folder / f"{kind}-{seed}") for kind in ("whole", "killed"))
    check_against_bill(killed, provider)
    is_same = (killed.steps, killed.archives) == (whole.steps, whole.archives)
    counts = f"{len(killed.done):>6} {len(killed.lost):>5} {provider.billed.total():>7}"
    return f"{seed:>4} {kills:>6} {hits:>6} {counts}  {'yes' if is_same else 'NO'}"


def power_line_of(folder: Path, seed: int, kills: int) -> str:
    """Return what came of one run whose machine loses its power; raises as `line_of` does."""
    options: dict[str, object] = {"budget": 0.4, "seed": seed}
    clocks = [Random(f"{seed} {kill}").randint(-600, 600) for kill in range(kills)]
    server, provider = serve()
    with server:
        run = folder / f"run-{seed}"
        hits = power_loss.kill_often(run, server.url, provider, clocks, options, folder / f"{seed}")
        run_to_end(run, server.url, options)
    record = record_of(run)
    check_against_bill(record, provider)
    assert record.spent >= provider.bill
    counts = f"{len(record.done):>6} {len(record.lost):>5} {provider.billed.total():>7}"
    return f"{seed:>4} {kills:>6} {hits:>6} {counts}  {provider.bill:.6f}  {record.spent:.6f}"


if __name__ == "__main__":
    main()
