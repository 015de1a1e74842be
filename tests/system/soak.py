"""Kill runs hundreds of times and compare their ledgers with the provider's bill.

python tests/system/soak.py [--runs 10] [--kills 30] [--parallel K] [--gateway] [--power | --roles]

With `--parallel`, calls land as they are answered, which is never the same twice. `--order launch`
lands them as they were launched, so that a killed run must end as an uninterrupted one. With
`--roles`, evaluators, programs under test and the generator's command ask models too.
"""

import argparse
import os
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from random import Random

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import power_loss  # noqa: E402
from billing_server import BillingServer  # noqa: E402
from crash_runs import (  # noqa: E402
    LATENCY,
    Provider,
    Record,
    check_against_bill,
    kill_often,
    record_of,
    run_to_end,
    serve,
)
from metered_runs import EveryProvider, compare, metered_folder, run_metered  # noqa: E402

from costada.plugins.gateway.gateway_of_run import stop_gateways  # noqa: E402
from costada.runs.folder import RunFolder  # noqa: E402

HEAD = " run  kills  alive  calls  lost  billed  same as uninterrupted"
MONEY_HEAD = " run  kills  alive  calls  lost  billed  dollars   reported"
ROLES_HEAD = MONEY_HEAD + "  ledger - bill  repeated  steps off by  roles"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--kills", type=int, default=30, help="of each run")
    parser.add_argument(
        "--power", action="store_true", help="the machine dies, and its clock is wrong each time"
    )
    parser.add_argument("--parallel", type=int, default=1, help="calls in flight", metavar="K")
    parser.add_argument("--order", choices=("landing", "launch"), default="landing")
    parser.add_argument("--gateway", action="store_true", help="calls go through the gateway")
    parser.add_argument("--roles", action="store_true", help="everyone asks models")
    parser.add_argument("--policy", choices=("crossing", "hard"), help="of the budget")
    given = parser.parse_args()
    is_repeatable = not given.power and (given.parallel == 1 or given.order == "launch")
    options: dict[str, object] = {"budget": 0.4, "gateway": given.gateway}
    if given.parallel > 1:
        options |= {"budget": 2.0, "parallel": given.parallel, "order": given.order}
    if given.policy is not None:
        options["budget_policy"] = given.policy
    head, line = (HEAD, line_of) if is_repeatable else (MONEY_HEAD, money_line_of)
    if given.power:
        line = power_line_of
    elif given.roles:
        head, line = ROLES_HEAD, roles_line_of
    print(head)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.runs):
            print(line(Path(folder), seed, given.kills, {**options, "seed": seed}), flush=True)


def line_of(folder: Path, seed: int, kills: int, given: dict[str, object]) -> str:
    """Return what came of one run; raises `AssertionError` where the ledger is wrong."""
    options = {**given, "lost_calls": "ignore"}
    server, provider = serve()
    with server:
        run_to_end(folder / f"whole-{seed}", server.url, options)
        provider.forget()
        hits = kill_often(folder / f"killed-{seed}", server, provider, seed, kills, options)
    for kind in ("whole", "killed"):
        stop_gateways(RunFolder(folder / f"{kind}-{seed}"))
    whole, killed = (record_of(folder / f"{kind}-{seed}") for kind in ("whole", "killed"))
    check_against_bill(killed, provider)
    assert killed.bill_at_most >= provider.bill
    if options["gateway"]:
        assert killed.spent == provider.bill
    is_same = (killed.steps, killed.archives) == (whole.steps, whole.archives)
    counts = f"{len(killed.done):>6} {len(killed.lost):>5} {provider.billed.total():>7}"
    return f"{seed:>4} {kills:>6} {hits:>6} {counts}  {'yes' if is_same else 'NO'}"


def money_line_of(folder: Path, seed: int, kills: int, options: dict[str, object]) -> str:
    """Return what came of one run whose order is never the same; raises as `line_of` does."""
    server, provider = serve()
    run = folder / f"run-{seed}"
    with server:
        hits = kill_often(run, server, provider, seed, kills, options)
    stop_gateways(RunFolder(run))
    record = record_of(run)
    check_against_bill(record, provider)
    assert record.spent == record.bill_at_most >= provider.bill
    if options["gateway"]:
        assert record.spent == provider.bill
    return money_line(seed, kills, hits, record, provider)


def roles_line_of(folder: Path, seed: int, kills: int, options: dict[str, object]) -> str:
    """Return what came of one run in which everyone asks models; raises as `line_of` does."""
    os.environ["OPENAI_API_KEY"] = "sk-real-key-of-the-user"
    # More than is spent before the last kill, and what a hard budget leaves for an evaluation.
    budget = Decimal(kills * (4 + int(str(options.get("parallel", 1))))) * 3 / 1000
    budget += Decimal("0.06")
    options = {**options, "budget": float(budget)}
    provider, parent = EveryProvider(LATENCY), folder / f"roles-{seed}"
    run = parent / "run"
    parent.mkdir()
    with BillingServer(default=provider.answer) as server:
        metered_folder(parent / "metered", server.url)
        hits = kill_often(run, server, provider, seed, kills, options, run_metered)
    stop_gateways(RunFolder(run))
    found = compare(run, provider)
    assert found.step_gap == found.num_repeated == 0
    assert found.known <= found.bill <= found.spent
    if options["gateway"]:
        assert found.spent == found.bill
    if options.get("budget_policy") == "hard":
        assert found.spent <= budget
    counts = f"{found.num_done:>6} {found.num_lost:>5} {found.num_billed:>7}"
    money = f"{found.bill:.6f}  {found.spent:.6f}  {found.spent - found.bill:>13.6f}"
    exact = f"{found.num_repeated:>8}  {found.step_gap:>12.6f}  {' '.join(sorted(found.roles))}"
    return f"{seed:>4} {kills:>6} {hits:>6} {counts}  {money}  {exact}"


def power_line_of(folder: Path, seed: int, kills: int, options: dict[str, object]) -> str:
    """Return what came of one run whose machine loses its power; raises as `line_of` does."""
    clocks = [Random(f"{seed} {kill}").randint(-600, 600) for kill in range(kills)]
    server, provider = serve()
    with server:
        run = folder / f"run-{seed}"
        hits = power_loss.kill_often(run, server.url, provider, clocks, options, folder / f"{seed}")
        run_to_end(run, server.url, options)
    record = record_of(run)
    check_against_bill(record, provider)
    assert record.spent >= provider.bill
    return money_line(seed, kills, hits, record, provider)


def money_line(seed: int, kills: int, hits: int, record: Record, provider: Provider) -> str:
    """A line of the table with dollars."""
    counts = f"{len(record.done):>6} {len(record.lost):>5} {provider.billed.total():>7}"
    return f"{seed:>4} {kills:>6} {hits:>6} {counts}  {provider.bill:.6f}  {record.spent:.6f}"


if __name__ == "__main__":
    main()
