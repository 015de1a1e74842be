"""What is known of a population of candidates, as text of bounded length."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles

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


@dataclass(frozen=True, slots=True)
class PopulationRow:
    """One candidate of the population.

    Attributes:
        id: Unique in the population.
        iteration: When it was found, 0 for the initial program.
        score: Its score.
        parent_id: What it was made from; None for the initial program.
        label: Label its parent was handed over with; "" for none.
        context_ids: What was shown beside its parent.
    """

    id: str
    iteration: int
    score: float
    parent_id: str | None = None
    label: str = ""
    context_ids: tuple[str, ...] = ()


def population_text(rows: Sequence[PopulationRow], iteration: int, threshold: float) -> str:
    """Size, scores, reuse and recent history of a population, one fact per line."""
    facts = population_facts(rows, iteration, threshold)
    lines = [f"- {name}: {value}" for name, value in facts.items()]
    return "\n".join([*lines, "", "Latest candidates:", "", trace_text(rows, 0, iteration)])


def population_facts(
    rows: Sequence[PopulationRow], iteration: int, threshold: float
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
    fruitless = f"{_fruitless(ordered, iteration, threshold)} of {iteration}"
    return {
        **_score_facts([row.score for row in ordered]),
        f"iterations without an improvement of more than {threshold:g}": fruitless,
        **_reuse_facts(ordered),
        **_recent_facts(ordered),
    }


def trace_text(rows: Sequence[PopulationRow], since: int, until: int) -> str:
    """Return a table of the latest candidates of some iterations: what each was made from.

    Args:
        rows: All candidates; parents and context are looked up among them.
        since: Iterations before the first one shown.
        until: The last iteration shown.
    """
    scores = {row.id: row.score for row in rows}
    ordered = sorted(rows, key=lambda row: row.iteration)
    made = [row for row in ordered if row.parent_id and since < row.iteration <= until]
    if not made:
        return "No candidates were found."
    head = ["| iteration | score | label | parent | context |", "|---|---|---|---|---|"]
    return "\n".join([*head, *(_trace_line(row, scores) for row in made[-NUM_TRACED:])])


def _score_facts(scores: Sequence[float]) -> dict[str, str]:
    low, middle, high = marks = _quartiles(scores)
    tiers = [
        f"{name} {_share(sum(is_in(score, marks) for score in scores), len(scores))}"
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


def _quartiles(scores: Sequence[float]) -> Quartiles:
    if len(scores) == 1:
        return scores[0], scores[0], scores[0]
    low, middle, high = quantiles(scores, n=4, method="inclusive")
    return low, middle, high


def _fruitless(ordered: Sequence[PopulationRow], iteration: int, threshold: float) -> int:
    """Return the iterations since the best score last rose by more than the threshold."""
    best, latest = ordered[0].score, ordered[0].iteration
    for row in ordered[1:]:
        if row.score - best > threshold:
            latest = row.iteration
        best = max(best, row.score)
    return iteration - latest


def _reuse_facts(ordered: Sequence[PopulationRow]) -> dict[str, str]:
    made = [row for row in ordered if row.parent_id]
    shown = [row for row in made if row.context_ids]
    contexts = (each for row in shown for each in row.context_ids)
    return {
        "most used parent": _most_used((row.parent_id or "" for row in made), len(made)),
        "most used in contexts": _most_used(contexts, len(shown)),
    }


def _most_used(ids: Iterable[str], total: int) -> str:
    counts = Counter(ids)
    if not counts:
        return "none yet"
    name, count = max(counts.items(), key=lambda item: item[1])
    return f"{name}, {count} of {total} times ({_share(count, total)})"


def _recent_facts(ordered: Sequence[PopulationRow]) -> dict[str, str]:
    scores = {row.id: row.score for row in ordered}
    made = [row for row in ordered if row.parent_id][-NUM_RECENT:]
    parents = [scores[row.parent_id] for row in made if row.parent_id in scores]
    return {
        "recent scores, oldest first": _series([row.score for row in made]),
        "scores of their parents": _series(parents),
    }


def _trace_line(row: PopulationRow, scores: Mapping[str, float]) -> str:
    context = ", ".join(_told(each, scores) for each in row.context_ids[:NUM_SHOWN_CONTEXTS])
    parent = _told(row.parent_id or "", scores)
    cells = (str(row.iteration), f"{row.score:.4f}", row.label or "none", parent, context or "none")
    return f"| {' | '.join(cells)} |"


def _told(name: str, scores: Mapping[str, float]) -> str:
    return f"{name} ({scores[name]:.4f})" if name in scores else name


def _series(scores: Sequence[float]) -> str:
    return ", ".join(f"{score:.4f}" for score in scores) or "none yet"


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.1f}%"
