"""A whole run on the simulated landscape in memory: real methods, no graph, no prompts, no files.

Steps and their random generators are those of `costada.controller.step`, as in the graph, so equal
answers lead to equal decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from random import Random
from typing import Protocol, cast

from costada.controller.allocation import Allocation
from costada.controller.archive import Archive
from costada.controller.baselines.evox import LABELS, EvoX
from costada.controller.constants import Constants
from costada.controller.guidance import Mode, is_active
from costada.controller.method import Controller, ParentRule, is_guided
from costada.controller.methods import METHODS
from costada.controller.money import Balance, has_crossed
from costada.controller.step import (
    StopReason,
    ask_step,
    draw_attempt,
    draws,
    num_seeds,
    seed_archives,
    stop_reason,
    tell_step,
)
from costada.experiments.comparison.metrics import Point, RunOutcome
from costada.experiments.landscape.landscape import (
    GUIDE_TOKENS,
    INSIGHT_TOKENS,
    LABEL_TOKENS,
    STRATEGY_FAILURE_RATE,
    STRATEGY_TOKENS,
    Attempt,
    Landscape,
    Wording,
    call_tokens,
    drawn_landscape,
)
from costada.experiments.landscape.model import REFINEMENTS, named_approaches
from costada.experiments.landscape.problem import (
    SeenProgram,
    evaluate,
    landscape,
    proposed_program,
    read_program,
)
from costada.nodes.evox.strategies import StrategyRecord, initial_strategy
from costada.nodes.settings import Settings, problem_texts, settings_texts
from costada.runs.config import PRESETS
from costada.runs.user_input import unknown_name
from costada.values.candidate import Candidate, Program
from costada.values.usage import Usage

MODEL = "simulated"
PRICE = PRESETS["glm-5"].price
STRATEGIES = files("costada.models.offline") / "strategies"

UNITS = 10**8
"""Parts of a dollar that costs are counted in, so that sums of token prices are exact."""

INPUT_UNITS = int(PRICE.input_per_million * UNITS / 10**6)
OUTPUT_UNITS = int(PRICE.output_per_million * UNITS / 10**6)

LABEL_WORDING = {
    "": Wording.BALANCED,
    "diverge": Wording.EXPLORATION,
    "refine": Wording.EXPLOITATION,
}
"""What the labels of an EvoX strategy ask for, in the words of the landscape."""


def simulate_run(
    method: str, seed: int, budget: float, constants: Constants | None = None
) -> RunOutcome:
    """A finished run of a method on the landscape of a seed, at the paper's GLM-5 prices.

    Raises:
        ValueError: There is no such method, or the budget is not above 0.
    """
    answers = LandscapeAnswers(drawn_landscape(seed))
    run = SimulatedRun(method, seed, budget, constants or Constants(), answers)
    for _ in run.steps():
        pass
    return run.outcome()


@dataclass(frozen=True, slots=True)
class Request:
    """What the prompt of one attempt would say."""

    parent: Candidate
    num_others: int  # programs shown beside it
    wording: Wording
    named: int | None = None  # approach that its breakthrough tactic names; None without one


@dataclass(frozen=True, slots=True)
class Advice:
    """The tactics of a guide: the approach that each names, None if it keeps the program's."""

    named: tuple[int | None, ...]
    tokens: Usage


@dataclass(frozen=True, slots=True)
class Evolution:
    """The result of an evolution: a packaged strategy, None where none is valid.

    `calls` are the tokens of each call that it takes; the last one brings the strategy.
    """

    strategy: str | None
    calls: tuple[Usage, ...]


class Answers(Protocol):
    """Answers every call of one run; all randomness comes from the generator it is given."""

    def attempt(self, request: Request, rng: Random) -> tuple[str, Usage]:
        """The program of an answer, valid or not, and its tokens."""

    def advise(self, mode: str, best: Candidate, rng: Random) -> Advice:
        """The tactics of a guide; none where its answer was unusable."""

    def label(self, rng: Random) -> Usage:
        """The tokens of the label call, which only EvoX buys."""

    def evolve(self, shown: str, rng: Random) -> Evolution:
        """The evolution of EvoX from the strategy of that name."""


@dataclass(frozen=True, slots=True)
class LandscapeAnswers:
    """Draws every answer from the distributions of one landscape."""

    landscape: Landscape

    def attempt(self, request: Request, rng: Random) -> tuple[str, Usage]:
        """A program made from the parent, and its tokens."""
        seen = _seen(request.parent)
        attempt = Attempt(seen.approach, seen.quality, request.wording, request.named)
        code = request.parent.program.text
        return proposed_program(code, attempt, request.num_others, self.landscape, rng)

    def advise(self, mode: str, best: Candidate, rng: Random) -> Advice:
        """Three tactics."""
        if mode == Mode.REFINEMENT:
            return Advice((None,) * len(REFINEMENTS), call_tokens(GUIDE_TOKENS, rng))
        seen = _seen(best)
        named = named_approaches(self.landscape, seen.approach, seen.quality, rng)
        return Advice(named, call_tokens(GUIDE_TOKENS, rng))

    def label(self, rng: Random) -> Usage:
        """The tokens of the label call."""
        return call_tokens(LABEL_TOKENS, rng)

    def evolve(self, shown: str, rng: Random) -> Evolution:
        """Another packaged strategy, with an extra call where the first is refused."""
        strategy = rng.choice([name for name in packaged_strategies() if name != shown])
        is_refused = rng.random() < STRATEGY_FAILURE_RATE
        calls = [INSIGHT_TOKENS, STRATEGY_TOKENS] + [STRATEGY_TOKENS] * is_refused
        return Evolution(strategy, tuple(call_tokens(lengths, rng) for lengths in calls))


def _seen(candidate: Candidate) -> SeenProgram:
    seen = read_program(candidate.program.text)
    if seen is None:
        raise ValueError(f"program: got {candidate.program.text!r}, expected one of the landscape")
    return seen


class SimulatedRun:
    """A run that has begun: every frontier holds the initial program.

    Attributes:
        controller: The method between two steps.
        archives: Of each frontier.
        population: Every valid candidate, in the order of their iterations.
        best: The incumbent.
    """

    def __init__(
        self, method: str, seed: int, budget: float, constants: Constants, answers: Answers
    ) -> None:
        if method not in METHODS:
            raise ValueError(unknown_name("method", method, METHODS))
        self._method, self._seed, self._budget = method, seed, budget
        self._given, self._constants = constants, METHODS[method].adjusted(constants)
        self._answers = answers
        self._problem = landscape()
        program = Program.of(self._problem.initial_program)
        score = evaluate(program.text).score
        self.controller: Controller = METHODS[method].start(score, constants)
        seeds = [
            Candidate(id=f"0.{number}", program=program, score=score)
            for number in range(1, num_seeds(self.controller) + 1)
        ]
        self.archives: tuple[Archive, ...] = seed_archives(self.controller, seeds, self._constants)
        self.best = seeds[0]
        self.population = [self.best]
        self._named: tuple[int | None, ...] = ()
        self._mode = ""
        self._units = {"generation": 0, "retry": 0, "guide": 0}
        self._points: list[Point] = []

    def steps(self) -> Iterator[Controller]:
        """Yield the controller after each step, until the run stops."""
        while self._stop_reason(self.controller.iteration) is None or not self._points:
            self._step()
            yield self.controller

    def outcome(self) -> RunOutcome:
        """The run so far."""
        seed = self.population[0]
        known = settings_texts(Settings(constants=self._given, price=PRICE), self._budget)
        del known["budget"]
        return RunOutcome(
            problem=self._problem.name,
            method=self._method,
            model=MODEL,
            seed=self._seed,
            budget=self._budget,
            seed_score=seed.score,
            seed_objective=seed.score,
            is_minimized=False,
            points=tuple(self._points),
            dollars_by_role={role: units / UNITS for role, units in self._units.items()},
            problem_facts=problem_texts(self._problem),
            settings={**known, "simulation": type(self._answers).__qualname__},
        )

    def _stop_reason(self, iteration: int) -> StopReason | None:
        spent = self._balance().spent
        return stop_reason(self._budget, spent, iteration, self._constants.max_iterations)

    def _step(self) -> None:
        iteration = self.controller.iteration + 1
        before, units_before = self._balance(), sum(self._units.values())
        if self.controller.pending:
            self._buy_call(iteration)
        allocation = ask_step(self.controller, before, self._seed, self._constants)
        candidate = self._attempts(allocation, iteration)
        if candidate is not None:
            self.population.append(candidate)
            self.best = candidate if candidate.score > self.best.score else self.best
        booked = tell_step(
            self.controller,
            self.archives if self.controller.parents is ParentRule.ARCHIVE else (),
            allocation,
            candidate,
            (sum(self._units.values()) - units_before) / UNITS,
            self._balance(),
            self._seed,
            self._constants,
        )
        self.controller, self.archives = booked.controller, booked.archives
        self._decide(allocation, is_last=self._stop_reason(iteration) is not None)
        if self.controller.iteration < iteration:
            self._buy_call(iteration)
            self._decide(allocation, is_last=False)
        best = self.best.score
        self._points.append(Point(iteration, self._balance().spent, best, best))

    def _decide(self, allocation: Allocation, *, is_last: bool) -> None:
        self.controller, _ = self.controller.decide(
            allocation, self._balance(), self._constants, is_last=is_last
        )

    def _buy_call(self, iteration: int) -> None:
        pending, rng = str(self.controller.pending), draws(self._seed, iteration, "guide")
        if isinstance(self.controller, EvoX):
            self.controller = self._evolved(self.controller, iteration, rng)
            return
        if not is_guided(self.controller):
            raise TypeError(f"controller: got {self._method!r}, expected a guided method")
        advice = self._answers.advise(pending, self.best, rng)
        self._charge("guide", advice.tokens)
        self._named, self._mode = advice.named, pending
        if advice.named:
            self.controller = self.controller.open_cycle(len(advice.named), self._constants)
        else:
            self.controller = self.controller.fail_guide()

    def _evolved(self, controller: EvoX, iteration: int, rng: Random) -> EvoX:
        """The controller after the label call, or after an evolution as far as it is paid for."""
        if controller.pending == LABELS:
            self._charge("guide", self._answers.label(rng))
            return controller.with_labels()
        drawn = draws(self._seed, iteration, "strategies")
        shown, _ = controller.draw_strategies(drawn, self._constants)
        evolution = self._answers.evolve(shown.strategy, rng)
        for tokens in evolution.calls:
            if has_crossed(self._budget, self._balance().spent):
                return controller.keep_strategy(self._constants)
            self._charge("guide", tokens)
        if evolution.strategy is None:
            return controller.keep_strategy(self._constants)
        return controller.adopt(evolution.strategy, self._constants)

    def _attempts(self, allocation: Allocation, iteration: int) -> Candidate | None:
        """The candidate of the step, None if every attempt failed."""
        for attempt in range(1, self._constants.max_attempts + 1):
            request = self._request(allocation, iteration, attempt)
            rng = draws(self._seed, iteration, f"answer {attempt}")
            code, tokens = self._answers.attempt(request, rng)
            self._charge("generation" if attempt == 1 else "retry", tokens)
            evaluation = evaluate(code)
            if evaluation.is_valid:
                return Candidate(
                    id=f"{iteration}.{attempt}",
                    iteration=iteration,
                    program=Program.of(code),
                    score=evaluation.score,
                    parent_id=request.parent.id,
                    generation=request.parent.generation + 1,
                )
        return None

    def _request(self, allocation: Allocation, iteration: int, attempt: int) -> Request:
        if self.controller.parents is ParentRule.SEED:
            return Request(self.population[0], 0, Wording.BALANCED)
        if isinstance(self.controller, EvoX):
            return self._chosen_by_strategy(self.controller.strategy, iteration)
        tactic = None
        if is_guided(self.controller) and is_active(self.controller.cycle):
            self.controller, tactic = self.controller.use_tactic()
        parent, others = draw_attempt(
            self.archives,
            allocation,
            iteration,
            attempt,
            self._seed,
            self._constants,
            incumbent=None if tactic is None else self.best,
        )
        wording = Wording(allocation.action if tactic is None else self._mode)
        named = None if tactic is None else self._named[tactic]
        return Request(parent, len(others), wording, named)

    def _chosen_by_strategy(self, strategy: str, iteration: int) -> Request:
        """What a packaged strategy chooses, the same for every attempt of an iteration."""
        searcher = _strategy_class(strategy)()
        for candidate in self.population:
            searcher.add(
                StrategyRecord(
                    id=candidate.id,
                    code=candidate.program.text,
                    score=candidate.score,
                    metrics=dict(candidate.metrics),
                    error=candidate.error,
                    parent_id=candidate.parent_id,
                    iteration=candidate.iteration,
                    generation=candidate.generation,
                )
            )
        rng = Random(draws(self._seed, iteration, "strategy").getrandbits(32))
        parent_id, label, others = searcher.select(self._constants.num_inspirations, rng)
        parent = next(each for each in self.population if each.id == parent_id)
        return Request(parent, len(others), LABEL_WORDING[label])

    def _charge(self, role: str, tokens: Usage) -> None:
        self._units[role] += tokens.input_tokens * INPUT_UNITS + tokens.output_tokens * OUTPUT_UNITS

    def _balance(self) -> Balance:
        return Balance(self._budget, sum(self._units.values()) / UNITS)


class Strategy(Protocol):
    """What the class in the text of an EvoX strategy offers."""

    def add(self, record: StrategyRecord) -> None:
        """Add a candidate to the population."""

    def select(self, n_context: int, rng: Random) -> tuple[str, str, list[str]]:
        """The id of the parent, a label and the ids of the context."""


@lru_cache(maxsize=1)
def packaged_strategies() -> Mapping[str, str]:
    """The texts that an evolution may bring, by name."""
    texts = [file for file in STRATEGIES.iterdir() if file.name.endswith(".txt")]
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(texts, key=str)}


@lru_cache(maxsize=16)
def _strategy_class(name: str) -> type[Strategy]:
    """The class in a packaged strategy, the initial one for ""; a model's text never runs here."""
    namespace: dict[str, object] = {}
    text = packaged_strategies()[name] if name else initial_strategy()
    exec(text, namespace)  # noqa: S102  a text of this package
    return cast(type[Strategy], namespace["Strategy"])
