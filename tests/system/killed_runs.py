"""The runs of `test_kill.py`: what they search, whom they ask, and how each is started."""

import json
import os
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path

from agent_answers import agent_answer, hashed
from billing_server import Refusal, Reply
from crash_runs import (
    BUDGET,
    CAP,
    EVALUATION,
    PRICE_IN,
    PRICE_OUT,
    SEED,
    Provider,
    run_to_end,
    slow_evaluation,
)
from fakes import SEED_PROGRAM, evaluate_value, program, toy_problem
from file_programs import START, evaluate_files, files_problem
from made_repositories import make_repository, problem_of
from menu_provider import CAP as MENU_CAP
from menu_provider import DOLLARS, answer

from costada.evaluators.sandbox.limits import Limits
from costada.models.chat_models import chat_model
from costada.models.menu import MenuModel
from costada.runs.discovery import discover
from costada.runs.stored_run import run_at
from costada.store.purse import Purse
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation
from costada.values.usage import Price

IDEAS = ("try hexagonal rows", "begin in the corners", "sort before placing")
PROGRAMS = (program(0.62), program(5.0))
"""A valid program, and one that the evaluator refuses."""


def run_with_purse(folder: Path, url: str, options: dict[str, object]) -> None:
    with Purse(0.25, path=folder.parent / "purse.sqlite", policy="hard") as purse:
        run_to_end(folder, url, {**options, "purse": purse})


def run_with_another_number(folder: Path, url: str, options: dict[str, object]) -> None:
    """Start or resume a run with 8, 1, 4, 16 and 2 steps in flight."""
    starts = folder.parent / "starts"
    starts.write_text(starts.read_text() + "." if starts.exists() else "")
    number = (8, 1, 4, 16, 2)[len(starts.read_text())]
    run_to_end(folder, url, {**options, "parallel": number})


def run_stored(folder: Path, url: str, options: dict[str, object]) -> None:
    """Start or resume the run of the folder's name in Postgres, in this process, to its end."""
    is_begun = run_at(f"{options['store']}#{folder.name}").claimed_at is not None
    discover(
        toy_problem(evaluate=slow_evaluation),
        chat_model("openai:stand-in", base_url=url, retry_wait=0, max_tokens=CAP),
        out=folder,
        resume=is_begun,
        price=Price(PRICE_IN, PRICE_OUT),
        **{"seed": SEED, "budget": BUDGET, **options},
    )


def slow_files_evaluation(files: dict[str, str]) -> Evaluation:
    time.sleep(EVALUATION)
    return evaluate_files(files)


def run_files(folder: Path, url: str, options: dict[str, object]) -> None:
    run_to_end(folder, url, options, files_problem(evaluate=slow_files_evaluation))


def run_repository(folder: Path, url: str, options: dict[str, object]) -> None:
    """A run that improves a repository by its own command, measured twice."""
    bench = "from pkg.value import value\n\nprint(value())\n"
    repository = folder.parent / "repository"
    if not repository.exists():
        make_repository(repository, {**START, "bench.py": bench})
    problem = problem_of(
        repository, folder.parent / "problem", "python bench.py", "repeats = 2", "pkg/*.py"
    )
    run_to_end(folder, url, options, problem)


LUCK = (0.02, 0.0, -0.01, 0.03, -0.05, 0.01)


class Noisy:
    """Other luck in each measurement of a program; the second objective is its third decimal."""

    def __init__(self) -> None:
        self.measured = Counter[str]()

    def __call__(self, code: str) -> Evaluation:
        time.sleep(EVALUATION)
        found = evaluate_value(code)
        if not found.is_valid:
            return found
        luck = LUCK[self.measured[code] % len(LUCK)]
        self.measured[code] += 1
        metrics = {"value": found.score + luck, "size": float(int(1000 * found.score) % 10)}
        return Evaluation(score=0.5, objective=0.5, is_valid=True, metrics=metrics)


def run_noisy(folder: Path, url: str, options: dict[str, object]) -> None:
    problem = toy_problem(
        evaluate=Noisy(),
        repeats=3,
        objectives=["value:max", "size:min"],
        weights={"value": 1.0, "size": 0.01},
    )
    run_to_end(folder, url, options, problem)


def run_menu(folder: Path, url: str, options: dict[str, object]) -> None:
    """Start or resume a run over four models, one of which refuses, in this process."""
    given = {"base_url": url, "retry_wait": 0, "max_tokens": MENU_CAP}
    discover(
        toy_problem(evaluate=slow_evaluation),
        models=[
            MenuModel(name, chat_model(f"openai:{name}", **given), price_of(name))
            for name in ("dead", *DOLLARS)
        ],
        out=folder,
        resume=(folder / "settings.json").exists(),
        **{"seed": 2, "budget": 0.2, "max_iterations": 18, **options},
    )


def price_of(name: str) -> Price:
    dollars = DOLLARS.get(name, Decimal("0.01"))
    return Price(str(dollars), str(4 * dollars))


class MenuProvider(Provider):
    """Answers by prompt and model, sums the bill itself, and has one answer of the model `dead`."""

    of_dead: Reply | Refusal = Refusal(402)

    def answer(self, body) -> Reply | Refusal:
        if body["model"] == "dead":
            self.take_time(self.billed.total())
            return self.of_dead
        reply = answer(body)
        with self._lock:
            self.billed[f"{body['model']} {body['messages'][-1]['content']}"] += 1
            tokens = reply.input_tokens + 4 * reply.output_tokens
            self.bill += DOLLARS[body["model"]] * tokens / 1_000_000
            number = self.billed.total()
        self.take_time(number)
        return reply


class UncountedProvider(MenuProvider):
    """Its model `dead` answers without token counts."""

    of_dead = Reply("no program", reports_usage=False)


class ToolProvider(Provider):
    """Answers by the whole conversation, with tool calls."""

    def answer(self, body):
        reply = agent_answer(body)
        with self._lock:
            self.billed[hashed(body)] += 1
            self.bill += (reply.input_tokens * PRICE_IN + reply.output_tokens * PRICE_OUT) / 10**6
            number = self.billed.total()
        self.take_time(number)
        return reply


COMPUTE_RATE, LONGEST = Decimal("0.01"), 0.5
"""Dollars for a second of a worker, and the seconds that an evaluation may take."""


EVALUATIONS, HELD = "COSTADA_TEST_EVALUATIONS", ".held"
"""Variable that names the file in which a timed evaluator writes; none ends while a file of that
name with this ending is there."""


def timed_evaluation(code: str) -> Evaluation:
    """Write down that an evaluation begins, and how long it took by a clock of its own."""
    if code == SEED_PROGRAM:  # each process evaluates it before it resumes the run
        return evaluate_value(code)
    with open(os.environ[EVALUATIONS], "a", buffering=1) as journal:
        journal.write("begun\n")
        began = time.perf_counter()
        found = slow_evaluation(code)
        time.sleep(2 * EVALUATION)
        while Path(journal.name).with_suffix(HELD).exists():
            time.sleep(EVALUATION)
        journal.write(f"{time.perf_counter() - began:.6f}\n")
    return found


def run_timed(folder: Path, url: str, options: dict[str, object]) -> None:
    """A run that pays for the time of its evaluations."""
    os.environ[EVALUATIONS] = str(folder.with_name(f"{folder.name}.evaluations"))
    problem = toy_problem(evaluate=timed_evaluation, limits=Limits(wall_seconds=LONGEST))
    price = float(COMPUTE_RATE * 3600)
    run_to_end(folder, url, {**options, "compute_price": price}, problem)


def put_inputs(folder: Path, url: str, options: dict[str, object]) -> None:
    """Run three iterations, then put ideas and programs of a user into the run."""
    run_to_end(folder, url, {**options, "max_iterations": 3})
    with RunStore(folder / "run.sqlite") as store:
        put_all(store)


def put_all(store: RunStore, pause: float = 0.0) -> None:
    run_id = store.run_ids()[-1]
    for idea in IDEAS:
        store.inputs.put_idea(run_id, idea)
        time.sleep(pause)
    for each in PROGRAMS:
        store.inputs.put_program(run_id, each)
        time.sleep(pause)


def last_row(steps: str) -> dict[str, object]:
    """The last row of a trace."""
    return json.loads(steps.splitlines()[-1])
