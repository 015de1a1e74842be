"""What a guide is told about the tactics of the guides before it."""

import re
from collections.abc import Callable

from fakes import ScriptedModel, is_guide_prompt, rewrite, toy_problem

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.nodes.settings import Settings
from costada.values.prices import Price

USES = 6
"""Attempts that follow one guide: three tactics, two uses each."""


def ideas(guide: int) -> str:
    idea = '{{"idea": "{0}", "description": "do it", "approach_type": "a.b"}}'
    return f'{{"ideas": [{", ".join(idea.format(f"{guide}.{n}") for n in (1, 2, 3))}]}}'


def guide_prompts(value: Callable[[int, int, bool], float], iterations: int) -> list[str]:
    """Return what the guides of a run were asked.

    `value` is the score of an attempt, by the guides so far, the attempts since the last one (from
    1) and whether the attempt has a tactic.
    """
    asked: list[str] = []
    since = [0]

    def answer(prompt: str) -> str:
        if is_guide_prompt(prompt):
            asked.append(prompt)
            since[0] = 0
            return ideas(len(asked))
        since[0] += 1
        return rewrite(value(len(asked), since[0], "## Tactic" in prompt))

    settings = Settings(price=Price("1", "2"), constants=Constants(max_iterations=iterations))
    model = ScriptedModel(answer=answer, prompts=[])
    create_discovery_graph(toy_problem(), model, budget=9.0, settings=settings).invoke({})
    return asked


def told(prompt: str) -> list[tuple[str, str, float]]:
    """Return outcome, idea and improvement of each tactic in the prompt of a guide."""
    lines = re.findall(r"(SUCCESS|FAILED): a\.b - (\S+) \(improvement (\S+)\)", prompt)
    return [(outcome, idea, float(rise)) for outcome, idea, rise in lines]


def test_a_rise_after_the_last_use_is_none_of_the_tactics():
    def value(guides: int, since: int, is_guided: bool) -> float:
        assert is_guided == (guides > 0 and since <= USES)
        return 0.9 if guides == 1 and since == USES + 1 else 0.05

    _, second, *_ = guide_prompts(value, 20)
    assert told(second) == [("FAILED", f"1.{n}", -0.05) for n in (1, 2, 3)]


def test_a_rise_at_the_last_use_counts_for_the_whole_batch():
    def value(guides: int, since: int, is_guided: bool) -> float:
        return 0.9 if guides == 1 and since == USES else 0.05

    _, second, *_ = guide_prompts(value, 20)
    assert told(second) == [("SUCCESS", f"1.{n}", 0.8) for n in (1, 2, 3)]


def test_ten_tactics_are_told_the_oldest_of_more_left_out():
    first, *_, last = guide_prompts(lambda *_: 0.05, 60)
    assert told(first) == []
    guides = int(told(last)[-1][1].split(".")[0])
    everything = [f"{guide}.{n}" for guide in range(1, guides + 1) for n in (1, 2, 3)]
    assert guides > 4
    assert [idea for _, idea, _ in told(last)] == everything[-10:]
