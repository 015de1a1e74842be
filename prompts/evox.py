"""The prompts that only EvoX sends."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from costada.prompts.evox_reply import Labels
from costada.prompts.render import Prompt, render
from costada.prompts.request import FailedAttempt
from costada.values.prompt_data import PromptData


@dataclass(frozen=True, slots=True)
class LabelRequest:
    """Everything the prompt for the labels says.

    Attributes:
        task: Problem text of the benchmark.
        evaluator_source: Full source text of the evaluator.
        packages: Packages a program may import; if none are named, numpy and scipy.
    """

    task: str
    evaluator_source: str
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownStrategy:
    """A strategy as a model gets to see it.

    Attributes:
        source: Its text.
        score: What its window was worth (J).
        since: Iterations completed when it came into use.
        until: Iterations completed when its window ended.
        start: Best score when its window began.
        end: Best score when its window ended.
        trace: What it chose and what came of it, as `trace_text` writes it.
    """

    source: str
    score: float
    since: int
    until: int
    start: float
    end: float
    trace: str = ""

    @property
    def standing(self) -> str:
        """When it was in use and what it was worth."""
        return (
            f"In use from iteration {self.since + 1} to {self.until}. Best score {self.start:.6f}"
            f" at its start and {self.end:.6f} at its end ({self.end - self.start:+.6f})."
            f" J = {self.score:.6f}."
        )


@dataclass(frozen=True, slots=True)
class InsightRequest:
    """Everything the prompt for an insight says.

    Attributes:
        task: Problem text of the benchmark.
        statistics: What is known of the population, as `population_text` writes it.
        strategies: The strategies that are shown beside the parent strategy.
        facts: The facts in `statistics` by name, for the data beside the text.
    """

    task: str
    statistics: str
    strategies: tuple[ShownStrategy, ...]
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchWindow:
    """When a new strategy will be at work.

    Attributes:
        iteration: The first iteration it chooses for.
        max_iterations: Iterations of the whole run (T_max).
        horizon: Stagnant iterations after which a strategy is replaced (s).
        threshold: Rise of the best score above which an iteration is not stagnant.
    """

    iteration: int
    max_iterations: int
    horizon: int
    threshold: float


@dataclass(frozen=True, slots=True)
class StrategyRequest:
    """Everything the prompt for a new strategy says.

    Attributes:
        task: Problem text of the benchmark.
        window: When the strategy will be at work.
        insight: The answer to the `InsightRequest`; empty if there is none.
        statistics: What the insight rests on; shown in its place if it is empty.
        parent: The strategy to improve on.
        context: Other strategies; their texts are shown only where there is no insight.
        failure: The failed attempt this one is to make good, if any.
    """

    task: str
    window: SearchWindow
    insight: str
    statistics: str
    parent: ShownStrategy
    context: tuple[ShownStrategy, ...]
    failure: FailedAttempt | None = None


@dataclass(frozen=True, slots=True)
class _Advice:
    guidance: str


def label_prompt(request: LabelRequest) -> Prompt:
    """Return the messages that ask for the advice behind the labels."""
    return Prompt(
        render("evox_label_system.txt", request),
        render("evox_label.txt", request),
        PromptData("labels"),
    )


def insight_prompt(request: InsightRequest) -> Prompt:
    """Return the messages that ask what the history of the search tells."""
    return Prompt(
        render("evox_insight_system.txt", request),
        render("evox_insight.txt", request),
        PromptData(
            "insight",
            facts=request.facts,
            standings=tuple(strategy.standing for strategy in request.strategies),
        ),
    )


def strategy_prompt(request: StrategyRequest) -> Prompt:
    """Return the messages that ask for a new strategy."""
    return Prompt(
        render("evox_strategy_system.txt", request),
        render("evox_strategy.txt", request),
        PromptData("strategy", request.parent.source, has_failure=request.failure is not None),
    )


def label_text(label: str, labels: Labels) -> str:
    """Return the words above a parent's code; empty without a label or without its advice.

    Raises:
        ValueError: If the label is not "", `diverge` or `refine`.
    """
    advice = {"": "", "diverge": labels.diverge, "refine": labels.refine}
    if label not in advice:
        raise ValueError(f"label is {label!r}; expected '', 'diverge' or 'refine'")
    guidance = advice[label]
    return render(f"evox_{label}.txt", _Advice(guidance)).strip() if guidance else ""
