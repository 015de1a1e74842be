"""How much of a prompt a provider can have cached, in both orders, and the dollars it saves.

    python bench/prompt_cache.py [RECORDINGS]

RECORDINGS is `circle_packing.jsonl.gz` of recorded runs: each recorded proposal becomes a
generation prompt again, from its parent, the programs that it was shown, its siblings and its
tactic. Without it the prompts are those in the journals of runs of the offline model.

Two caches are reckoned with: one holds the prompt before, one every earlier prompt of the run.
Tokens are characters times `TOKENS_PER_CHARACTER`, as recorded. A cache hits from `FIRST_HIT`
tokens on and then in steps of `HIT_STEP`, as OpenAI's does. Dollars are of one generation call with
the recorded mean of answer tokens.
"""

import gzip
import json
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, get_args

from costada import OfflineModel, RunStore, discover, problem
from costada.prompts.render import Prompt, PromptOrder, generation_prompt
from costada.prompts.requests import GenerationRequest, ProgramView, Siblings
from costada.prompts.tactics import Tactic
from costada.values.usage import Price, Usage, call_cost

TOKENS_PER_CHARACTER = 0.328
FIRST_HIT, HIT_STEP = 1024, 128
ANSWER_TOKENS = 4576
"""Mean of a recorded generation call."""

PRICES = {
    "GLM-5": Price(Decimal("0.60"), Decimal("1.92"), Decimal("0.12")),
    "GPT-5.4": Price(Decimal("2.50"), Decimal("15.00"), Decimal("0.25")),
}
"""The paper's prices, with the list prices of tokens read from a cache."""

ORDERS: tuple[PromptOrder, ...] = get_args(PromptOrder)
OFFLINE_BUDGET, OFFLINE_SEEDS = 0.4, range(2)

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Overlap:
    """Tokens of a prompt, and those that were in the prompt before it, or in any earlier one."""

    tokens: int
    before: int
    earlier: int


def main() -> None:
    """Print a line for each order."""
    for order in ORDERS:
        runs = recorded_runs(Path(sys.argv[1]), order) if sys.argv[1:] else offline_runs(order)
        found = [each for run in runs for each in overlaps(run)]
        print(f"{order}: {len(found)} prompts, {mean(each.tokens for each in found):,.0f} tokens")
        for name in ("before", "earlier"):
            print(f"  {name:8} {_line([(each.tokens, getattr(each, name)) for each in found])}")


def _line(pairs: Sequence[tuple[int, int]]) -> str:
    """Shares of tokens that are common and that are read from the cache, and dollars of a call."""
    total = sum(tokens for tokens, _ in pairs)
    hits = [hit_tokens(same) for _, same in pairs]
    parts = [
        f"common {sum(same for _, same in pairs) / total:.1%}",
        f"cached {sum(hits) / total:.1%}",
    ]
    for name, price in PRICES.items():
        fresh, cached = (
            mean(
                call_cost(Usage(tokens, ANSWER_TOKENS, hit), price)
                for (tokens, _), hit in zip(pairs, read, strict=True)
            )
            for read in ([0] * len(hits), hits)
        )
        parts.append(f"{name} ${fresh:.5f} -> ${cached:.5f} ({1 - cached / fresh:.1%} less)")
    return "  ".join(parts)


def hit_tokens(same: int) -> int:
    """Tokens that a provider reads from its cache, of those that are the same."""
    return 0 if same < FIRST_HIT else FIRST_HIT + (same - FIRST_HIT) // HIT_STEP * HIT_STEP


def overlaps(prompts: Iterable[Prompt]) -> Iterator[Overlap]:
    """The overlap of each prompt of a run, in their order."""
    seen: list[str] = []
    for prompt in prompts:
        text = f"{prompt.system}\n\n{prompt.user}"
        same = [common_length(text, each) for each in seen]
        counts = (len(text), same[-1] if same else 0, max(same, default=0))
        yield Overlap(*(round(TOKENS_PER_CHARACTER * count) for count in counts))
        seen.append(text)


def common_length(one: str, other: str) -> int:
    """Characters of the longest beginning that two texts share."""
    lengths = range(1, min(len(one), len(other)) + 1)
    return bisect_left(lengths, True, key=lambda length: one[:length] != other[:length])


def recorded_runs(path: Path, order: PromptOrder) -> Iterator[list[Prompt]]:
    """The generation prompts of each recorded run whose prompts and answers were not cut."""
    runs: dict[str, list[Record]] = defaultdict(list)
    with gzip.open(path, "rt") as lines:
        for row in map(json.loads, lines):
            if row.get("code"):
                runs[row["run"]].append(row)
    for rows in runs.values():
        requests = recorded_requests(rows)
        if requests:
            yield [generation_prompt(request, order) for request in requests]


def recorded_requests(rows: Sequence[Record]) -> list[GenerationRequest]:
    """What the proposals of one run were asked, in the order in which they were made."""
    by_id = {row["id"]: row for row in rows}
    task = problem("circle_packing")
    requests = []
    for row in sorted(rows, key=lambda row: row["iteration"]):
        parent = by_id.get(row["parent_id"] or "")
        if row["kind"] != "proposal" or row["regime"] != "full" or parent is None:
            continue
        children = row["prior_children"] or ()
        tactic = row["guided"] and row["guide_text"]
        requests.append(
            GenerationRequest(
                task=task.task,
                current=shown(parent),
                action={"explore": "exploration", "exploit": "exploitation"}.get(
                    row["sampling"], "balanced"
                ),
                others=tuple(shown_before(row, rows)),
                timeout=task.limits.wall_seconds,
                entry_point=task.entry_point,
                tactic=tactic_of(tactic) if tactic else None,
                tactic_mode="breakthrough" if tactic else None,
                siblings=Siblings(children[0][0], tuple(score for _, score in children))
                if children
                else None,
            )
        )
    return requests


def tactic_of(text: Mapping[str, str] | str) -> Tactic:
    """The idea that a proposal was to implement; some runs recorded its parts apart."""
    parts = {"idea": text, "how": text} if isinstance(text, str) else text
    return Tactic(
        idea=parts.get("idea") or "recorded",
        description=parts.get("how") or "recorded",
        approach_type="recorded",
    )


def shown_before(row: Record, rows: Sequence[Record]) -> Iterator[ProgramView]:
    """The programs that a proposal was shown, found by the scores that were printed."""
    for score in row["context_scores"] or ():
        known = (each for each in rows if each["iteration"] < row["iteration"])
        found = [each for each in known if abs((each["score"] or 0.0) - score) < 6e-5]
        if found:
            yield shown(found[-1])


def shown(row: Record) -> ProgramView:
    """A recorded program as a prompt shows it."""
    metrics = {"sum_radii": row["sum_radii"]} if row["sum_radii"] else {}
    return ProgramView(row["code"], row["score"] or 0.0, metrics, {}, row["error"])


def offline_runs(order: PromptOrder) -> Iterator[list[Prompt]]:
    """The generation prompts of runs of the offline model, from their journals."""
    for seed in OFFLINE_SEEDS:
        with TemporaryDirectory() as folder:
            discover(
                "circle_packing",
                OfflineModel(),
                budget=OFFLINE_BUDGET,
                seed=seed,
                prompt_order=order,
                out=Path(folder) / "run",
            )
            with RunStore(Path(folder) / "run" / "run.sqlite", is_read_only=True) as store:
                (run_id,) = store.run_ids()
                asked = [call for call in store.call_log.calls(run_id) if call.role != "guide"]
                task = problem("circle_packing").task
                yield [Prompt(task, call.prompt) for call in asked]


if __name__ == "__main__":
    main()
