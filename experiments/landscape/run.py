"""A whole run on the simulated landscape in memory: real methods, no graph, no prompts, no files.

The order of a step is that of the discovery graph, and so are the generators it draws from, so
that equal answers lead to equal decisions.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from costada.controller.allocation import Allocation
from costada.controller.archive import Archive, Candidate
from costada.controller.baselines.evox import EvoX
from costada.controller.constants import Constants
from costada.controller.guidance import is_active
from costada.controller.method import (
    LABELS,
    Controller,
    PaidStep,
    ParentRule,
    Record,
    StopReason,
    stop_reason,
)
from costada.controller.methods import METHODS
from costada.controller.money import has_crossed
from costada.controller.sampling import draw_inspirations, draw_parent, draws
from costada.experiments.comparison.metrics import Point, RunOutcome
from costada.experiments.landscape.answers import Answers, LandscapeAnswers, Request
from costada.experiments.landscape.population import chosen_sources
from costada.experiments.landscape.problem import evaluate, landscape
from costada.experiments.landscape.proposals import Wording
from costada.experiments.landscape.tokens import Tokens
from costada.nodes.settings import Settings, problem_texts, settings_texts
from costada.runs.config import PRESETS
from costada.runs.user_input import unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterator


MODEL = "simulated"
PRICE = PRESETS["glm-5"].price

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
    method: str,
    seed: int,
    budget: float,
    constants: Constants | None = None,
    answers: Answers | None = None,
) -> RunOutcome:
    """Return a finished run of a method on the landscape of a seed.

    Args:
        method: Its name.
        seed: Chooses the landscape and starts all randomness.
        budget: Dollars the run may spend (B), at the paper's GLM-5 prices.
        constants: The controller's; the defaults when not given.
        answers: Answers the calls; the distributions of the landscape when not given.

    Raises:
        ValueError: There is no such method, or the budget is not above 0.
    """
    run = SimulatedRun(method, seed, budget, constants or Constants(), answers)
    for _ in run.steps():
        pass
    return run.outcome()


class SimulatedRun:
    """A run under way.

    Attributes:
        controller: The method between two steps.
        archives: Of each frontier.
        population: Every valid candidate, in the order of their iterations.
        best: The incumbent.
    """

    controller: Controller
    archives: tuple[Archive, ...]
    population: list[Candidate]
    best: Candidate

    def __init__(
        self,
        method: str,
        seed: int,
        budget: float,
        constants: Constants,
        answers: Answers | None = None,
    ) -> None:
        """Begin: every frontier holds the initial program."""
        if method not in METHODS:
            raise ValueError(unknown_name("method", method, METHODS))
        self._method, self._seed, self._budget = method, seed, budget
        self._constants = constants
        self._answers = answers or LandscapeAnswers.of_seed(seed)
        self._problem = landscape()
        seed_score = evaluate(self._problem.initial_program).score
        self.controller = METHODS[method].start(seed_score, budget, constants)
        self.archives = tuple(
            Archive((self._seed_candidate(index, seed_score),), constants.archive_size, weights)
            for index, weights in enumerate(self.controller.archive_weights)
        )
        self.best = self.archives[0].members[0]
        self.population = [self.best]
        self._named: tuple[int | None, ...] = ()
        self._mode = ""
        self._units = {"generation": 0, "retry": 0, "guide": 0}
        self._before_step = 0
        self._points: list[Point] = []

    def steps(self) -> Iterator[Record]:
        """Yield the controller's record after each step, until the run stops."""
        reason = None
        while reason is None:
            self._step()
            yield self.controller.record()
            reason = self._stop_reason(self.controller.iteration)

    def _stop_reason(self, iteration: int) -> StopReason | None:
        """Return why the run ends after an iteration, None when it goes on."""
        return stop_reason(self._budget, self._spent, iteration, self._constants.max_iterations)

    def outcome(self) -> RunOutcome:
        """Return the run as far as it has come."""
        seed = self.population[0]
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
            settings=self._settings(),
        )

    def _settings(self) -> dict[str, str]:
        """Return what decides the run besides method and seed; no graph carries it out."""
        settings = Settings(constants=self._constants, price=PRICE)
        known = settings_texts(settings, self._budget)
        del known["budget"]
        return {**known, "simulation": type(self._answers).__qualname__}

    def _step(self) -> None:
        iteration = self.controller.iteration + 1
        self._before_step = sum(self._units.values())
        if self.controller.pending:
            self._buy_call(iteration)
        allocation = self.controller.allocate(draws(self._seed, iteration, "action"))
        candidate = self._attempts(allocation, iteration)
        self._credit(allocation, candidate, iteration)
        is_last = self._stop_reason(iteration) is not None
        self.controller, _ = self.controller.intervene(allocation, is_last=is_last)
        if self.controller.iteration < iteration:
            self._buy_call(iteration)
            self.controller, _ = self.controller.intervene(allocation)
        best = self.best.score
        self._points.append(Point(iteration, self._spent, best, best))

    def _buy_call(self, iteration: int) -> None:
        pending, rng = str(self.controller.pending), draws(self._seed, iteration, "guide")
        if isinstance(self.controller, EvoX):
            self.controller = self._redesigned(self.controller, iteration, rng)
            return
        advice = self._answers.advise(pending, self.best, rng)
        self._charge("guide", advice.tokens)
        self._named, self._mode = advice.named, pending
        if advice.named:
            self.controller = self.controller.open_cycle(len(advice.named))
        else:
            self.controller = self.controller.fail_guide()

    def _redesigned(self, controller: EvoX, iteration: int, rng: Random) -> EvoX:
        """Return the controller after the label call, or an evolution as far as it is paid for."""
        if controller.pending == LABELS:
            self._charge("guide", self._answers.label(rng))
            return controller.with_labels()
        shown, _ = controller.draw_strategies(draws(self._seed, iteration, "strategies"))
        evolution = self._answers.evolve(shown.strategy, rng)
        for tokens in evolution.calls:
            if has_crossed(self._budget, self._spent):
                return controller.keep_strategy()
            self._charge("guide", tokens)
        if evolution.strategy is None:
            return controller.keep_strategy()
        return controller.adopt(evolution.strategy)

    def _attempts(self, allocation: Allocation, iteration: int) -> Candidate | None:
        """Return the candidate of the step, None if every attempt failed."""
        for attempt in range(1, self._constants.max_attempts + 1):
            request = self._request(allocation, iteration, attempt)
            rng = draws(self._seed, iteration, f"answer {attempt}")
            code, tokens = self._answers.attempt(request, rng)
            self._charge("generation" if attempt == 1 else "retry", tokens)
            evaluation = evaluate(code)
            if evaluation.is_valid:
                parent = request.parent
                return Candidate(
                    id=f"{iteration}.{attempt}",
                    code=code,
                    score=evaluation.score,
                    parent_id=parent.id,
                    iteration=iteration,
                    generation=parent.generation + 1,
                    metrics={},
                    artifacts={},
                    changes="",
                )
        return None

    def _request(self, allocation: Allocation, iteration: int, attempt: int) -> Request:
        if self.controller.parents is ParentRule.SEED:
            return Request(self.population[0], 0, Wording.BALANCED)
        if isinstance(self.controller, EvoX):
            return self._population_request(self.controller, iteration)
        tactic = self._take_tactic()
        rng = draws(self._seed, iteration, f"sources of attempt {attempt}")
        archive = self.archives[allocation.frontier]
        drawn = draw_parent(archive, allocation.action, rng)
        parent = drawn if tactic is None else self.best
        others = draw_inspirations(archive, self.archives, parent, self._constants.num_inspirations)
        wording = Wording(allocation.action if tactic is None else self._mode)
        named = None if tactic is None else self._named[tactic]
        return Request(parent, len(others), wording, named)

    def _population_request(self, controller: EvoX, iteration: int) -> Request:
        """Return the same request for every attempt of an iteration."""
        seed = draws(self._seed, iteration, "strategy").getrandbits(32)
        count = self._constants.num_inspirations
        chosen = chosen_sources(controller.strategy, self.population, count, Random(seed))
        parent = next(each for each in self.population if each.id == chosen.parent_id)
        return Request(parent, len(chosen.context_ids), LABEL_WORDING[chosen.label])

    def _take_tactic(self) -> int | None:
        if not is_active(self.controller.cycle):
            return None
        self.controller, tactic = self.controller.use_tactic()
        return tactic

    def _credit(self, allocation: Allocation, candidate: Candidate | None, iteration: int) -> None:
        is_archiving = self.controller.parents is ParentRule.ARCHIVE
        before = self.archives if is_archiving else ()
        after = before
        if candidate is not None:
            self.population.append(candidate)
            self.best = candidate if candidate.score > self.best.score else self.best
            after = _inserted(before, allocation.frontier, candidate)
        paid = PaidStep(
            score=candidate.score if candidate else None,
            is_kept=after is not before if is_archiving else candidate is not None,
            cost=(sum(self._units.values()) - self._before_step) / UNITS,
            spent=self._spent,
        )
        credited, _ = self.controller.credit(allocation, paid)
        rng = draws(self._seed, iteration, "maintenance")
        self.controller, self.archives = credited.maintain(after, rng)

    def _charge(self, role: str, tokens: Tokens) -> None:
        self._units[role] += tokens.taken * INPUT_UNITS + tokens.given * OUTPUT_UNITS

    @property
    def _spent(self) -> float:
        return sum(self._units.values()) / UNITS

    def _seed_candidate(self, frontier: int, score: float) -> Candidate:
        return Candidate(
            id=f"0.{frontier + 1}",
            code=self._problem.initial_program,
            score=score,
            parent_id=None,
            iteration=0,
            generation=0,
            metrics={},
            artifacts={},
            changes="",
        )


def _inserted(
    archives: tuple[Archive, ...], frontier: int, candidate: Candidate
) -> tuple[Archive, ...]:
    """Return the archives with the candidate in one of them; themselves when it is refused."""
    if not archives:
        return archives
    changed = archives[frontier].insert(candidate)
    if changed is archives[frontier]:
        return archives
    return (*archives[:frontier], changed, *archives[frontier + 1 :])
