"""Runs in their own processes that are killed at random instants and resumed."""

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import inf
from pathlib import Path
from random import Random
from threading import Lock

from billing_server import BillingServer, Reply
from fakes import IDEAS, evaluate_value, hashed_answer, is_guide_prompt, toy_problem
from warm import PROCESSES

from costada.evaluators.problem import Problem
from costada.models.chat_models import chat_model
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.store.rows import CallRow, CallStatus
from costada.store.run_store import RunStore
from costada.values.usage import Price

LATENCY, EVALUATION = 0.02, 0.005
"""Seconds that an answer and an evaluation take."""

CAP = 4000
"""Longest answer that a run asks for, more than any answer has."""


PRICE_IN, PRICE_OUT = Decimal("0.6"), Decimal("1.92")

BUDGET = 0.1
"""Dollars of a run: some 20 calls, more than it makes before its last kill."""

SEED = 2
"""Of a run that retries and buys a guide."""


def slow_evaluation(code):
    time.sleep(EVALUATION)
    return evaluate_value(code)


def tokens_of(prompt: str, cap: int = CAP) -> tuple[int, int]:
    """Return what an answer to the prompt is billed: another number for each prompt."""
    draw = hashlib.sha256(prompt.encode()).digest()
    return len(prompt), min(cap, 500 + int.from_bytes(draw[4:6], "big") % 3000)


def cost_of(prompt: str, cap: int = CAP) -> Decimal:
    taken, given = tokens_of(prompt, cap)
    return (taken * PRICE_IN + given * PRICE_OUT) / 1_000_000


@dataclass
class Provider:
    """Answers by the prompt alone, takes its time, and remembers every prompt that it billed."""

    answer_to: Callable[[str], str] = hashed_answer
    billed: Counter[str] = field(default_factory=Counter)
    bill: Decimal = Decimal(0)
    bills: list[Decimal] = field(default_factory=list)
    """The bill after each request."""

    last_answered: float = inf
    """Later requests wait until this is raised, so that no run ends before it is killed."""

    _lock: Lock = field(default_factory=Lock)

    def answer(self, body) -> Reply:
        prompt = body["messages"][-1]["content"]
        cap = body.get("max_completion_tokens", CAP)
        with self._lock:
            self.billed[prompt] += 1
            self.bill += cost_of(prompt, cap)
            self.bills.append(self.bill)
            number = self.billed.total()
        self.take_time(number)
        taken, given = tokens_of(prompt, cap)
        text = IDEAS if is_guide_prompt(prompt) else self.answer_to(prompt)
        return Reply(text, input_tokens=taken, output_tokens=given)

    def take_time(self, number: int) -> None:
        """Return when the answer to the request of a number, from 1, is due."""
        time.sleep(LATENCY)
        while number > self.last_answered:
            time.sleep(0.002)

    def forget(self) -> None:
        self.billed.clear()
        self.bill = Decimal(0)


def run_to_end(
    folder: Path, url: str, options: dict[str, object], problem: Problem | None = None
) -> None:
    """Start or resume the run in a folder, in this process, to its end."""
    discover(
        problem or toy_problem(evaluate=slow_evaluation),
        chat_model("openai:stand-in", base_url=url, retry_wait=0, max_tokens=CAP),
        out=folder,
        resume=(folder / "settings.json").exists(),
        price=Price(PRICE_IN, PRICE_OUT),
        **{"seed": SEED, "budget": BUDGET, **options},
    )


def run_with(
    environment: dict[str, str],
    run: Callable[[Path, str, dict[str, object]], None],
    folder: Path,
    url: str,
    options: dict[str, object],
) -> None:
    """Run with the environment of the test, which the fork server does not have."""
    os.environ.update(environment)
    run(folder, url, options)


def kill_often(
    folder: Path,
    server: BillingServer,
    provider: Provider,
    draw: int,
    num_kills: int,
    options: dict[str, object],
    run: Callable[[Path, str, dict[str, object]], None] = run_to_end,
) -> int:
    """Kill a run at random instants, resume it each time, at last to its end.

    Returns how often it was alive when it was killed. The instants lie around requests: some calls
    after the process began, the more are in flight the later, and up to two calls after that;
    `draw` says which. At the first kill, the last of these calls is in flight.
    """
    rng, num_hits = Random(draw), 0
    most_calls = 2 + int(str(options.get("parallel", 1)))
    for kill in range(num_kills):
        process = PROCESSES.Process(
            target=run_with, args=(dict(os.environ), run, folder, server.url, options)
        )
        num_calls = provider.billed.total() + rng.randint(1, most_calls)
        provider.last_answered = num_calls + 2 if kill else num_calls - 1
        process.start()
        while process.is_alive() and provider.billed.total() < num_calls:
            process.join(0.001)
        process.join(rng.uniform(0, 2 * (LATENCY + EVALUATION)))
        num_hits += process.is_alive()
        process.kill()
        process.join()
        provider.last_answered = inf
    run(folder, server.url, options)
    return num_hits


@dataclass(frozen=True)
class Record:
    """What a run leaves behind, without what cannot be the same twice."""

    best_program: str
    steps: str
    calls: tuple[CallRow, ...]
    archives: tuple[tuple[str, ...], ...]
    spent: Decimal

    @property
    def result(self) -> tuple[object, ...]:
        """What is the same in a killed and an uninterrupted run."""
        return self.steps, self.best_program, self.archives, self.spent

    @property
    def done(self) -> list[CallRow]:
        return [call for call in self.calls if call.status is CallStatus.DONE]

    @property
    def lost(self) -> list[CallRow]:
        return [call for call in self.calls if call.status is CallStatus.LOST]

    @property
    def bill_at_most(self) -> Decimal:
        return sum((call.cost + call.bound for call in self.calls), Decimal(0))


def best_files(folder: Path) -> list[Path]:
    best = RunFolder(folder).best_program
    return sorted(each for each in best.rglob("*") if each.is_file()) if best.is_dir() else [best]


def record_of(folder: Path, frontiers: Sequence[int] = (0, 1)) -> Record:
    with RunStore(folder / "run.sqlite", is_read_only=True) as store:
        run_id = store.run_ids()[-1]
        return Record(
            best_program="\n".join(file.read_text() for file in best_files(folder)),
            steps=(folder / "steps.jsonl").read_text(),
            calls=tuple(store.call_log.calls(run_id)),
            archives=tuple(
                tuple(row.program.text for row in store.candidates.archive(run_id, frontier, 10**9))
                for frontier in frontiers
            ),
            spent=store.ledger.spent(run_id, 10**9),
        )


def serve(answer_to: Callable[[str], str] = hashed_answer) -> tuple[BillingServer, Provider]:
    provider = Provider(answer_to)
    return BillingServer(default=provider.answer), provider


def check_against_bill(record: Record, provider: Provider) -> None:
    """Check that completed calls are on the ledger once, exactly, and all others are flagged."""
    for call in record.done:
        assert (call.usage.input_tokens, call.usage.output_tokens) == tokens_of(call.prompt)
        assert call.cost == cost_of(call.prompt)
    done = Counter(call.prompt for call in record.done)
    lost = Counter(call.prompt for call in record.lost)
    for prompt, times in provider.billed.items():
        assert done[prompt] <= times <= done[prompt] + lost[prompt]
    keys = Counter((call.ticket, call.role, call.attempt) for call in record.done)
    assert max(keys.values()) == 1
    assert all(call.bound > cost_of(call.prompt) for call in record.lost)
