"""The columns and events of a step: each is declared once, with its meaning and its origin.

A new column is one field here and its value in `costada.nodes.step_end.trace_row`. The
trace, the export, the page and the reference take what they show from these declarations. To the
page, `reports/page/feed.py` sends the columns of `STEP_FACTS`; `stepFacts` in
`reports/page/scripts/80_drawer.js` shows those with a label.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, NotRequired, TypedDict, get_args, get_origin, get_type_hints

from costada.controller.experiment import GUIDE_DECLINED
from costada.controller.step import FLAT, OUT_OF_MONEY, TARGET
from costada.values.numbering import Iteration, TicketNumber

DOLLARS, SECONDS, SHARE = "dollars", "seconds", "share"
"""Units of columns; others are pure numbers or words."""


@dataclass(frozen=True, slots=True)
class Column:
    """What a column means, where it is computed, and who shows it.

    Attributes:
        text: Its meaning.
        source: `module:function` that computes it.
        unit: Unit of its values.
        symbol: Its heading in the terminal's table; empty if it is not shown there.
        digits: Decimals in the terminal's table, and significant digits on the page.
        left_out: The order in which a narrow terminal leaves columns out, from 1; `None`: never.
        label: Its name among the facts of a step on the page; empty if it is not shown there.
        term: The entry of the page's glossary that explains it.
        is_exported: Whether `costada export` writes it.
        is_on_page: Whether the page gets its values.
    """

    text: str
    source: str
    unit: str = ""
    symbol: str = ""
    digits: int = 4
    left_out: int | None = None
    label: str = ""
    term: str = ""
    is_exported: bool = True
    is_on_page: bool = True


class SteeredRow(TypedDict):
    """The input that a step took: its number in the run, its kind, and an idea."""

    number: int
    kind: str
    idea: NotRequired[str]


class ModelRow(TypedDict):
    """What one model of a menu earned and cost up to an iteration.

    Sums are over its attempts that landed.
    """

    # Laid out as a table: two or three lines a column, where the formatter would take ten.
    # fmt: off
    name: Annotated[str, Column(
        "the model's name in the menu", "costada.runs.models_file:named_models")]
    credit: Annotated[float, Column(
        "sum of the credit of its attempts, each in [0, 1]",
        "costada.controller.router:Router.tell")]
    tries: Annotated[int, Column(
        "its attempts that have landed", "costada.controller.router:Router.tell")]
    dollars: Annotated[float, Column(
        "what they cost", "costada.controller.arms:dollar_sum", DOLLARS)]
    is_disabled: Annotated[bool, Column(
        "whether it gets no further requests of the run",
        "costada.controller.router:Router.disable")]
    mean: Annotated[float, Column(
        "expected credit of its next attempt", "costada.controller.arms:Posterior.mean")]
    deviation: Annotated[float, Column(
        "standard deviation of that", "costada.controller.arms:Posterior.deviation")]
    # fmt: on


class TraceRow(TypedDict):
    """One iteration as the run file and the trace hold it.

    Intensity, costs and gains are as used in the step, evidence as it stands at its end.
    """

    # fmt: off
    iteration: Annotated[Iteration, Column(
        "the iteration, from 1, in the order of landing", "costada.values.numbering:next_iteration",
        symbol="t")]
    ticket: Annotated[TicketNumber, Column(
        "number of its ticket, in the order of launching", "costada.nodes.context:next_ticket",
        symbol="n", left_out=1)]
    frontier: Annotated[int, Column(
        "the frontier, from 1", "costada.controller.allocation:select_frontier", symbol="k",
        label="frontier", term="frontier")]
    action: Annotated[str, Column(
        "the local action, or the method's label for the parent",
        "costada.controller.allocation:sample_action", symbol="action", label="action",
        term="action")]
    models: NotRequired[Annotated[list[str], Column(
        "model of each attempt; only with several models",
        "costada.nodes.choose_model:choose_model", symbol="model", left_out=10, label="model")]]
    intensity: Annotated[float, Column(
        "exploration intensity used in the step", "costada.controller.allocation:intensity",
        symbol="I", digits=3, left_out=7, label="intensity", term="intensity")]
    step_cost: Annotated[float, Column(
        "dollars of the step", "costada.nodes.charge_ledger:charge_ledger", DOLLARS, symbol="c",
        label="cost")]
    dollars_by_role: NotRequired[Annotated[dict[str, float], Column(
        "dollars of the step by role, such as `generation`; only where its evaluation cost money",
        "costada.nodes.charge_ledger:charge_ledger", DOLLARS, symbol="by role", left_out=1,
        is_on_page=False)]]
    spent: Annotated[float, Column(
        "dollars of the run after the step", "costada.nodes.charge_ledger:charge_ledger", DOLLARS,
        label="spent")]
    remaining_ratio: Annotated[float, Column(
        "remaining share of the budget after the step", "costada.controller.credit:remaining_ratio",
        SHARE, symbol="rho", left_out=9, label="remaining")]
    score: Annotated[float | None, Column(
        "score of the candidate", "costada.nodes.evaluate:evaluate", symbol="f", label="score",
        term="score")]
    objective: Annotated[float | None, Column(
        "its objective", "costada.nodes.evaluate:evaluate", digits=9, label="objective",
        term="objective")]
    best_score: Annotated[float, Column(
        "best score so far", "costada.nodes.update_utility:update_utility")]
    best_objective: Annotated[float | None, Column(
        "its objective", "costada.nodes.update_utility:update_utility", digits=9,
        label="best so far")]
    local_gain: Annotated[float, Column(
        "gain over the frontier's best", "costada.controller.credit:normalized_gain",
        label="local gain δ", term="gain")]
    global_gain: Annotated[float, Column(
        "gain over the best of the run", "costada.controller.credit:normalized_gain",
        label="global gain g", term="gain")]
    cost_divisor: Annotated[float, Column(
        "what the gains were divided by", "costada.controller.credit:cost_divisor",
        label="divisor d", term="divisor")]
    utility: Annotated[float, Column(
        "credit for local control", "costada.controller.credit:utility", symbol="u", left_out=8,
        label="utility u", term="utility")]
    allocation_reward: Annotated[float, Column(
        "credit for choosing the frontier", "costada.controller.allocation:allocation_reward",
        symbol="r", left_out=6, label="reward r", term="allocation reward")]
    stagnation: Annotated[int, Column(
        "steps since the best score rose", "costada.controller.credit:stagnation", symbol="nu",
        left_out=5, label="stagnation \N{GREEK SMALL LETTER NU}", term="stagnation")]
    low_yield_cost: Annotated[float, Column(
        "dollars spent in a row that earned nothing", "costada.controller.credit:low_yield_cost",
        DOLLARS, symbol="L", left_out=4, label="low-yield cost L", term="low-yield cost")]
    consolidation_left: Annotated[int, Column(
        "consolidation steps left", "costada.controller.guidance:consolidation_left", symbol="w",
        left_out=3, label="consolidation left", term="consolidation")]
    tactic_uses_left: Annotated[int, Column(
        "tactic uses left", "costada.controller.guidance:tactic_uses_left", symbol="uses",
        left_out=2, label="tactic uses left", term="tactic")]
    attempts: Annotated[int, Column(
        "attempts made in the step, 0 where its program was there before",
        "costada.nodes.attempts:next_attempt", label="attempts")]
    events: Annotated[list[str], Column(
        "what happened in the step", "costada.nodes.step_end:trace_row", symbol="events")]
    failure: Annotated[str | None, Column(
        "why the last attempt failed", "costada.nodes.evaluate:evaluate")]
    candidate_id: Annotated[str | None, Column(
        "id of the candidate", "costada.nodes.evaluate:evaluate")]
    is_cached: Annotated[bool, Column(
        "whether the program had been evaluated before", "costada.nodes.evaluate:evaluate_program")]
    router: NotRequired[Annotated[list[ModelRow], Column(
        "one object per model of the menu, in its order; only with several models",
        "costada.nodes.step_end:model_rows", is_exported=False, is_on_page=False)]]
    measurements: NotRequired[Annotated[list[float], Column(
        "objective of each measurement of the candidate's program, of the first series; only "
        "with `repeats`",
        "costada.evaluators.problem:Problem.evaluate_program", label="measured",
        is_exported=False)]]
    confirmation: NotRequired[Annotated[list[float], Column(
        "the same of the second series, of a program that was better than the incumbent; only"
        " with `repeats`",
        "costada.evaluators.problem:Problem.evaluate_program", label="measured again",
        is_exported=False)]]
    examples: NotRequired[Annotated[int, Column(
        "examples that the candidate was judged on; only with a data set",
        "costada.evaluators.data_set_evaluator:DataSetEvaluator", label="examples")]]
    validation: NotRequired[Annotated[float | None, Column(
        "mean score of a new best candidate on the validation examples; only with such",
        "costada.evaluators.data_set_evaluator:DataSetEvaluator", label="validation")]]
    is_result: NotRequired[Annotated[bool, Column(
        "whether the candidate became the result of the run; only with validation examples",
        "costada.nodes.update_utility:is_result")]]
    objectives: NotRequired[Annotated[dict[str, float | None], Column(
        "each objective by name, such as `speed:max`; only with several objectives",
        "costada.values.evaluation:objective_values", is_on_page=False)]]
    front: NotRequired[Annotated[int, Column(
        "candidates on the Pareto front after the step; only with several objectives",
        "costada.nodes.context:front_of", is_on_page=False)]]
    steered: NotRequired[Annotated[SteeredRow, Column(
        "the input that the step took: its `number` in the run, its `kind`, `tactic` or `program`"
        " of a user or `unjudged` of an earlier step, and an `idea`; only for such steps",
        "costada.nodes.attempts:with_input", is_exported=False)]]
    toss: NotRequired[Annotated[int | None, Column(
        "number of the toss that the step belongs to: that of its ticket, with `guides` of the last"
        " ticket launched before the toss; only with `--experiment`",
        "costada.controller.experiment:toss")]]
    arm: NotRequired[Annotated[str | None, Column(
        "what was tossed: whether the part of the method acts; only with `--experiment`",
        "costada.controller.experiment:toss", symbol="arm", left_out=11, label="arm")]]
    arm_probability: NotRequired[Annotated[float | None, Column(
        "probability of that arm; only with `--experiment`", "costada.controller.experiment:toss",
        SHARE, label="probability of the arm")]]
    # fmt: on


class DerivedColumns(TypedDict, total=False):
    """Columns that readers of a row add to it."""

    # fmt: off
    smoothed_utility: Annotated[float | None, Column(
        "moving average of the utility on the frontier", "costada.reports.page.feed:Averages.after",
        label="average H", term="H", is_exported=False)]
    allocation_estimate: Annotated[float | None, Column(
        "moving average of the allocation reward on the frontier",
        "costada.reports.page.feed:Averages.after", label="average R", term="R", is_exported=False)]
    seconds: Annotated[float | None, Column(
        "time that the nodes of the step took", "costada.store.history:RunHistory.seconds", SECONDS,
        is_on_page=False)]
    idea: Annotated[str | None, Column(
        "the idea of a user that the step carried out", "costada.nodes.attempts:idea_of",
        is_on_page=False)]
    dollars: Annotated[dict[str, float], Column(
        "dollars of each model so far; only with several models",
        "costada.controller.arms:dollar_sum", DOLLARS, is_on_page=False)]
    # fmt: on


def columns_of(row: type) -> dict[str, Column]:
    """The columns that a row declares, by name and in their order."""
    return {name: hint.__metadata__[0] for name, hint in _hints(row).items()}


def kind_of(row: type, name: str) -> Any:
    """The type of a column's values where there are any: a plain one, or a list or mapping."""
    hint = _hints(row)[name].__origin__
    if isinstance(hint, UnionType):
        [hint] = [each for each in get_args(hint) if each is not NoneType]
    return getattr(hint, "__supertype__", hint)


def is_nullable(row: type, name: str) -> bool:
    """Whether a column may hold `None`."""
    return NoneType in get_args(_hints(row)[name].__origin__)


def _hints(row: type) -> dict[str, Any]:
    """The annotations of a row, each with its column."""
    hints = get_type_hints(row, include_extras=True)
    return {
        name: get_args(hint)[0] if get_origin(hint) is NotRequired else hint
        for name, hint in hints.items()
    }


STEP_COLUMNS: Mapping[str, Column] = columns_of(TraceRow) | columns_of(DerivedColumns)
"""All columns of a step by name, in the order in which they are shown."""

MODEL_COLUMNS: Mapping[str, Column] = columns_of(ModelRow)
"""The columns of one model of a menu."""


@dataclass(frozen=True, slots=True)
class Event:
    """What an event of a step means, and the `module:function` that decides whether it happened."""

    text: str
    source: str


GUIDE_SCHEDULED, GUIDE_CHARGED = "guide_scheduled", "guide_charged"
CONSOLIDATION_OPENED, BACKOFF = "consolidation_opened", "backoff"
CUT_SHORT, DISABLED = "cut_short", "disabled"
CONFIRMED, MEASURED_AGAIN, PARETO_FRONT = "confirmed", "measured_again", "pareto_front"
STEERED, SUBMITTED = "steered", "submitted"
UNJUDGED, JUDGED_LATER = "unjudged", "judged_later"

EVENTS: Mapping[str, Event] = {
    GUIDE_SCHEDULED: Event(
        "progress has slowed; the next step asks a guide for ideas",
        "costada.controller.guidance:should_intervene",
    ),
    GUIDE_DECLINED: Event(
        "an experiment declined a guide, by a toss or too soon after the last one",
        "costada.controller.experiment:toss_guide",
    ),
    GUIDE_CHARGED: Event(
        "a guide was asked and gave ideas, called tactics",
        "costada.nodes.charge_ledger:charge_ledger",
    ),
    CONSOLIDATION_OPENED: Event(
        "an idea paid off; its frontier comes first", "costada.controller.guidance:cycle_succeeded"
    ),
    BACKOFF: Event(
        "ideas brought no gain; the next guide comes later",
        "costada.controller.guidance:backs_off",
    ),
    OUT_OF_MONEY: Event(
        "the budget does not pay for the next call",
        "costada.nodes.calls.paid_calls:ask_within_budget",
    ),
    CUT_SHORT: Event(
        "the step ended before its program was submitted", "costada.nodes.generate:ask_once"
    ),
    FLAT: Event("another gain is too unlikely", "costada.controller.step:is_flat"),
    TARGET: Event(
        "the best program reaches the target", "costada.nodes.context:has_reached_target"
    ),
    DISABLED: Event(
        "this model gets no further requests", "costada.controller.router:Router.disable"
    ),
    CONFIRMED: Event(
        "a second series of measurements confirms the best",
        "costada.evaluators.problem:Problem.evaluate_program",
    ),
    MEASURED_AGAIN: Event(
        "a second series of measurements did not confirm it",
        "costada.evaluators.problem:Problem.evaluate_program",
    ),
    PARETO_FRONT: Event(
        "no other program is better in every objective", "costada.nodes.context:front_of"
    ),
    STEERED: Event("an idea from a user", "costada.nodes.attempts:idea_of"),
    SUBMITTED: Event("a program from a user", "costada.nodes.state:Step.is_users_program"),
    UNJUDGED: Event(
        "no money was left to evaluate the program, which is evaluated first when the run continues"
        " with more",
        "costada.nodes.state:Step.is_unjudged",
    ),
    JUDGED_LATER: Event(
        "a program of an earlier step, which had no money left to evaluate it",
        "costada.nodes.attempts:with_submission",
    ),
}
"""The events of a step, by the part of their names before a colon; methods may add notes.

After the colon, `guide_scheduled` has `breakthrough` or `refinement`, and `disabled` a model.
"""
