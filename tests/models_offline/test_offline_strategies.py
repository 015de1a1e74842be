from random import Random

import pytest
from offline_programs import messages

from costada.evaluators.sandbox.layers import Layer
from costada.models.offline import OfflineModel
from costada.models.offline.answers import FAILURE_RATE, STRATEGIES, answer, strategy_text
from costada.nodes.evox.strategies import (
    Selection,
    StrategyRecord,
    check_strategy,
    initial_strategy,
    select_sources,
)
from costada.prompts.evox import (
    InsightRequest,
    LabelRequest,
    PopulationRow,
    SearchWindow,
    ShownStrategy,
    StrategyRequest,
    insight_prompt,
    label_prompt,
    parse_labels,
    parse_strategy,
    population_facts,
    population_text,
    strategy_prompt,
)
from costada.prompts.render import generation_prompt
from costada.prompts.requests import FailedAttempt, GenerationRequest, ShownProgram
from costada.values.prompt_data import PromptData

SEEDS = range(200)
INITIAL = ShownStrategy(initial_strategy(), 0.1, 0, 11, 0.3, 0.5, "No candidates were found.")


def strategy_request(
    parent: ShownStrategy = INITIAL, failure: FailedAttempt | None = None
) -> PromptData:
    window = SearchWindow(13, 100, 10, 0.01)
    request = StrategyRequest("Pack circles.", window, "Stuck.", "", parent, (), failure)
    return strategy_prompt(request).data


def is_sound(reply: str) -> bool:
    source = parse_strategy(reply)
    return isinstance(source, str) and source in map(strategy_text, STRATEGIES)


def record(number: int, score: float) -> StrategyRecord:
    return StrategyRecord(
        id=f"{number}.1",
        code=f"def run():\n    return {number * 'x'!r}\n",
        score=score,
        metrics={},
        error=None,
        parent_id="0.1" if number else None,
        iteration=number,
        generation=min(number, 1),
    )


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_at_hand_is_valid(name):
    assert check_strategy(strategy_text(name), Layer.PROCESS) is None


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_at_hand_prefers_good_parents(name):
    records = [record(number, 0.5 + 0.05 * (number % 6)) for number in range(12)]
    scores = {each["id"]: each["score"] for each in records}
    chosen = [
        select_sources(strategy_text(name), records, 4, seed, Layer.PROCESS) for seed in range(12)
    ]
    assert all(isinstance(each, Selection) and len(each.context_ids) == 4 for each in chosen)
    assert sum(scores[each.parent_id] for each in chosen) / 12 > 0.625


def test_a_strategy_that_sees_no_progress_diverges():
    records = [record(0, 0.9), *(record(number, 0.5) for number in range(1, 7))]
    chosen = select_sources(strategy_text("patient"), records, 4, 1, Layer.PROCESS)
    assert chosen.label == "diverge"
    fresh = [record(0, 0.5), record(1, 0.9)]
    assert select_sources(strategy_text("patient"), fresh, 4, 1, Layer.PROCESS).label == ""


def test_most_answers_hold_a_strategy_and_about_one_in_ten_fails():
    replies = [answer(strategy_request(), Random(seed)) for seed in SEEDS]
    failed = sum(not is_sound(reply) for reply in replies)
    assert 0.4 * FAILURE_RATE < failed / len(SEEDS) < 1.6 * FAILURE_RATE
    assert {parse_strategy(reply) for reply in replies if is_sound(reply)} == {
        strategy_text(name) for name in STRATEGIES
    }


def test_what_is_broken_on_purpose_is_found_out():
    replies = {answer(strategy_request(), Random(seed)) for seed in SEEDS}
    sources = {parse_strategy(reply) for reply in replies if not is_sound(reply)}
    texts = [source for source in sources if isinstance(source, str)]
    assert len(texts) < len(sources)
    assert texts
    assert all(check_strategy(source, Layer.PROCESS) for source in texts)


def test_the_strategy_after_a_failed_attempt_is_not_spoilt():
    prompt = strategy_request(failure=FailedAttempt("IndexError", "class Strategy: ..."))
    assert all(is_sound(answer(prompt, Random(seed))) for seed in range(100))


def test_the_strategy_to_improve_on_is_not_repeated():
    shown = ShownStrategy(strategy_text("patient"), 0.1, 0, 11, 0.3, 0.5)
    replies = [answer(strategy_request(shown), Random(seed)) for seed in range(60)]
    assert strategy_text("patient") not in {parse_strategy(reply) for reply in replies}


def test_labels_are_ideas_for_both_headings():
    prompt = label_prompt(LabelRequest("Pack circles.", "def evaluate(): ..."))
    for seed in range(10):
        labels = parse_labels(OfflineModel(seed=seed).invoke(messages(prompt)).text)
        assert 3 <= len(labels.diverge.split("\n")) <= 6
        assert 3 <= len(labels.refine.split("\n")) <= 5


def test_an_insight_repeats_the_numbers_that_it_was_shown():
    rows = [PopulationRow("0.1", 0, 0.25), PopulationRow("1.1", 1, 0.5, "0.1")]
    statistics, facts = population_text(rows, 9, 0.01), population_facts(rows, 9, 0.01)
    prompt = insight_prompt(InsightRequest("Pack circles.", statistics, (INITIAL, INITIAL), facts))
    text = OfflineModel().invoke(messages(prompt)).text
    assert "Candidates: 2." in text
    assert "Iterations without an improvement of more than 0.01: 8 of 9." in text
    assert "## Strategy 2\n\nIn use from iteration 1 to 11. Best score 0.300000" in text


def test_an_answer_after_several_failed_attempts_is_not_spoilt():
    code = "def run():\n    return 0.5 + 0.25\n"
    shown = ShownProgram(code, 0.5, {}, {})
    failures = (FailedAttempt("it broke", code), FailedAttempt("again"))
    request = GenerationRequest(
        "Task.", shown, "balanced", (), 60.0, "run", earlier_failures=failures
    )
    prompt = generation_prompt(request).data
    replies = [answer(prompt, Random(seed)) for seed in range(60)]
    assert all("SEARCH" in reply or "```python" in reply for reply in replies)
