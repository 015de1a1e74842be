"""A whole run on the simulated landscape in memory: real methods, no graph, no prompts, no files.

Steps and their random generators are those of `costada.controller.step`, as in the graph, so equal
answers lead to equal decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from importlib.resources import files
from random import Random
from statistics import fmean
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

LATENCY_SPREAD = 0.73
"""Standard deviation of a call's log latency: the 95th percentile is 3.3 times the median."""

LABEL_WORDING = {
    "": Wording.BALANCED,
    "diverge": Wording.EXPLORATION,
    "refine": Wording.EXPLOITATION,
}
"""What the labels of an EvoX strategy ask for, in the words of the landscape."""


def simulate_run(
    method: str,
    seed: int,
    budget: float,
    constants: Constants | None = None,
    *,
    parallel: int = 1,
) -> RunOutcome:
    """A finished run of a method on the landscape of a seed, at the paper's GLM-5 prices.

    Args:
        method: Name of the method.
        seed: Start of all randomness, latencies included.
        budget: Dollars to spend (B).
        constants: The method's constants, the defaults if None.
        parallel: Most steps in flight at a time (K).

    Raises:
        ValueError: There is no such method, the budget is not above 0, or `parallel` is below 1.
    """
    answers = LandscapeAnswers(drawn_landscape(seed))
    run = SimulatedRun(method, seed, budget, constants or Constants(), answers, parallel)
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


@dataclass(slots=True)
class Ticket:
    """One step between its launch and its end.

    Attributes:
        number: Its place in the order of launching, from 1.
        allocation: Where and how it searches; None while its guide is in flight.
        attempt: Attempts launched.
        is_guided: Whether an attempt of it followed a tactic.
        call: Role and price of the call in flight, in parts of a dollar.
        paid: Price of the calls that are finished, by role.
        advice: What its guide answers; empty without one.
        candidate: What the attempt in flight brings; None where it fails.
    """

    number: int
    allocation: Allocation | None = None
    attempt: int = 0
    is_guided: bool = False
    call: tuple[str, int] = ("", 0)
    paid: dict[str, int] = field(default_factory=dict)
    advice: Advice = Advice((), Usage(0, 0))
    candidate: Candidate | None = None


def _units(tokens: Usage) -> int:
    return tokens.input_tokens * INPUT_UNITS + tokens.output_tokens * OUTPUT_UNITS


class SimulatedRun:
    """A run that has begun: every frontier holds the initial program.

    Up to `parallel` steps are in flight in virtual time; they land in the order in which their
    latencies, which the seed draws, let them.

    Attributes:
        controller: The method between two decisions.
        archives: Of each frontier.
        population: Every valid candidate, in the order of landing.
        best: The incumbent.
        in_flight: When each step in flight lands, its number and its ticket; a heap.
    """

    def __init__(
        self,
        method: str,
        seed: int,
        budget: float,
        constants: Constants,
        answers: Answers,
        parallel: int = 1,
    ) -> None:
        if method not in METHODS:
            raise ValueError(unknown_name("method", method, METHODS))
        if parallel < 1:
            raise ValueError(f"parallel: got {parallel}, expected at least 1")
        self._method, self._seed, self._budget = method, seed, budget
        self._given, self._constants = constants, METHODS[method].adjusted(constants)
        self._answers, self._parallel = answers, parallel
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
        self._guides, self._points = list[int](), list[Point]()
        self._now, self._launched = 0.0, 0
        self.in_flight = list[tuple[float, int, Ticket]]()  # a heap by the time of landing

    def steps(self) -> Iterator[Controller]:
        """Yield the controller after each step, until the run stops and nothing is in flight."""
        self._launch()
        while self.in_flight:
            if self._land():
                yield self.controller
            self._launch()

    def outcome(self) -> RunOutcome:
        """The run so far."""
        seed = self.population[0]
        known = settings_texts(Settings(constants=self._given, price=PRICE), self._budget)
        del known["budget"]
        known["simulation"] = type(self._answers).__qualname__
        if self._parallel > 1:
            known["parallel"] = str(self._parallel)
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
            settings=known,
        )

    def _launch(self) -> None:
        """Launch steps while there is room, and money for one more beside those in flight."""
        while len(self.in_flight) < self._parallel:
            is_advised = any(each.allocation is None for _, _, each in self.in_flight)
            needs_guide = self.controller.pending is not None and not is_advised
            expected = 0.0 if needs_guide else self._expected_with_another()
            if self._stop_reason(self._balance().spent + expected, self._launched) is not None:
                return
            self._launched += 1
            ticket = Ticket(self._launched)
            if isinstance(self.controller, EvoX):
                self._buy_labels(self.controller, ticket)
                self._begin(ticket)
            elif needs_guide:
                self._ask_guide(ticket)
            else:
                self._begin(ticket)

    def _buy_labels(self, controller: EvoX, ticket: Ticket) -> None:
        if controller.pending == LABELS:
            rng = draws(self._seed, ticket.number, "guide")
            ticket.paid["guide"] = _units(self._answers.label(rng))
            self.controller = controller.with_labels()

    def _expected_with_another(self) -> float:
        """Dollars that the steps in flight and one more are expected to cost.

        0 where none is in flight: that step is made whatever it costs.
        """
        return self._expected() + self._mean_step() if self.in_flight else 0.0

    def _expected(self) -> float:
        """Dollars that the steps in flight are expected to cost.

        A call costs what steps did on average so far, and a guide what guides did; the earlier
        calls of a step in flight come on top.
        """
        guides, each_step = self._guides, self._mean_step()
        each_guide = fmean(guides) / UNITS if guides else self._constants.guide_cost_estimate
        tickets = [ticket for _, _, ticket in self.in_flight]
        paid = sum(sum(ticket.paid.values()) for ticket in tickets) / UNITS
        return paid + sum(each_step if each.allocation else each_guide for each in tickets)

    def _mean_step(self) -> float:
        iterations = len(self._points)
        spent = self._balance().spent
        return spent / iterations if iterations else self._constants.reference_cost

    def _can_repeat(self, ticket: Ticket) -> bool:
        """Whether the budget has room for a further attempt of a step that has landed.

        One step at a time is completed whatever it costs.
        """
        so_far = self._balance().spent + sum(ticket.paid.values()) / UNITS + self._expected()
        return self._parallel == 1 or so_far < self._budget

    @property
    def _is_stopping(self) -> bool:
        """Whether the run only waits for what is in flight."""
        return self._stop_reason(self._balance().spent, self.controller.iteration) is not None

    def _stop_reason(self, dollars: float, iteration: int) -> StopReason | None:
        return stop_reason(self._budget, dollars, iteration, self._constants.max_iterations)

    def _ask_guide(self, ticket: Ticket) -> None:
        """Launch the pending guide; once it lands, the ticket goes on as a step."""
        if not is_guided(self.controller):
            raise TypeError(f"controller: got {self._method!r}, expected a guided method")
        rng = draws(self._seed, ticket.number, "guide")
        ticket.advice = self._answers.advise(str(self.controller.pending), self.best, rng)
        self._send(ticket, "guide", ticket.advice.tokens)

    def _begin(self, ticket: Ticket) -> None:
        """Choose where and how a step searches, and launch its first attempt."""
        chosen = [each.allocation for _, _, each in self.in_flight]
        ticket.allocation = ask_step(
            self.controller,
            self._balance(),
            self._seed,
            self._constants,
            number=ticket.number,
            in_flight=[allocation for allocation in chosen if allocation is not None],
        )
        self._attempt(ticket, ticket.allocation)

    def _attempt(self, ticket: Ticket, allocation: Allocation) -> None:
        """Launch the next attempt of a step from what is known now."""
        ticket.attempt += 1
        request = self._request(ticket, allocation)
        rng = draws(self._seed, ticket.number, f"answer {ticket.attempt}")
        code, tokens = self._answers.attempt(request, rng)
        evaluation = evaluate(code)
        ticket.candidate = None
        if evaluation.is_valid:
            ticket.candidate = Candidate(
                id=f"{ticket.number}.{ticket.attempt}",
                iteration=ticket.number,
                program=Program.of(code),
                score=evaluation.score,
                parent_id=request.parent.id,
                generation=request.parent.generation + 1,
            )
        self._send(ticket, "generation" if ticket.attempt == 1 else "retry", tokens)

    def _send(self, ticket: Ticket, role: str, tokens: Usage) -> None:
        ticket.call = role, _units(tokens)
        rng = draws(self._seed, ticket.number, f"latency {role} {ticket.attempt}")
        landing = self._now + rng.lognormvariate(0.0, LATENCY_SPREAD)
        heappush(self.in_flight, (landing, ticket.number, ticket))

    def _land(self) -> bool:
        """Take the next call that is finished; whether it ended its step."""
        self._now, _, ticket = heappop(self.in_flight)
        role, units = ticket.call
        ticket.paid[role] = ticket.paid.get(role, 0) + units
        if ticket.allocation is None:
            self._guides.append(units)
            self._take_advice(ticket.advice)
            if self._is_stopping:
                self._charge(role, units)
            else:
                self._begin(ticket)
            return False
        is_last = self._is_stopping or ticket.attempt >= self._constants.max_attempts
        if ticket.candidate is None and not is_last and self._can_repeat(ticket):
            self._attempt(ticket, ticket.allocation)
            return False
        self._end(ticket, ticket.allocation)
        return True

    def _take_advice(self, advice: Advice) -> None:
        if not is_guided(self.controller):
            raise TypeError(f"controller: got {self._method!r}, expected a guided method")
        self._named, self._mode = advice.named, str(self.controller.pending)
        if advice.named:
            self.controller = self.controller.open_cycle(len(advice.named), self._constants)
        else:
            self.controller = self.controller.fail_guide()

    def _end(self, ticket: Ticket, allocation: Allocation) -> None:
        """Charge and credit a step that has landed, and decide."""
        iteration, candidate = self.controller.iteration + 1, ticket.candidate
        for role, units in ticket.paid.items():
            self._charge(role, units)
        if candidate is not None:
            self.population.append(candidate)
            self.best = candidate if candidate.score > self.best.score else self.best
        booked = tell_step(
            self.controller,
            self.archives if self.controller.parents is ParentRule.ARCHIVE else (),
            allocation,
            candidate,
            sum(ticket.paid.values()) / UNITS,
            self._balance(),
            self._seed,
            self._constants,
            is_guided=ticket.is_guided,
        )
        self.controller, self.archives = booked.controller, booked.archives
        is_last = self._stop_reason(self._balance().spent, iteration) is not None
        self._decide(allocation, is_last=is_last)
        if self.controller.iteration < iteration:
            if not isinstance(self.controller, EvoX):
                raise TypeError(f"controller: got {self._method!r}, expected the next iteration")
            self.controller = self._evolved(self.controller, ticket.number)
            self._decide(allocation, is_last=False)
        best = self.best.score
        self._points.append(Point(iteration, self._balance().spent, best, best))

    def _decide(self, allocation: Allocation, *, is_last: bool) -> None:
        self.controller, _ = self.controller.decide(
            allocation, self._balance(), self._constants, is_last=is_last
        )

    def _evolved(self, controller: EvoX, number: int) -> EvoX:
        """The controller after an evolution, as far as it is paid for; no step lands during it."""
        rng = draws(self._seed, number, "guide")
        drawn = draws(self._seed, number, "strategies")
        shown, _ = controller.draw_strategies(drawn, self._constants)
        evolution = self._answers.evolve(shown.strategy, rng)
        for tokens in evolution.calls:
            if has_crossed(self._budget, self._balance().spent):
                return controller.keep_strategy(self._constants)
            self._charge("guide", _units(tokens))
        if evolution.strategy is None:
            return controller.keep_strategy(self._constants)
        return controller.adopt(evolution.strategy, self._constants)

    def _request(self, ticket: Ticket, allocation: Allocation) -> Request:
        if self.controller.parents is ParentRule.SEED:
            return Request(self.population[0], 0, Wording.BALANCED)
        if isinstance(self.controller, EvoX):
            return self._chosen_by_strategy(self.controller.strategy, ticket.number)
        tactic = None
        if is_guided(self.controller) and is_active(self.controller.cycle):
            is_first = not ticket.is_guided
            self.controller, tactic = self.controller.use_tactic(is_first=is_first)
            ticket.is_guided = True
        parent, others = draw_attempt(
            self.archives,
            allocation,
            ticket.number,
            ticket.attempt,
            self._seed,
            self._constants,
            incumbent=None if tactic is None else self.best,
        )
        wording = Wording(allocation.action if tactic is None else self._mode)
        named = None if tactic is None else self._named[tactic]
        return Request(parent, len(others), wording, named)

    def _chosen_by_strategy(self, strategy: str, number: int) -> Request:
        """What a packaged strategy chooses from the population at the launch."""
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
        rng = Random(draws(self._seed, number, "strategy").getrandbits(32))
        parent_id, label, others = searcher.select(self._constants.num_inspirations, rng)
        parent = next(each for each in self.population if each.id == parent_id)
        return Request(parent, len(others), LABEL_WORDING[label])

    def _charge(self, role: str, units: int) -> None:
        self._units[role] += units

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
