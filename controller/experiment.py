"""Experiments within a run: a toss decides whether one part of the method acts.

The tosses of a run follow from its seed and its tickets, so that a run that was killed repeats
them. Their probabilities are known, so the effect of the part can be estimated from the steps
(`costada.experiments.effect.estimate`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from costada.controller.allocation import Allocation
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.guidance import Intervention
from costada.controller.method import Controller, is_guided
from costada.controller.methods import Method
from costada.controller.step import draws
from costada.values.numbering import TicketNumber

ExperimentName = Literal["guides", "calibration", "router"]

GUIDE, NO_GUIDE = "guide", "no guide"
DIVIDED, UNDIVIDED = "divided", "undivided"
ROUTED, UNIFORM = "routed", "uniform"

SHARE = 0.5
"""Probability of the arm with the part; equal shares separate two rates with the fewest tosses."""

PROPENSITIES: Mapping[ExperimentName, Mapping[str, float]] = {
    "guides": {GUIDE: SHARE, NO_GUIDE: 1.0 - SHARE},
    "calibration": {DIVIDED: SHARE, UNDIVIDED: 1.0 - SHARE},
    "router": {ROUTED: SHARE, UNIFORM: 1.0 - SHARE},
}
"""The probability of each arm, that with the part of the method first."""

GUIDE_DECLINED = "guide_declined"
"""Note of a step at whose end an experiment declined the guide that was scheduled."""


@dataclass(frozen=True, slots=True)
class Toss:
    """A toss, and what came of it.

    Attributes:
        ticket: Number of the ticket at whose launch it was made; for guides, of the last one that
            was launched before.
        arm: What was drawn.
        probability: The probability of this arm, in (0, 1).
    """

    ticket: TicketNumber
    arm: str
    probability: float


def toss(experiment: ExperimentName, run_seed: int, ticket: TicketNumber) -> Toss:
    """The toss of a ticket, the same on every execution."""
    (first, share), (second, other) = PROPENSITIES[experiment].items()
    is_first = draws(run_seed, ticket, f"toss about {experiment}").random() < share
    return Toss(ticket, first, share) if is_first else Toss(ticket, second, other)


def window(constants: Constants, parallel: int) -> int:
    """The steps that belong to a toss about a guide: as many as a guide has uses.

    With several in flight, those too that are launched before the guide has answered. The number
    depends neither on the arm nor on what the steps bring. Were it the steps up to the next toss,
    arms would hold different shares of the steps of a lucky phase or run, and would differ where
    guides change nothing. A window of fixed length after each toss is the proximal outcome of
    micro-randomised trials (Boruvka et al., "Assessing Time-Varying Causal Effect Moderation in
    Mobile Health", 2018).

    Args:
        constants: Source of the uses of a guide.
        parallel: Steps that may be in flight (K).
    """
    return constants.uses_per_guide + parallel - 1


def is_within(last: Toss | None, ticket: TicketNumber, num_steps: int) -> bool:
    """Whether a ticket is among the first so many that were launched after a toss."""
    return last is not None and ticket <= last.ticket + num_steps


Guiding = TypeVar("Guiding", bound=Controller)


def toss_guide(
    controller: Guiding,
    decided: Intervention,
    run_seed: int,
    ticket: TicketNumber,
    last: Toss | None,
    num_steps: int,
) -> tuple[Guiding, Intervention, Toss | None]:
    """Buy the guide that the method has scheduled, or decline it, and the last toss after that.

    Nothing is tossed where no guide is scheduled. While steps that belong to the last toss have to
    be launched, a guide is declined without a toss. A declined guide counts like one without a
    usable tactic: CostAda backs off, so its patience starts again.

    Args:
        controller: As it is after the step.
        decided: What it decided at the end of the step.
        run_seed: Start of the run's randomness.
        ticket: Number of the last ticket that was launched.
        last: The last toss.
        num_steps: Steps that belong to a toss.
    """
    if decided.scheduled is None or not is_guided(controller):
        return controller, decided, last
    made = last
    if not is_within(last, TicketNumber(ticket + 1), num_steps):
        made = toss("guides", run_seed, ticket)
        if made.arm == GUIDE:
            return controller, decided, made
    notes = (*decided.notes, GUIDE_DECLINED)
    return controller.fail_guide(), replace(decided, scheduled=None, notes=notes), made


def toss_calibration(
    ask: Callable[[Constants], Allocation],
    constants: Constants,
    run_seed: int,
    ticket: TicketNumber,
) -> tuple[Allocation, Toss | None]:
    """The next step by credit divided by cost, or by credit that is not.

    No toss where both choose the same frontier and action: such a step cannot tell them apart.
    """
    undivided = constants.model_copy(update={"calibrates_cost": False})
    choices = {DIVIDED: ask(constants), UNDIVIDED: ask(undivided)}
    if len({(each.frontier, each.action) for each in choices.values()}) == 1:
        return choices[DIVIDED], None
    made = toss("calibration", run_seed, ticket)
    return choices[made.arm], made


def prepare(controller: Controller, experiment: ExperimentName | None) -> Controller:
    """The controller of a run that begins, with what the experiment needs.

    For `calibration` it averages both credits from the first step on.
    """
    if experiment == "calibration" and isinstance(controller, CostAda):
        return controller.with_both_credits()
    return controller


def check_experiment(
    experiment: ExperimentName | None, method: Method, constants: Constants, num_models: int
) -> None:
    """Refuse an experiment on a part that the run does not have.

    Raises:
        ValueError: Naming the experiment, what contradicts it and what was expected.
    """
    if experiment is None:
        return
    if experiment == "router":
        if num_models < 2:
            raise ValueError(
                "experiment: got 'router' with one model, expected several models to choose from"
            )
        return
    controller, got = method.start(0.0, constants), f"experiment: got {experiment!r} with"
    if experiment == "guides" and not is_guided(controller):
        raise ValueError(
            f"{got} method {method.name!r}, which buys no guides; expected one that does, such as"
            " costada"
        )
    if experiment == "guides" and constants.guides != "paper":
        raise ValueError(f"{got} guides {constants.guides!r}, expected 'paper': a toss replaces it")
    if experiment == "calibration":
        if not isinstance(controller, CostAda):
            raise ValueError(
                f"{got} method {method.name!r}, which never divides credit by cost; expected"
                " costada"
            )
        if not method.apply_switches(constants).calibrates_cost:
            is_method = "calibrates_cost" in method.switches
            what = f"method {method.name!r}" if is_method else "controller.calibrates_cost = false"
            raise ValueError(f"{got} {what}, so credit is never divided by cost; expected costada")
