"""The prompts that only EvoX sends, and how their replies are read."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles

from costada.prompts.render import DEFAULT_ORDER, Prompt, PromptOrder, fields_of, fill, templates
from costada.prompts.reply_parts import find_fences
from costada.prompts.requests import PYTHON_TEXT, FailedAttempt, PromptData
from costada.prompts.whole_texts import MAX_PROGRAM_CHARACTERS, UNREADABLE, Rejection, defined_names
from costada.values.candidate import LandedCandidate
from costada.values.numbering import START, Iteration
from costada.values.program_form import ProgramForm

NUM_TOP_SCORES = 20
NUM_RECENT = 20
"""How many candidates the recent series hold."""

NUM_TRACED = 20
"""How many candidates a trace shows, the latest ones."""

NUM_SHOWN_CONTEXTS = 4

Quartiles = tuple[float, float, float]

TIERS: Mapping[str, Callable[[float, Quartiles], bool]] = {
    "upper quartile and above": lambda score, marks: score >= marks[2],
    "median to upper quartile": lambda score, marks: marks[1] <= score < marks[2],
    "lower quartile to median": lambda score, marks: marks[0] <= score < marks[1],
    "below lower quartile": lambda score, marks: score < marks[0],
}


def population_text(rows: Sequence[LandedCandidate], iteration: Iteration, threshold: float) -> str:
    """Size, scores, reuse and recent history of a population, one fact per line."""
    facts = population_facts(rows, iteration, threshold)
    lines = [f"- {name}: {value}" for name, value in facts.items()]
    return "\n".join([*lines, "", "Latest candidates:", "", trace_text(rows, START, iteration)])


def population_facts(
    rows: Sequence[LandedCandidate], iteration: Iteration, threshold: float
) -> dict[str, str]:
    """Size, scores, reuse and recent history of a population, by name.

    Args:
        rows: All candidates, in any order.
        iteration: Iterations completed, those without a candidate included.
        threshold: Rise of the best score above which an iteration made progress.

    Raises:
        ValueError: If there are no rows.
    """
    if not rows:
        raise ValueError("rows: got none, expected at least the initial program")
    ordered = sorted(rows, key=lambda row: row.iteration)
    scores = _scores(rows)
    made = [row.candidate for row in ordered if row.candidate.parent_id]
    with_context = [row for row in made if row.inspirations]
    contexts = (each for row in with_context for each in row.inspirations)
    recent = made[-NUM_RECENT:]
    parents = [scores[row.parent_id] for row in recent if row.parent_id in scores]
    without_gain = _iterations_without_gain(ordered, iteration, threshold)
    return {
        **_score_facts([row.candidate.score for row in ordered]),
        f"iterations without an improvement of more than {threshold:g}": (
            f"{without_gain} of {iteration}"
        ),
        "most used parent": _most_used((row.parent_id or "" for row in made), len(made)),
        "most used in contexts": _most_used(contexts, len(with_context)),
        "recent scores, oldest first": _series([row.score for row in recent]),
        "scores of their parents": _series(parents),
    }


def trace_text(rows: Sequence[LandedCandidate], since: Iteration, until: Iteration) -> str:
    """A table of the latest candidates of some iterations: what each was made from.

    Args:
        rows: All candidates; parents and context are looked up among them.
        since: Iterations before the first one shown.
        until: The last iteration shown.
    """
    scores = _scores(rows)

    def with_score(name: str) -> str:
        return f"{name} ({scores[name]:.4f})" if name in scores else name

    ordered = sorted(rows, key=lambda row: row.iteration)
    made = [row for row in ordered if row.candidate.parent_id and since < row.iteration <= until]
    if not made:
        return "No candidates were found."
    lines = ["| iteration | score | label | parent | context |", "|---|---|---|---|---|"]
    for row in made[-NUM_TRACED:]:
        each = row.candidate
        label, parent = each.label or "none", with_score(each.parent_id or "")
        context = ", ".join(map(with_score, each.inspirations[:NUM_SHOWN_CONTEXTS])) or "none"
        lines.append(f"| {row.iteration} | {each.score:.4f} | {label} | {parent} | {context} |")
    return "\n".join(lines)


def _scores(rows: Iterable[LandedCandidate]) -> dict[str, float]:
    return {row.candidate.id: row.candidate.score for row in rows}


def _score_facts(scores: Sequence[float]) -> dict[str, str]:
    low = middle = high = scores[0]
    if len(scores) > 1:
        low, middle, high = quantiles(scores, n=4, method="inclusive")
    tiers = [
        f"{name} {_share(sum(is_in(score, (low, middle, high)) for score in scores), len(scores))}"
        for name, is_in in TIERS.items()
    ]
    top = sorted(scores, reverse=True)[:NUM_TOP_SCORES]
    return {
        "candidates": f"{len(scores)}",
        "scores": f"best {max(scores):.6f}, upper quartile {high:.6f}, median {middle:.6f}, "
        f"lower quartile {low:.6f}, worst {min(scores):.6f}",
        "share of candidates": ", ".join(tiers),
        "distinct scores at 4 decimals": f"{len({f'{score:.4f}' for score in scores})}",
        f"top {len(top)} scores": _series(top),
    }


def _iterations_without_gain(
    ordered: Sequence[LandedCandidate], iteration: Iteration, threshold: float
) -> int:
    best, latest = ordered[0].candidate.score, ordered[0].iteration
    for row in ordered[1:]:
        if row.candidate.score - best > threshold:
            latest = row.iteration
        best = max(best, row.candidate.score)
    return iteration - latest


def _most_used(ids: Iterable[str], total: int) -> str:
    counts = Counter(ids)
    if not counts:
        return "none yet"
    name, count = max(counts.items(), key=lambda item: item[1])
    return f"{name}, {count} of {total} times ({_share(count, total)})"


def _series(scores: Sequence[float]) -> str:
    return ", ".join(f"{score:.4f}" for score in scores) or "none yet"


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.1f}%"


def render(template: str, **values: object) -> str:
    """A template of this plug-in filled with values."""
    return fill(templates("costada.plugins.evox"), template, values)


CLASS_NAME = "Strategy"
"""What the program of a strategy defines."""

MAX_POINTS = 8
POINT_LIMIT = 500
"""How many points of a label are kept, and how many characters of each."""

_HEADING = re.compile(r"[#*`\s]*(?P<label>diverge|refine)\b[*:`\s]*", re.IGNORECASE)
_OTHER_HEADING = re.compile(r"#{1,6}\s")
_BULLET = re.compile(r"\s*(?:[-*•+]|\d+[.)])\s+(?P<text>\S.*)")


@dataclass(frozen=True, slots=True)
class Labels:
    """The advice behind the two labels, as lists of points; empty if there is none.

    `diverge` names approaches of another kind, `refine` what to improve without a new approach.
    """

    diverge: str = ""
    refine: str = ""


def parse_labels(reply: str) -> Labels:
    """The points below the two headings of a reply; a label without points stays empty."""
    points: dict[str, list[str]] = {"diverge": [], "refine": []}
    current: list[str] | None = None
    for line in reply.replace("\r\n", "\n").split("\n"):
        heading = _HEADING.fullmatch(line)
        if heading:
            current = points[heading["label"].lower()]
            current.clear()
        elif _OTHER_HEADING.match(line):
            current = None
        elif current is not None:
            bullet = _BULLET.match(line)
            if bullet:
                current.append(bullet["text"].strip())
            elif current and line.strip() and not line.lstrip().startswith("```"):
                current[-1] += " " + line.strip()

    def listed(label: str) -> str:
        return "\n".join(f"- {point[:POINT_LIMIT]}" for point in points[label][:MAX_POINTS])

    return Labels(listed("diverge"), listed("refine"))


def parse_strategy(reply: str) -> str | Rejection:
    """The program of a new strategy, or why a reply holds none.

    Among several fenced programs the last that defines the class is taken.
    """
    text = reply.replace("\r\n", "\n")
    fences = [fence for fence in find_fences(text) if CLASS_NAME in defined_names(fence.text)]
    closed = [fence.text for fence in fences if fence.is_closed]
    if fences and not closed:
        return Rejection("The answer ends before its program is complete.")
    if not closed and CLASS_NAME in defined_names(text) and "```" not in text:
        closed = [text]
    if not closed:
        return Rejection(
            f"The answer holds no fenced program with `class {CLASS_NAME}` at its top level."
        )
    source = closed[-1].strip("\n") + "\n"
    if len(source) > MAX_PROGRAM_CHARACTERS:
        return Rejection(
            f"The program has {len(source)} characters;"
            f" at most {MAX_PROGRAM_CHARACTERS} are allowed."
        )
    if UNREADABLE.search(source):
        return Rejection("The program holds a character that cannot be encoded.")
    return source


@dataclass(frozen=True, slots=True)
class ShownStrategy:
    """A strategy as a model gets to see it.

    Attributes:
        score: What its window was worth (J).
        since: Iterations completed when it came into use.
        until: Iterations completed when its window ended.
        start: Best score when its window began.
        end: Best score when its window ended.
        trace: What it chose and what came of it, as `trace_text` writes it.
    """

    source: str
    score: float
    since: Iteration
    until: Iteration
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
class SearchWindow:
    """When a new strategy will be used.

    Attributes:
        iteration: The first iteration it chooses for.
        max_iterations: Iterations of the whole run (T_max).
        horizon: Stagnant iterations after which a strategy is replaced (s).
        threshold: Rise of the best score above which an iteration is not stagnant.
    """

    iteration: Iteration
    max_iterations: int
    horizon: int
    threshold: float


@dataclass(frozen=True, slots=True)
class StrategyRequest:
    """What the prompt for a new strategy says.

    Attributes:
        insight: The answer to the `insight_prompt`; empty if there is none.
        statistics: What the insight rests on; shown in its place if it is empty.
        parent: The strategy to improve on.
        context: Other strategies; their texts are shown only where there is no insight.
        failure: The failed attempt that this one repairs, if any.
    """

    task: str
    window: SearchWindow
    insight: str
    statistics: str
    parent: ShownStrategy
    context: tuple[ShownStrategy, ...]
    failure: FailedAttempt | None = None


def label_prompt(
    task: str,
    evaluator_source: str,
    packages: Sequence[str] = (),
    form: ProgramForm = PYTHON_TEXT,
) -> Prompt:
    """The messages that ask for the advice behind the labels; without packages, numpy and scipy."""
    values = {"task": task, "evaluator_source": evaluator_source, "packages": packages}
    user = render("label.txt", **values, form=form)
    return Prompt(render("label_system.txt"), user, PromptData("labels"))


def insight_prompt(
    task: str,
    statistics: str,
    strategies: Sequence[ShownStrategy],
    facts: Mapping[str, str] | None = None,
    order: PromptOrder = DEFAULT_ORDER,
) -> Prompt:
    """The messages that ask what the history of the search shows.

    Args:
        task: Problem text of the benchmark.
        statistics: What is known of the population, as `population_text` writes it.
        strategies: The strategies that are shown beside the parent strategy.
        facts: The facts in `statistics` by name, for the data beside the text.
        order: Whether the form of the report comes first or last.
    """
    values = {"task": task, "statistics": statistics, "strategies": strategies, "order": order}
    user = render("insight.txt", **values)
    standings = tuple(strategy.standing for strategy in strategies)
    data = PromptData("insight", facts=facts or {}, standings=standings)
    return Prompt(render("insight_system.txt"), user, data)


def strategy_prompt(request: StrategyRequest, order: PromptOrder = DEFAULT_ORDER) -> Prompt:
    """The messages that ask for a new strategy."""
    values = {**fields_of(request), "order": order}
    has_failure = request.failure is not None
    return Prompt(
        render("strategy_system.txt", **values),
        render("strategy.txt", **values),
        PromptData("strategy", request.parent.source, has_failure=has_failure),
    )


def label_text(label: str, labels: Labels) -> str:
    """The words above a parent's code; empty without a label or without its advice.

    Raises:
        ValueError: If the label is not "", `diverge` or `refine`.
    """
    advice = {"": "", "diverge": labels.diverge, "refine": labels.refine}
    if label not in advice:
        raise ValueError(f"label is {label!r}; expected '', 'diverge' or 'refine'")
    guidance = advice[label]
    return render(f"{label}.txt", guidance=guidance).strip() if guidance else ""
