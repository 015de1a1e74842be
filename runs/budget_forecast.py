"""Steps, tokens, dollars and hours of a run for several budgets, before anything is spent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil, inf
from pathlib import Path
from statistics import fmean

from costada.nodes.attempts import ordinary_input
from costada.nodes.calls.bounds import (
    EXPECTED_ANSWER,
    evaluation_bound,
    expected_evaluation,
    expected_usage,
)
from costada.nodes.context import PricedModel
from costada.runs.dry_run import without_first_tries
from costada.runs.folder import RunFolder
from costada.runs.plan import Plan, paid_steps
from costada.store.rows import CallRow, CallStatus
from costada.store.run_store import RunStore
from costada.values.numbering import START_TICKET
from costada.values.roles import JUDGING

SHARES = (0.25, 0.5, 1.0, 2.0)
"""Budgets of a forecast, in units of the given one."""

IN_TURN = "each in turn"
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Speed:
    """How long a request takes: a fixed time, or its answer tokens at a rate.

    Attributes:
        tokens_per_second: Answer tokens of one request in a second.
        seconds_per_call: Seconds of every request; `None`: by its tokens.
    """

    tokens_per_second: float
    seconds_per_call: float | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for a rate or a time that is not a finite number."""
        if not 0 < self.tokens_per_second < inf:
            rate = f"{self.tokens_per_second:g}"
            raise ValueError(f"--tokens-per-second: got {rate}, expected a finite number above 0")
        if self.seconds_per_call is not None and not 0 <= self.seconds_per_call < inf:
            time = f"{self.seconds_per_call:g}"
            raise ValueError(f"--seconds-per-call: got {time}, expected finite seconds from 0")

    def seconds(self, answer_tokens: float) -> float:
        """Seconds of a request with an answer of so many tokens."""
        if self.seconds_per_call is not None:
            return self.seconds_per_call
        return answer_tokens / self.tokens_per_second


@dataclass(frozen=True, slots=True)
class Measured:
    """Answered calls and iterations of earlier runs of one problem.

    Attributes:
        calls: Answered calls of the search.
        iterations: Iterations of those runs.
        judging: Dollars of all calls that judged programs of those iterations.
    """

    calls: tuple[CallRow, ...] = ()
    iterations: int = 0
    judging: Decimal = Decimal(0)

    @property
    def calls_per_step(self) -> float:
        """Answered calls of a step, retries and guides included; 1 if nothing was measured."""
        return len(self.calls) / self.iterations if self.iterations else 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """An expected step of one model.

    Attributes:
        model: Name of the model in the menu.
        tokens_in: Input tokens.
        tokens_out: Output tokens.
        dollars: What they cost.
        seconds: From its first request to the end of its evaluation.
        judging: Dollars of its evaluation.
        measured_calls: Calls that these numbers were measured in; 0: they are assumed.
    """

    model: str
    tokens_in: float
    tokens_out: float
    dollars: float
    seconds: float
    judging: float = 0.0
    measured_calls: int = 0


@dataclass(frozen=True, slots=True)
class BudgetForecast:
    """What a budget pays for if one model makes every step.

    Attributes:
        model: The model, or that the models of the menu take turns.
        budget: Dollars.
        steps: Steps that it pays for, at most the iteration limit.
        tokens_in: Input tokens of all steps.
        tokens_out: Output tokens.
        dollars: What they cost.
        judging: Dollars of their evaluations beside that.
        hours: How long they take.
        is_limited: Whether the iteration limit ends the run, not the budget.
    """

    model: str
    budget: float
    steps: int
    tokens_in: int
    tokens_out: int
    dollars: float
    hours: float
    is_limited: bool
    judging: float = 0.0


def measure_runs(folders: Iterable[Path], problem: str) -> Measured:
    """The calls of earlier runs of a problem.

    Raises:
        ValueError: A folder holds no run that has begun, its run has another problem, or no call
            was answered in any of them.
    """
    calls, iterations, paths = list[CallRow](), 0, list(folders)
    judging = Decimal(0)
    for path in paths:
        database = RunFolder(path).database
        if isinstance(database, Path) and not database.is_file():
            raise ValueError(f"--measured: {path} holds no run (there is no {database.name} in it)")
        with RunStore.at(database, is_read_only=True) as store:
            for run_id in store.run_ids():
                setup = store.setup(run_id)
                if setup is None or setup.problem["name"] != problem:
                    name = setup.problem["name"] if setup else "none"
                    raise ValueError(
                        f"--measured: {path} holds a run of problem {name!r}, expected {problem!r}"
                    )
                iterations += store.last_step(run_id)
                for call in store.call_log.calls(run_id, with_texts=False):
                    if call.role in JUDGING:
                        judging += call.cost if call.ticket != START_TICKET else 0
                    elif call.status is CallStatus.DONE:
                        calls.append(call)
    if paths and not (calls and iterations):
        raise ValueError(
            f"--measured: {', '.join(map(str, paths))}: no step is finished there, expected one"
        )
    return Measured(tuple(calls), iterations, judging)


def expected_step(
    asked: PricedModel,
    others: Sequence[PricedModel],
    input_tokens: int,
    measured: Measured,
    speed: Speed,
    evaluation_seconds: float,
    judging: float = 0.0,
) -> Step:
    """A step of one model: as its calls were in earlier runs, else as assumed.

    Assumed is one request with an ordinary prompt and an answer of `EXPECTED_ANSWER` tokens.
    Measured calls are priced by the model's price now. `judging` are dollars of an evaluation.
    """
    first = asked.first
    # Calls of a run with one model name no entry. They count where their model is in one entry
    # only.
    is_alone = [each.first.name for each in others].count(first.name) == 1
    calls = [
        call
        for call in measured.calls
        if call.entry == asked.name or (not call.entry and is_alone and call.model == first.name)
    ]
    if calls:
        usages, seconds = [call.usage for call in calls], fmean(call.seconds for call in calls)
    else:
        usages = [expected_usage(first, input_tokens)]
        seconds = speed.seconds(usages[0].output_tokens)
    num_calls = measured.calls_per_step
    cost = sum(map(asked.prices.expected(first).cost, usages), Decimal(0)) / len(usages)
    return Step(
        model=asked.name,
        tokens_in=num_calls * fmean(usage.input_tokens for usage in usages),
        tokens_out=num_calls * fmean(usage.output_tokens for usage in usages),
        dollars=num_calls * float(cost),
        seconds=num_calls * seconds + evaluation_seconds,
        judging=judging,
        measured_calls=len(calls),
    )


def mean_step(steps: Sequence[Step]) -> Step:
    """The mean step of models that take turns."""
    return Step(
        model=IN_TURN,
        tokens_in=fmean(step.tokens_in for step in steps),
        tokens_out=fmean(step.tokens_out for step in steps),
        dollars=fmean(step.dollars for step in steps),
        seconds=fmean(step.seconds for step in steps),
        judging=fmean(step.judging for step in steps),
        measured_calls=sum(step.measured_calls for step in steps),
    )


def budget_forecast(
    step: Step,
    budget: float,
    *,
    max_iterations: int,
    parallel: int = 1,
    is_hard: bool = False,
    evaluation: float = 0.0,
) -> BudgetForecast:
    """What a budget pays for in steps that are all as the given one.

    Steps are counted as by `paid_steps`. `parallel` steps are in flight at the same time.
    `evaluation` is the most that one evaluation can cost.
    """
    aside = max(0.0, evaluation - step.judging) if is_hard else 0.0
    paid = paid_steps(step.dollars + step.judging, budget, is_hard=is_hard, aside=aside)
    # A hard budget that pays for exactly the limit has not ended the run when that is reached.
    is_limited = paid is None or paid > max_iterations - is_hard
    steps = max_iterations if paid is None else min(paid, max_iterations)
    return BudgetForecast(
        model=step.model,
        budget=budget,
        steps=steps,
        tokens_in=round(steps * step.tokens_in),
        tokens_out=round(steps * step.tokens_out),
        dollars=steps * step.dollars,
        hours=ceil(steps / parallel) * step.seconds / SECONDS_PER_HOUR,
        is_limited=is_limited,
        judging=steps * step.judging,
    )


@dataclass(frozen=True, slots=True)
class Forecast:
    """A forecast and what it assumes.

    Attributes:
        steps: An expected step of each model, and of all in turn if there are several.
        budgets: For each of these, what each budget pays for.
        assumptions: What was assumed and measured, in sentences.
    """

    steps: tuple[Step, ...]
    budgets: tuple[BudgetForecast, ...]
    assumptions: tuple[str, ...]


def forecast_of(plan: Plan, measured: Measured, speed: Speed) -> Forecast:
    """The forecast of a planned run; nothing is sent."""
    settings, menu = plan.settings, plan.priced_menu
    tokens = ordinary_input(plan.problem, settings.constants, settings.method)
    evaluation = plan.seed_evaluation.seconds if plan.seed_evaluation else 0.0
    judging = float(expected_evaluation(plan.problem, settings))
    if measured.judging:
        judging = float(measured.judging) / measured.iterations
    steps = [
        expected_step(each, menu, tokens, measured, speed, evaluation, judging) for each in menu
    ]
    if len(steps) > 1:
        steps.append(mean_step(steps))
    budgets = [
        budget_forecast(
            step,
            share * plan.budget,
            max_iterations=settings.constants.max_iterations,
            parallel=plan.parallel,
            is_hard=settings.budget_policy == "hard",
            evaluation=float(evaluation_bound(plan.problem, settings)),
        )
        for step in steps
        for share in SHARES
    ]
    sentences = assumptions(steps, tokens, measured, speed, evaluation, plan.parallel)
    costs = {each.name: each.expected for each in menu}
    sentences += _judging_sentences(plan, measured)
    sentences += without_first_tries(costs, plan.budget, plan.router)
    return Forecast(tuple(steps), tuple(budgets), tuple(sentences))


def _judging_sentences(plan: Plan, measured: Measured) -> list[str]:
    """What the dollars of evaluations rest on; nothing where these are free."""
    if plan.settings.compute_price is None and not plan.granted:
        return []
    known, unknown, most = "", "", ""
    if measured.judging:
        known = "Dollars of evaluations are those of the earlier runs."
    elif plan.settings.compute_price is not None:
        known = "Evaluations cost their time at the compute price."
    if plan.granted and not measured.judging:
        unknown = "What the models of evaluations cost is not known before a run (--measured RUN)."
    if not plan.granted or plan.problem.evaluation_dollars is not None:
        bound = evaluation_bound(plan.problem, plan.settings)
        most = (
            f"An evaluation costs at most ${bound:.4f}; under a hard budget a step begins only"
            " while that is left for it."
        )
    return [each for each in (known, unknown, most) if each]


def assumptions(
    steps: Sequence[Step],
    input_tokens: int,
    measured: Measured,
    speed: Speed,
    evaluation: float,
    parallel: int,
) -> list[str]:
    """What a forecast rests on, a sentence each."""
    sentences = []
    own = [step for step in steps if step.model != IN_TURN]
    if known := [step for step in own if step.measured_calls]:
        calls = ", ".join(f"{step.measured_calls:,} of {step.model}" for step in known)
        sentences.append(
            f"Measured: tokens and seconds of earlier calls ({calls}), and"
            f" {measured.calls_per_step:.2f} calls per step; guides and retries are among them."
        )
    if assumed := [step for step in own if not step.measured_calls]:
        names = f" ({', '.join(step.model for step in assumed)})" if known else ""
        seconds = (
            f"{speed.tokens_per_second:g} answer tokens per second"
            if speed.seconds_per_call is None
            else f"{speed.seconds_per_call:g} s per request"
        )
        effort = " whatever the effort" if len(own) > 1 else ""
        retries = "" if measured.iterations else "; no retries and no guides"
        sentences.append(
            f"Assumed{names}: prompts of {input_tokens:,} tokens, other programs included, answers"
            f" of {EXPECTED_ANSWER:,} tokens{effort}, {seconds}{retries}."
        )
    flight = f"; {parallel} steps in flight" if parallel > 1 else ""
    sentences.append(
        f"An evaluation takes {evaluation:.2g} s, like that of the initial program{flight}."
    )
    if len(own) > 1:
        sentences.append("With several models a run lies between their rows, whatever is chosen.")
    return sentences
