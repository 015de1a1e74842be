"""Runs that are killed and resumed: a table of scenarios, and kills of other kinds."""

import json
import os
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import Any

import power_loss
import pytest
from billing_server import BillingServer, Reply
from crash_runs import (
    BUDGET,
    Provider,
    Record,
    check_against_bill,
    cost_of,
    kill_often,
    record_of,
    run_to_end,
    run_with,
    serve,
)
from file_programs import hashed_files
from generator_commands import asking
from killed_runs import (
    COMPUTE_RATE,
    DOLLARS,
    HELD,
    IDEAS,
    LONGEST,
    PROGRAMS,
    MenuProvider,
    ToolProvider,
    UncountedProvider,
    last_row,
    put_all,
    put_inputs,
    run_files,
    run_menu,
    run_noisy,
    run_repository,
    run_timed,
    run_with_another_number,
    run_with_purse,
)
from waiting import within
from warm import PROCESSES

from costada.plugins.gateway.gateway_of_run import gateway_journal, stop_gateways
from costada.plugins.gateway.gateway_protocol import address_file, is_held
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.runs.resume import LOST_STEPS
from costada.store.purse import Purse
from costada.store.rows import CallRow, CallStatus
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process
NUM_KILLS = 3
Run = Callable[[Path, str, dict[str, object]], None]


@dataclass(frozen=True)
class Killed:
    """A run that was killed and resumed to its end, and what its provider billed."""

    folder: Path
    record: Record
    provider: Provider
    whole: Path | None
    bill_of_whole: Decimal


Check = Callable[[Killed], None]


def ends_as_an_uninterrupted_one(run: Killed) -> None:
    assert run.whole is not None
    assert run.record.result == record_of(run.whole).result


def makes_calls_of_every_kind(run: Killed) -> None:
    assert {call.role for call in run.record.calls} == {"generation", "retry", "guide"}


def is_on_the_bill(run: Killed) -> None:
    """Every answered call is on the ledger once, at what it cost; lost ones cost nothing."""
    check_against_bill(run.record, run.provider)
    assert run.record.spent == sum(call.cost for call in run.record.done)


def is_at_least_the_bill(run: Killed) -> None:
    """Lost calls count at their bound, so no bill exceeds the reported dollars."""
    check_against_bill(run.record, run.provider)
    assert run.record.spent == run.record.bill_at_most >= run.provider.bill


def has_both_arms(run: Killed) -> None:
    """The toss of each step is in its row, so that a run which repeats its rows repeats these."""
    rows = [json.loads(line) for line in run.record.steps.splitlines()]
    assert len({row["arm"] for row in rows} - {None}) == 2


def lost_calls(run: Killed) -> None:
    assert run.record.lost


def crosses_the_budget_last(run: Killed) -> None:
    rows = [json.loads(line) for line in run.record.steps.splitlines()]
    assert all(row["spent"] < BUDGET for row in rows[:-1])


def is_the_bill(run: Killed) -> None:
    """With a gateway no answer is lost, nor asked for twice."""
    record = run.record
    assert record.calls
    assert record.done == list(record.calls)
    assert sum(call.cost for call in record.calls) == record.spent == run.provider.bill
    assert not is_held(address_file(gateway_journal(RunFolder(run.folder))))


def holds_its_budget(run: Killed) -> None:
    assert run.provider.bill <= Decimal(str(BUDGET))


def is_what_the_purse_holds(run: Killed) -> None:
    with Purse(0.25, path=run.folder.parent / "purse.sqlite", policy="hard") as purse:
        (account,) = purse.accounts()[1:]
        assert account.is_closed
        assert purse.spent == account.spent == run.record.spent == run.record.bill_at_most
        assert run.provider.bill <= purse.spent <= Decimal("0.1")
        assert purse.remaining == Decimal("0.25") - purse.spent


def repeats_no_call(run: Killed) -> None:
    keys = Counter((call.ticket, call.role, call.attempt) for call in run.record.done)
    assert max(keys.values()) == 1
    assert run.record.spent == run.bill_of_whole == sum(call.cost for call in run.record.done)
    repeated = run.provider.billed.total() - len(run.record.done)
    assert 0 <= repeated <= len(run.record.lost)


def pays_no_request_of_a_command_twice(run: Killed) -> None:
    """Each request that was answered is on the ledger at what it cost, and never sent again."""
    assert run.whole is not None
    done, lost, whole = (
        Counter(_last_message(call) for call in calls)
        for calls in (run.record.done, run.record.lost, record_of(run.whole).done)
    )
    assert done == whole
    for prompt, times in run.provider.billed.items():
        assert done[prompt] <= times <= done[prompt] + lost[prompt]
    assert [call.cost for call in run.record.done] == [
        cost_of(_last_message(call)) for call in run.record.done
    ]
    assert run.record.spent == run.bill_of_whole
    attempts = Counter(
        (call.ticket, call.attempt) for call in run.record.done if call.role != "guide"
    )
    assert {*attempts.values()} == {2}


def _last_message(call: CallRow) -> str:
    """What a provider bills; the journal has the whole body of a request that a command sent."""
    if call.role == "guide":
        return call.prompt
    return str(json.loads(call.prompt)["messages"][-1]["content"])


def has_the_same_conversations(run: Killed) -> None:
    assert run.whole is not None
    assert any(call.attempt > 1 for call in run.record.done if call.role == "generation")
    prompts = [[call.prompt for call in each.done] for each in (run.record, record_of(run.whole))]
    assert prompts[0] == prompts[1]


def keeps_its_files(run: Killed) -> None:
    assert (run.folder / "best_program" / "pkg" / "value.py").is_file()
    assert not list(run.folder.glob(".best_program*"))


def keeps_its_front(run: Killed) -> None:
    assert run.whole is not None
    front = front_of(run.folder)
    assert front == front_of(run.whole)
    files = pareto_files(run.folder)
    assert files == pareto_files(run.whole)
    names = {f"{name}.py" for name, _, _ in front}
    assert set(files) == {*names, "front.json"}
    assert len(names) > 1


def front_of(folder: Path) -> list[tuple[object, ...]]:
    with RunStore(folder / "run.sqlite", is_read_only=True) as store:
        front = store.candidates.front(store.run_ids()[-1], 10**9)
    return [(each.id, each.measurements, each.confirmation) for each in front]


def pareto_files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((folder / "pareto").iterdir())}


def disables_the_dead_model(run: Killed) -> None:
    router: Any = last_row(run.record.steps)["router"]
    assert [row["name"] for row in router if row["is_disabled"]] == ["dead"]


def has_one_uncounted_answer(run: Killed) -> None:
    assert run.whole is not None
    for record in (run.record, record_of(run.whole, ())):
        uncounted = [call for call in record.calls if call.status is CallStatus.UNCOUNTED]
        assert [call.entry for call in uncounted] == ["dead"]


def told_the_router_what_the_ledger_says(run: Killed) -> None:
    dollars: dict[str, Decimal] = dict.fromkeys(("dead", *DOLLARS), Decimal(0))
    for call in run.record.calls:
        if call.role != "guide":
            dollars[call.entry] += call.cost + call.bound
    assert run.record.lost
    assert run.record.spent == run.record.bill_at_most >= run.provider.bill
    router: Any = last_row(run.record.steps)["router"]
    told = {row["name"]: row["dollars"] for row in router}
    assert told == {name: float(cost) for name, cost in dollars.items()}


def took_each_input_once(run: Killed) -> None:
    """Each input was taken by one step, which alone asked for it, and paid as it says.

    An idea was sent in the requests of its own step only, and a program in none.
    """
    rows = [json.loads(line) for line in run.record.steps.splitlines()]
    steered = [row for row in rows if "steered" in row]
    by_number = {row["steered"]["number"]: row for row in steered}
    with closing(sqlite3.connect(run.folder / "run.sqlite")) as connection:
        taken = dict(connection.execute("SELECT number, ticket FROM costada_input"))
    assert {number: row["ticket"] for number, row in by_number.items()} == taken
    assert len(set(taken.values())) == len(IDEAS) + len(PROGRAMS)
    assert len(steered) == len(by_number)
    for number, row in by_number.items():
        calls = [call for call in run.record.calls if call.ticket == row["ticket"]]
        if row["steered"]["kind"] == "program":
            assert (calls, row["step_cost"], row["attempts"]) == ([], 0.0, 0)
            continue
        idea = f"Idea: {IDEAS[number - 1]}\n"
        asked = [call for call in run.record.calls if idea in call.prompt]
        assert asked == [call for call in calls if call.role != "guide"]
        assert asked


def pays_for_the_time_of_evaluations(run: Killed) -> None:
    """Each evaluation that began is on the ledger: at its seconds, or at its bound if it was lost.

    The evaluator's own clock says how long those took that ended.
    """
    search = [call for call in run.record.calls if call.role != "compute"]
    own = [call for call in run.record.calls if call.role == "compute" and call.ticket]
    assert sum(call.cost + call.bound for call in search) >= run.provider.bill
    assert run.record.spent == run.record.bill_at_most
    lines = run.folder.with_name(f"{run.folder.name}.evaluations").read_text().split()
    num_begun = lines.count("begun")
    taken = sum((Decimal(line) for line in lines if line != "begun"), Decimal(0))
    lost = [call for call in own if call.status is CallStatus.LOST]
    assert {call.status for call in own} <= {CallStatus.DONE, CallStatus.LOST}
    assert len(own) - len(lost) <= num_begun <= len(own)
    bound = COMPUTE_RATE * Decimal(str(LONGEST))
    assert {(call.cost, call.bound) for call in lost} <= {(Decimal(0), bound)}
    assert sum(call.cost + call.bound for call in own) >= COMPUTE_RATE * taken
    done = [call for call in search if call.status is CallStatus.DONE]
    assert max(Counter((call.ticket, call.role, call.attempt) for call in done).values()) == 1
    for row in map(json.loads, run.record.steps.splitlines()):
        parts = row.get("dollars_by_role", {"": row["step_cost"]})
        assert sum(parts.values()) == pytest.approx(row["step_cost"], abs=1e-12)


def spends_no_more_than_its_budget(run: Killed) -> None:
    assert run.record.bill_at_most <= Decimal(str(TIMED["budget"]))


@dataclass(frozen=True)
class Scenario:
    """A run that is killed at random instants, and what must hold in the end.

    Attributes:
        options: Of the run: K is `parallel`, 1 if it is not given.
        holds: What must hold.
        run: Starts or resumes the run in a folder, to its end.
        whole: Options of the uninterrupted run to compare with; `None`: those of the run.
        provider: Who answers and bills.
        draw: Which instants.
        num_kills: How often; at least half of them must meet the run alive.
        prepare: Starts both runs, before any kill.
        frontiers: Those whose archives are compared.
    """

    options: Mapping[str, object]
    holds: tuple[Check, ...]
    run: Run = run_to_end
    whole: Mapping[str, object] | None = None
    provider: Callable[[], Provider] = Provider
    draw: int = 1
    num_kills: int = NUM_KILLS
    prepare: Run | None = None
    frontiers: tuple[int, ...] = (0, 1)


IGNORE: Mapping[str, object] = {"lost_calls": "ignore"}
ORDERED: Mapping[str, object] = {**IGNORE, "order": "launch"}
"""Lands calls as they were launched, so that two runs can be compared."""

EIGHT: Mapping[str, object] = {"parallel": 8, "budget": 0.2, "gateway": False}
FOUR: Mapping[str, object] = {"parallel": 4, "gateway": False}
SAME = ends_as_an_uninterrupted_one
TIMED: Mapping[str, object] = {"budget": 0.15, "gateway": False}
OF_A_MENU = (SAME, repeats_no_call, disables_the_dead_model)


def of_files() -> Provider:
    return Provider(hashed_files)


SCENARIOS = {
    "one in flight": Scenario(IGNORE, (SAME, is_on_the_bill, makes_calls_of_every_kind), whole={}),
    "lost calls count": Scenario(
        {}, (is_at_least_the_bill, lost_calls, crosses_the_budget_last), draw=4
    ),
    "purse": Scenario(
        {"budget_policy": "hard", "budget": 0.1},
        (is_what_the_purse_holds,),
        run_with_purse,
        draw=5,
    ),
    "gateway, learned guides": Scenario(
        {"gateway": True, "guides": "learned"}, (SAME, is_the_bill), whole={"guides": "learned"}
    ),
    "gateway, hard budget, four in flight": Scenario(
        {"parallel": 4, "gateway": True, "budget_policy": "hard"},
        (is_the_bill, holds_its_budget),
        draw=3,
    ),
    "eight in flight": Scenario(EIGHT, (is_at_least_the_bill, lost_calls)),
    "eight in flight, in order, tosses for guides": Scenario(
        {**EIGHT, **ORDERED, "experiment": "guides"},
        (SAME, is_on_the_bill, has_both_arms),
        draw=2,
    ),
    "another K each time": Scenario(
        EIGHT, (is_at_least_the_bill,), run_with_another_number, draw=4
    ),
    "tools": Scenario(
        {**IGNORE, "generator": "agent", "step_cap": 0.012, "budget": 0.08},
        (SAME, repeats_no_call, has_the_same_conversations),
        provider=ToolProvider,
    ),
    "command, gateway": Scenario(
        {"gateway": True, "generator": asking(2), "budget": 0.06},
        (SAME, is_the_bill),
        whole={"generator": asking(2), "budget": 0.06},
    ),
    "command, gateway, hard budget, eight in flight": Scenario(
        {"gateway": True, "generator": asking(2), "budget_policy": "hard", "parallel": 8},
        (is_the_bill, holds_its_budget),
        draw=3,
    ),
    "command, four in flight": Scenario(
        {**FOUR, **ORDERED, "generator": asking(2), "max_iterations": 9},
        (SAME, pays_no_request_of_a_command_twice),
    ),
    "several files": Scenario(
        {**IGNORE, "budget": 0.05},
        (SAME, is_on_the_bill, keeps_its_files),
        run_files,
        provider=of_files,
    ),
    "repository": Scenario(
        {**IGNORE, "budget": 0.015},
        (SAME, is_on_the_bill),
        run_repository,
        provider=of_files,
        num_kills=1,
    ),
    "noise, two objectives, four in flight": Scenario(
        {"parallel": 4, **ORDERED, "budget": 0.05},
        (SAME, keeps_its_front),
        run_noisy,
    ),
    "menu, tools": Scenario(
        {**ORDERED, "generator": "agent", "max_iterations": 9},
        OF_A_MENU,
        run_menu,
        provider=MenuProvider,
    ),
    "menu, four in flight, tosses for the router": Scenario(
        {**ORDERED, **FOUR, "experiment": "router"},
        (*OF_A_MENU, has_both_arms),
        run_menu,
        provider=MenuProvider,
    ),
    "menu, an answer without counts": Scenario(
        ORDERED,
        (SAME, disables_the_dead_model, has_one_uncounted_answer),
        run_menu,
        provider=UncountedProvider,
    ),
    "menu, lost calls count, four in flight": Scenario(
        FOUR,
        (told_the_router_what_the_ledger_says,),
        run_menu,
        provider=MenuProvider,
        draw=3,
    ),
    "compute price": Scenario(TIMED, (pays_for_the_time_of_evaluations,), run_timed, draw=2),
    "compute price, hard budget, eight in flight": Scenario(
        {**TIMED, "parallel": 8, "budget_policy": "hard"},
        (pays_for_the_time_of_evaluations, spends_no_more_than_its_budget),
        run_timed,
        draw=3,
    ),
    "inputs of a user": Scenario(
        {**ORDERED, "gateway": False},
        (SAME, is_on_the_bill, took_each_input_once),
        prepare=put_inputs,
    ),
}


@dataclass
class Wholes:
    """Uninterrupted runs by what they do, each made once; killed ones are beside them."""

    parent: Path
    folders: dict[object, tuple[Path, Decimal]] = field(default_factory=dict)

    def of(self, scenario: Scenario) -> tuple[Path, Decimal]:
        """The folder of the uninterrupted run, and its bill."""
        options = dict(scenario.options if scenario.whole is None else scenario.whole)
        key = (scenario.run, scenario.provider, scenario.prepare, repr(sorted(options.items())))
        if key not in self.folders:
            folder = self.parent / f"{len(self.folders)}" / "whole"
            folder.parent.mkdir()
            provider = scenario.provider()
            with BillingServer(default=provider.answer) as server:
                if scenario.prepare is not None:
                    scenario.prepare(folder, server.url, options)
                    shutil.copytree(folder, folder.with_name("prepared"))
                scenario.run(folder, server.url, options)
            self.folders[key] = folder, provider.bill
        return self.folders[key]


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> Wholes:
    return Wholes(tmp_path_factory.mktemp("wholes"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_holds_of_a_run_however_often_it_is_killed(
    tmp_path: Path, wholes: Wholes, name: str
) -> None:
    scenario = SCENARIOS[name]
    whole, bill, folder = None, Decimal(0), tmp_path / "run"
    if SAME in scenario.holds:
        whole, bill = wholes.of(scenario)
        folder = whole.with_name(name.replace(" ", "-"))
        if scenario.prepare is not None:
            shutil.copytree(whole.with_name("prepared"), folder)
    provider, options = scenario.provider(), dict(scenario.options)
    with BillingServer(default=provider.answer) as server, ExitStack() as stack:
        stack.callback(stop_gateways, RunFolder(folder))
        killing = (scenario.draw, scenario.num_kills, options, scenario.run)
        hits = kill_often(folder, server, provider, *killing)
        assert hits >= max(1, scenario.num_kills // 2)
        record = record_of(folder, scenario.frontiers)
        killed = Killed(folder, record, provider, whole, bill)
        for check in scenario.holds:
            check(killed)


@pytest.mark.parametrize("parallel", [1, 8])
def test_an_evaluation_that_is_killed_counts_at_its_bound(
    tmp_path: Path, provided: tuple[BillingServer, Provider], parallel: int
) -> None:
    server, provider = provided
    folder, options = tmp_path / "run", {**TIMED, "max_iterations": 9, "parallel": parallel}
    journal = folder.with_name("run.evaluations")
    held = journal.with_suffix(HELD)
    held.touch()
    process = PROCESSES.Process(
        target=run_with, args=(dict(os.environ), run_timed, folder, server.url, options)
    )
    process.start()
    within(60, lambda: journal.exists() and "begun" in journal.read_text())
    process.kill()
    process.join()
    held.unlink()
    run_timed(folder, server.url, options)
    run = Killed(folder, record_of(folder), provider, None, Decimal(0))
    assert [call.role for call in run.record.lost].count("compute") >= 1
    pays_for_the_time_of_evaluations(run)


def test_inputs_that_come_while_a_run_is_killed_are_taken_once_and_the_ledger_is_exact(
    tmp_path: Path, provided: tuple[BillingServer, Provider]
) -> None:
    server, provider = provided
    folder = tmp_path / "run"
    options = {**IGNORE, **FOUR}

    def steer() -> None:
        steps = folder / "steps.jsonl"
        while not (steps.exists() and steps.read_text()):
            time.sleep(0.01)
        with RunStore(folder / "run.sqlite") as store:
            put_all(store, pause=0.05)

    user = Thread(target=steer)
    user.start()
    hits = kill_often(folder, server, provider, 5, 3, options)
    user.join()
    run_to_end(folder, server.url, {**options, "budget": 0.2})
    assert hits >= 1
    run = Killed(folder, record_of(folder), provider, None, Decimal(0))
    is_on_the_bill(run)
    took_each_input_once(run)


@pytest.fixture
def provided():
    """A billing server that answers for a provider, and the provider."""
    server, provider = serve()
    with server:
        yield server, provider


@pytest.fixture
def gateway_run(tmp_path):
    """The folder of a run whose gateway is stopped in the end."""
    folder = RunFolder(tmp_path / "run")
    yield folder
    stop_gateways(folder)


def evolve(folder, is_resumed):
    """Start or resume a run of EvoX that buys a strategy when the step of the first ticket ends."""
    options = {"method": "evox", "max_iterations": 10, "parallel": 8, "order": "launch", "seed": 3}
    discover(
        "landscape",
        "simulated",
        budget=5.0,
        out=folder,
        resume=is_resumed,
        lost_calls="ignore",
        **options,
    )


def test_a_killed_run_of_evox_with_eight_calls_in_flight_ends_as_an_uninterrupted_one(tmp_path):
    whole, killed = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "killed")
    evolve(whole.path, is_resumed=False)
    for kill, num_steps in enumerate((2, 8)):
        process = PROCESSES.Process(target=evolve, args=(killed.path, kill > 0))
        process.start()
        while process.is_alive() and num_lines(killed.steps) < num_steps:
            process.join(0.001)
        process.kill()
        process.join()
    evolve(killed.path, is_resumed=True)
    assert killed.steps.read_text() == whole.steps.read_text()
    calls = [record_of(each.path, frontiers=()).calls for each in (whole, killed)]
    paid = [{(call.ticket, call.role, call.prompt) for call in each} for each in calls]
    assert paid[0] == paid[1]
    assert [call.attempt for call in calls[0] if call.ticket == 1 and call.role == "guide"] == [
        *(1, 2, 3)
    ]


def num_lines(path):
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_with_a_gateway_lost_steps_are_repeated_for_nothing(gateway_run, tmp_path, provided):
    server, provider = provided
    for iterations in (3, 6):
        options = {"gateway": True, "max_iterations": iterations}
        run_to_end(gateway_run.path, server.url, options)
        shutil.copy(gateway_run.database, tmp_path / f"{iterations}.sqlite")
    steps, billed = gateway_run.steps.read_text(), provider.bill
    shutil.copy(tmp_path / "3.sqlite", gateway_run.database)
    run_to_end(gateway_run.path, server.url, options)
    assert provider.bill == billed == record_of(gateway_run.path).spent
    assert gateway_run.steps.read_text() == steps


def test_a_run_that_is_killed_while_its_clock_is_set_back_ends_as_an_uninterrupted_one(
    tmp_path, wholes, provided
):
    server, provider = provided
    options = {"lost_calls": "ignore"}
    hits = power_loss.kill_often(tmp_path, server.url, provider, [0, -240, -60], options)
    run_to_end(tmp_path, server.url, options)
    killed = record_of(tmp_path)
    assert hits >= 2
    check_against_bill(killed, provider)
    whole, _ = wholes.of(SCENARIOS["one in flight"])
    assert killed.result == record_of(whole).result


def test_no_bill_exceeds_the_reported_dollars_when_the_power_fails(tmp_path, provided):
    server, provider = provided
    folder, disk = tmp_path / "killed", tmp_path / "disk"
    hits = power_loss.kill_often(folder, server.url, provider, [0, 0, 0], {}, disk)
    run_to_end(folder, server.url, {})
    record = record_of(folder)
    assert hits >= 2
    check_against_bill(record, provider)
    assert record.spent == record.bill_at_most >= provider.bill


def killed_before_step(iteration, folder):
    """Kill a run at the first request of an iteration, before it is billed."""
    server, provider = serve()
    steps = folder / "steps.jsonl"

    def answer(body):
        if steps.exists() and len(steps.read_text().splitlines()) == iteration - 1:
            process.kill()
            return Reply("not received")
        return provider.answer(body)

    server.default = answer
    with server, power_loss.started(folder, server.url, {}) as process:
        pass
    return provider


def test_steps_lost_in_a_cut_log_are_reported_counted_and_accepted(tmp_path, provided):
    folder, (server, again) = RunFolder(tmp_path / "killed"), provided
    provider = killed_before_step(12, folder.path)
    billed, known = provider.bill, folder.steps.read_text().splitlines()
    power_loss.cut_log(folder.path, 0.5)
    with pytest.raises(ValueError, match=r"has lost iterations \d+ to 11, which") as refused:
        run_to_end(folder.path, server.url, {})
    assert f"{folder.resume_command} --accept-loss" in str(refused.value)
    assert again.bill == 0
    assert folder.steps.read_text().splitlines() == known
    run_to_end(folder.path, server.url, {"accept_loss": True})
    record = record_of(folder.path)
    assert any(call.role == LOST_STEPS for call in record.calls)
    assert record.spent == record.bill_at_most
    assert float(record.spent) == pytest.approx(float(billed + again.bill), abs=1e-9)
