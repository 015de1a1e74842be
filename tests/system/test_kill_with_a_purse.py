"""A run that draws from a purse in a file is killed again and again, and the purse stays true."""

from decimal import Decimal
from pathlib import Path
from random import Random

from crash_runs import EVALUATION, LATENCY, PROCESSES, go_on, record_of, serve

from costada.store.purse import Purse

NUM_KILLS = 6


def go_on_with_purse(folder: Path, purse: Path, url: str) -> None:
    with Purse(0.25, path=purse, policy="hard") as paying:
        go_on(folder, url, {"purse": paying, "budget_policy": "hard", "budget": 0.1})


def test_the_purse_holds_what_the_run_holds_however_often_it_is_killed(tmp_path):
    rng, num_hits = Random(5), 0
    folder, file = tmp_path / "run", tmp_path / "purse.sqlite"
    server, provider = serve()
    with server:
        for kill in range(NUM_KILLS + 1):
            process = PROCESSES.Process(target=go_on_with_purse, args=(folder, file, server.url))
            num_calls = provider.billed.total() + rng.randint(1, 3)
            process.start()
            if kill < NUM_KILLS:
                while process.is_alive() and provider.billed.total() < num_calls:
                    process.join(0.001)
                process.join(rng.uniform(0, 2 * (LATENCY + EVALUATION)))
                num_hits += process.is_alive()
                process.kill()
            process.join()
    assert process.exitcode == 0
    assert num_hits >= NUM_KILLS // 2
    record = record_of(folder)
    with Purse(0.25, path=file, policy="hard") as purse:
        (account,) = purse.accounts()[1:]
        assert account.is_closed
        assert purse.spent == account.spent == record.spent
        assert purse.spent == sum(call.cost + call.bound for call in record.calls)
        assert provider.bill <= purse.spent <= Decimal("0.1")
        assert purse.remaining == Decimal("0.25") - purse.spent
