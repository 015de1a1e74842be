"""A whole run on the simulated landscape in memory: real methods, no graph, no prompts, no files.

Steps and their random generators are those of `costada.controller.step`, as in the graph, so equal
answers lead to equal decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from random import Random
from statistics import fmean

from costada.controller.allocation import Allocation
from costada.controller.archive import Archive
from costada.controller.arms import ModelOption, ModelRecord, Money, attempt_price, dollar_sum
from costada.controller.constants import Constants
from costada.controller.credit import Balance, has_crossed
from costada.controller.guidance import is_active
from costada.controller.method import Controller, ParentRule, is_guided
from costada.controller.methods import METHODS
from costada.controller.step import (
    BookedStep,
    StopReason,
    ask_step,
    draw_attempt,
    draws,
    is_flat,
    num_seeds,
    seed_archives,
    spent_at_gain,
    stop_reason,
    tell_step,
)
from costada.experiments.comparison.metrics import Point, RunOutcome
from costada.nodes.settings import Settings, problem_texts, settings_texts
from costada.plugins.lab.landscape.landscape import Wording
from costada.plugins.lab.landscape.landscape_answers import (
    NO_ADVICE,
    Advice,
    Answers,
    Request,
)
from costada.plugins.lab.landscape.landscape_menu import (
    EXPECTED_TOKENS,
    SimulatedEntry,
    SimulatedMenu,
    limited_score,
)
from costada.plugins.lab.landscape.peer_choice import memory_of
from costada.plugins.lab.landscape.strategy_choice import Evolving, as_evolving, choose_by_strategy
from costada.plugins.lab.landscape.worlds import LANDSCAPE, answers_of
from costada.runs.setting_types import PRESETS
from costada.values.candidate import Candidate, LandedCandidate, Program
from costada.values.numbering import START, START_TICKET, Iteration, TicketNumber, next_iteration
from costada.values.setting import unknown_name
from costada.values.usage import Usage

MODEL = "simulated"
PRICE = PRESETS["glm-5"].price

UNITS = 10**8
"""Parts of a dollar that costs are counted in, so that sums of token prices are exact."""

INPUT_UNITS = int(PRICE.input_per_million * UNITS / 10**6)
OUTPUT_UNITS = int(PRICE.output_per_million * UNITS / 10**6)

InFlightLimit = Callable[[Balance, float, int], float]
"""Steps that may be in flight: of budget and spending, dollars at the last gain and iterations."""

LATENCY_SPREAD = 0.73
"""Standard deviation of a call's log latency: the 95th percentile is 3.3 times the median."""


def simulate_run(
    method: str,
    seed: int,
    budget: float,
    constants: Constants | None = None,
    *,
    parallel: int = 1,
    world: str = LANDSCAPE,
    stop_when_flat: float | None = None,
) -> RunOutcome:
    """A finished run of a method in a world, at the paper's GLM-5 prices.

    Args:
        method: Name of the method.
        seed: Start of all randomness, latencies included.
        budget: Dollars to spend (B).
        constants: The method's constants, the defaults if None.
        parallel: Most steps in flight at a time (K).
        world: Name of what answers, of `worlds.WORLDS`.
        stop_when_flat: Chance of another gain below which the run stops; None: never.

    Raises:
        ValueError: There is no such method or world, the budget is not above 0, or `parallel` is
            below 1.
    """
    answers = answers_of(world, seed)
    run = SimulatedRun(
        method,
        seed,
        budget,
        constants or Constants(),
        answers,
        parallel,
        stop_when_flat=stop_when_flat,
    )
    for _ in run.steps():
        pass
    return run.outcome()


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
        evaluated: The same, or the program that fails.
        model: Entry of the menu that the attempt in flight went to; empty without a menu.
        parent_score: Score of the program that the attempt in flight started from.
        expected: Dollars that it was expected to cost, 0 without a menu.
    """

    number: TicketNumber
    allocation: Allocation | None = None
    attempt: int = 0
    is_guided: bool = False
    call: tuple[str, int] = ("", 0)
    paid: dict[str, int] = field(default_factory=dict)
    advice: Advice = NO_ADVICE
    candidate: Candidate | None = None
    evaluated: Candidate | None = None
    model: str = ""
    parent_score: float = 0.0
    expected: float = 0.0


def expected_cost(entry: SimulatedEntry, tokens: Usage = EXPECTED_TOKENS) -> float:
    """Dollars of an attempt of so many tokens by list price (e_m)."""
    return entry.price * _units(tokens) / UNITS


def _units(tokens: Usage) -> int:
    return tokens.input_tokens * INPUT_UNITS + tokens.output_tokens * OUTPUT_UNITS


class SimulatedRun:
    """A run that has begun: every frontier holds the initial program.

    Up to `parallel` steps are in flight in virtual time; they land in the order in which their
    latencies, which the seed draws, let them.

    Attributes:
        controller: The method between two decisions.
        chooser: What chooses the model of an attempt; None without a menu.
        archives: Of each frontier.
        population: Every valid candidate, in the order of landing.
        best: The incumbent.
        in_flight: When each step in flight lands, its number and its ticket; a heap.
        now: Virtual time, in median latencies of a call.
    """

    def __init__(
        self,
        method: str,
        seed: int,
        budget: float,
        constants: Constants,
        answers: Answers,
        parallel: int = 1,
        menu: SimulatedMenu | None = None,
        stop_when_flat: float | None = None,
        limit: InFlightLimit | None = None,
    ) -> None:
        if method not in METHODS:
            raise ValueError(unknown_name("method", method, METHODS))
        if parallel < 1:
            raise ValueError(f"parallel: got {parallel}, expected at least 1")
        self._method, self._seed, self._budget = method, seed, budget
        self._given, self._constants = constants, METHODS[method].apply_switches(constants)
        self._answers, self._parallel, self._limit = answers, parallel, limit
        self.chooser = menu.chooser if menu else None
        self._entries, self._options = dict[str, SimulatedEntry](), dict[str, ModelOption]()
        self._records = dict[str, ModelRecord]()
        if menu is not None:
            for entry in menu.entries:
                self._entries[entry.name] = entry
                expected = expected_cost(entry, menu.expected_tokens)
                self._options[entry.name] = ModelOption(entry.name, expected)
                self._records[entry.name] = ModelRecord(entry.name)
        self._problem = answers.problem
        program = self._problem.start
        score = self._problem.evaluate(program.text).score
        self.controller: Controller = METHODS[method].start(score, constants)
        seeds = [
            Candidate(id=f"0.{number}", program=program, score=score)
            for number in range(1, num_seeds(self.controller) + 1)
        ]
        self.archives: tuple[Archive, ...] = seed_archives(self.controller, seeds, self._constants)
        self.best = seeds[0]
        self.population = [LandedCandidate(self.best, START)]
        self._memory = memory_of(self.controller, self.best, seed)
        self._named: tuple[int | None, ...] = ()
        self._mode = ""
        self._units = {"generation": 0, "retry": 0, "guide": 0}
        self._guides, self._points = list[int](), list[Point]()
        self._launched_dollars = list[float]()  # up to each point, those in flight included
        self.now, self._launched = 0.0, START_TICKET
        self._stop_when_flat, self._gained_at, self._is_flat = stop_when_flat, 0.0, False
        self.in_flight = list[tuple[float, int, Ticket]]()  # a heap by the time of landing

    def steps(self) -> Iterator[Controller]:
        """Yield the controller after each step, until the run stops and nothing is in flight."""
        self._launch()
        while self.in_flight:
            if self._land():
                yield self.controller
            self._launch()

    def outcome(self, *, charges_at_launch: bool = False) -> RunOutcome:
        """The run so far.

        Args:
            charges_at_launch: Whether the dollars of a point include the calls in flight then. They
                are charged when they land, so with several steps in flight a curve over the
                dollars charged shows scores before all that was launched for them is paid.
        """
        points = self._points
        if charges_at_launch:
            pairs = zip(points, self._launched_dollars, strict=True)
            points = [replace(point, spent=dollars) for point, dollars in pairs]
        seed = self.population[0].candidate
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
            points=tuple(points),
            dollars_by_role={role: units / UNITS for role, units in self._units.items()},
            problem_facts=problem_texts(self._problem),
            settings=known,
        )

    @property
    def _max_in_flight(self) -> int:
        """Steps that may be in flight now, at least one."""
        if self._limit is None:
            return self._parallel
        allowed = self._limit(self._balance(), self._gained_at, self.controller.iteration)
        return max(1, min(self._parallel, int(allowed)))

    def _launch(self) -> None:
        """Launch steps while there is room, and money for one more beside those in flight."""
        while len(self.in_flight) < self._max_in_flight:
            is_advised = any(each.allocation is None for _, _, each in self.in_flight)
            needs_guide = self.controller.pending is not None and not is_advised
            expected = 0.0 if needs_guide else self._expected_with_another()
            if self._stop_reason(self._balance().spent + expected, self._launched) is not None:
                return
            self._launched = TicketNumber(self._launched + 1)
            ticket = Ticket(self._launched)
            if evolving := as_evolving(self.controller):
                self._buy_labels(evolving, ticket)
                self._begin(ticket)
            elif needs_guide:
                self._ask_guide(ticket)
            else:
                self._begin(ticket)

    def _buy_labels(self, controller: Evolving, ticket: Ticket) -> None:
        if controller.pending is not None:
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
        calls of a step in flight come on top. With a menu, an attempt costs what was expected of
        its model when it was launched.
        """
        guides, each_step = self._guides, self._mean_step()
        each_guide = fmean(guides) / UNITS if guides else self._constants.guide_cost_estimate
        tickets = [ticket for _, _, ticket in self.in_flight]
        paid = sum(sum(ticket.paid.values()) for ticket in tickets) / UNITS
        return paid + sum(
            (each.expected or each_step) if each.allocation else each_guide for each in tickets
        )

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
        most = self._constants.max_iterations
        return stop_reason(self._budget, dollars, iteration, most, is_flat=self._is_flat)

    def _ask_guide(self, ticket: Ticket) -> None:
        """Launch the pending guide; once it lands, the ticket continues as a step."""
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
            ticket=ticket.number,
            in_flight=[allocation for allocation in chosen if allocation is not None],
        )
        self._attempt(ticket, ticket.allocation)

    def _attempt(self, ticket: Ticket, allocation: Allocation) -> None:
        """Launch the next attempt of a step from what is known now."""
        ticket.attempt += 1
        request = self._request(ticket, allocation)
        rng = draws(self._seed, ticket.number, f"answer {ticket.attempt}")
        entry = self._chosen_entry(ticket)
        code, tokens = self._answers.attempt(request, rng)
        evaluation = self._problem.evaluate(code)
        if entry is not None:
            ticket.model, ticket.parent_score = entry.name, request.parent.score
            limits = draws(self._seed, ticket.number, f"limits of attempt {ticket.attempt}")
            score = limited_score(evaluation.score, request.parent.score, entry, limits)
            if score != evaluation.score:
                code = self._answers.with_score(code, score, limits)
                evaluation = self._problem.evaluate(code)
        ticket.evaluated = Candidate(
            id=f"{ticket.number}.{ticket.attempt}",
            ticket=ticket.number,
            program=Program.of(code),
            score=evaluation.score,
            is_valid=evaluation.is_valid,
            parent_id=request.parent.id,
            generation=request.parent.generation + 1,
        )
        ticket.candidate = ticket.evaluated if evaluation.is_valid else None
        role = "generation" if ticket.attempt == 1 else "retry"
        self._send(ticket, role, tokens, entry.price if entry else None)

    def _chosen_entry(self, ticket: Ticket) -> SimulatedEntry | None:
        """The model of the next attempt; None without a menu."""
        if self.chooser is None:
            return None
        in_flight = [each.model for _, _, each in self.in_flight if each.allocation]
        options = [
            replace(option, launched=in_flight.count(name))
            for name, option in self._options.items()
        ]
        paid = self._balance().spent + sum(ticket.paid.values()) / UNITS
        money = Money(self._budget, self._budget - paid - self._expected())
        rng = draws(self._seed, ticket.number, f"model of attempt {ticket.attempt}")
        name = self.chooser.choose(options, money, ticket.attempt, rng)
        if name is None:
            raise ValueError("models: the router chose none, expected one of the menu")
        ticket.expected = attempt_price(self._records[name], self._options[name])
        return self._entries[name]

    def _send(self, ticket: Ticket, role: str, tokens: Usage, price: float | None = None) -> None:
        units = _units(tokens)
        ticket.call = role, units if price is None else round(units * price)
        rng = draws(self._seed, ticket.number, f"latency {role} {ticket.attempt}")
        landing = self.now + rng.lognormvariate(0.0, LATENCY_SPREAD)
        # The number decides between equal times, so that tickets are never compared.
        heappush(self.in_flight, (landing, ticket.number, ticket))

    def _land(self) -> bool:
        """Take the next call that is finished; whether it ended its step."""
        self.now, _, ticket = heappop(self.in_flight)
        role, units = ticket.call
        ticket.paid[role] = ticket.paid.get(role, 0) + units
        if ticket.allocation is None:
            self._guides.append(units)
            self._take_advice(ticket.advice)
            if self._is_stopping:
                # No step begins that could be charged for this guide.
                self._charge(role, units)
            else:
                self._begin(ticket)
            return False
        if self.chooser is not None:
            known = self._records[ticket.model]
            self._records[ticket.model] = replace(
                known,
                tries=known.tries + 1,
                dollars=dollar_sum(known.dollars, units / UNITS),
            )
            self.chooser = self.chooser.tell(
                ticket.model,
                ticket.candidate.score if ticket.candidate else None,
                ticket.parent_score,
                units / UNITS,
                has_reference=self._problem.reference is not None,
            )
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
        iteration, candidate = next_iteration(self.controller.iteration), ticket.candidate
        for role, units in ticket.paid.items():
            self._charge(role, units)
        if candidate is not None:
            self.population.append(LandedCandidate(candidate, iteration))
            self.best = candidate if candidate.score > self.best.score else self.best
        cost = sum(ticket.paid.values()) / UNITS

        def tell(controller: Controller) -> BookedStep:
            return tell_step(
                controller,
                self.archives if controller.parents is ParentRule.ARCHIVE else (),
                allocation,
                candidate,
                cost,
                self._balance(),
                self._seed,
                self._constants,
                is_guided=ticket.is_guided,
            )

        booked = tell(self.controller)
        self._gained_at = spent_at_gain(
            self._gained_at, self._balance().spent, booked.credit.global_gain, self._constants
        )
        self._is_flat = self._is_flat or is_flat(
            self._stop_when_flat, self._balance(), self._gained_at, iteration, self._constants
        )
        is_last = self._stop_reason(self._balance().spent, iteration) is not None
        if not is_last and (evolving := as_evolving(self.controller)):
            score = candidate.score if candidate else None
            reviewed = evolving.review(score, self._constants)
            if reviewed.pending is not None:
                reviewed = self._evolve(reviewed, ticket.number, iteration)
            # Again, as the review has changed the controller that the step is told to.
            booked = tell(reviewed)
        self.archives = booked.archives
        if self._memory is not None:
            self._memory.land(allocation.frontier, ticket.evaluated, ticket.number)
        self.controller, _ = booked.controller.decide(
            allocation, self._balance(), self._constants, is_last=is_last
        )
        best = self.best.score
        self._points.append(Point(iteration, self._balance().spent, best, best))
        units = sum(ticket.call[1] + sum(ticket.paid.values()) for *_, ticket in self.in_flight)
        self._launched_dollars.append((sum(self._units.values()) + units) / UNITS)

    def _evolve(self, controller: Evolving, ticket: TicketNumber, iteration: Iteration) -> Evolving:
        """The controller after an evolution, as far as it is paid for; no step lands during it."""
        rng = draws(self._seed, ticket, "guide")
        drawn = draws(self._seed, iteration, "strategies")
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
            return Request(self.population[0].candidate, (), Wording.BALANCED)
        if evolving := as_evolving(self.controller):
            rng = Random(draws(self._seed, ticket.number, "strategy").getrandbits(32))
            shown = self._constants.num_inspirations
            return choose_by_strategy(evolving.strategy, self.population, shown, rng)
        if self._memory is not None:
            return self._memory.request(allocation.frontier, ticket.number)
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
            chosen=None if tactic is None else self.best,
        )
        wording = Wording(allocation.action if tactic is None else self._mode)
        named = None if tactic is None else self._named[tactic]
        return Request(parent, tuple(each.score for each in others), wording, named)

    def _charge(self, role: str, units: int) -> None:
        self._units[role] += units

    def _balance(self) -> Balance:
        return Balance(self._budget, sum(self._units.values()) / UNITS)
