"""Programs, tactics, labels, insights and strategies that the offline model answers with."""

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offline_programs import (
    AREA,
    PACKING,
    PROGRAMS,
    SEARCHED,
    edit_context,
    generation,
    guide,
    messages,
    shown,
    value,
)
from rows import population_row

from costada.evaluators.sandbox.layers import Layer
from costada.plugins.evox.prompts import (
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
from costada.plugins.evox.strategies import (
    Selection,
    StrategyRecord,
    check_strategy,
    initial_strategy,
    select_context,
)
from costada.plugins.offline import OfflineModel
from costada.plugins.offline.answers import (
    FAILURE_RATE,
    STRATEGIES,
    answer,
    fenced,
    replace_blocks,
    strategy_text,
)
from costada.plugins.offline.ideas import IDEAS, SEARCH, find_idea
from costada.plugins.offline.searches import complete
from costada.prompts.changes import read_change
from costada.prompts.requests import FailedAttempt, PromptData, TrialData, prompt_data, trial_data
from costada.prompts.tactics import Tactic, TriedTactic, parse_tactics
from costada.values.candidate import Program
from costada.values.program_form import ProgramForm


def is_sound(reply: str, code: str) -> bool:
    form = ProgramForm(entry_point="run_packing" if code == PACKING else "run")
    read = read_change(reply, Program.of(code), form)
    try:
        compile(read.program.text, "candidate", "exec")
    except (AttributeError, SyntaxError):
        return False
    return "[:-1]" not in read.program.text


@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS)
def test_most_answers_hold_a_program_and_about_one_in_ten_fails(code):
    replies = [answer(generation(code).data, Random(seed)) for seed in range(150)]
    failed = sum(not is_sound(reply, code) for reply in replies)
    assert 0.4 * FAILURE_RATE < failed / len(replies) < 1.6 * FAILURE_RATE
    assert 90 < sum("<<<<<<< SEARCH" in reply for reply in replies) < 150
    assert sum("```python" in reply for reply in replies) > 6
    assert all(reply.startswith("Offline model: ") for reply in replies)


@pytest.mark.parametrize("how", ["failure", "earlier_failures"])
def test_the_answer_after_a_failed_attempt_is_not_spoilt(how):
    failed = FailedAttempt("it broke")
    data = generation(**{how: failed if how == "failure" else (failed, failed)}).data
    assert all(is_sound(answer(data, Random(seed)), PACKING) for seed in range(50))


@pytest.mark.parametrize("idea", IDEAS, ids=lambda each: each.approach)
def test_a_tactic_is_carried_out_where_the_program_offers_a_place(idea):
    cheap = find_idea("numpy.linalg.norm", "").edit(edit_context(PACKING), Random(0)).code
    empty = PACKING.replace("centers[0] = (0.5, 0.5)", "").replace("centers[", "other[")
    shown_others = (shown(PACKING.replace("0.7", "0.5")),)
    fitting = [
        (code, edit)
        for code in (PACKING, SEARCHED[0], cheap, empty)
        if (edit := idea.edit(edit_context(code, shown_others[0].code), Random(0)))
    ]
    assert fitting
    for code, edit in fitting:
        tactic = {"tactic": as_tactic(idea), "tactic_mode": "breakthrough"}
        data = generation(code, others=shown_others, **tactic).data
        verb = edit.summary.split()[0]
        assert all(f" {verb} " in answer(data, Random(seed)) for seed in range(3))


def as_tactic(idea) -> Tactic:
    return Tactic(idea=idea.idea, description=idea.steps, approach_type=idea.approach)


@pytest.mark.parametrize(
    ("approach", "text", "expected"),
    [
        ("numpy.exp", "", "numpy.exp"),
        ("scipy.optimize.minimize()", "", "scipy.optimize.minimize"),
        ("scipy.optimize.dual_annealing", "Simulated annealing.", "numpy.exp"),
        ("own.code", "Precompute all distances with broadcasting.", "numpy.linalg.norm"),
        ("own.code", "Tune the threshold.", "numbers.tune"),
        ("scipy.optimize.linprog", "Solve a linear\n program.", "numpy.minimum"),
    ],
)
def test_tactics_by_others_are_understood_by_their_words(approach, text, expected):
    assert find_idea(approach, text).approach == expected


def test_an_unknown_idea_leads_to_a_usual_edit():
    assert find_idea("own.code", "Something else entirely.") is None
    tactic = Tactic(idea="Else.", description="Else.", approach_type="own.code")
    data = generation(tactic=tactic, tactic_mode="refinement").data
    assert any("SEARCH" in answer(data, Random(seed)) for seed in range(3))


def tactics(prompt, seed: int = 0) -> dict[str, str]:
    found = parse_tactics(answer(prompt.data, Random(seed)), 3)
    return {each.approach_type: each.description for each in found}


@pytest.mark.parametrize("mode", ["breakthrough", "refinement"])
@pytest.mark.parametrize("code", [*PROGRAMS.values(), "def run(:\n", "pass\n"])
def test_a_guide_answers_with_three_tactics_of_different_approaches(mode, code):
    for seed in range(3):
        found = tactics(guide(code, mode), seed)
        assert len(found) == 3
        assert all(5 <= len(re.findall(r"\. |\.$", each)) <= 10 for each in found.values())


def test_a_guide_proposes_searches_first_and_refinements_later_and_nothing_that_failed():
    searches = [each for each in IDEAS if each.kind == SEARCH]
    approaches = {each.approach for each in searches}
    assert set(tactics(guide(PACKING))) <= approaches
    assert approaches.isdisjoint(tactics(guide(SEARCHED[0], "refinement")))
    tried = tuple(TriedTactic(as_tactic(each), 0.0) for each in searches[:3])
    assert {each.approach for each in searches[:3]}.isdisjoint(tactics(guide(tried=tried)))


LINES = st.lists(st.sampled_from(["    a = 1", "    b = 2", "", "    c = 3"]), max_size=12)


@given(LINES, LINES)
@settings(max_examples=100)
def test_blocks_turn_one_program_into_the_other(old, new):
    before, after = ("\n".join(["def run():", *part, "    return 0"]) for part in (old, new))
    blocks = replace_blocks(before, after)
    if blocks is None or before == after:
        return
    form = ProgramForm(entry_point="run")
    assert read_change(blocks, Program.of(before), form).program.text.strip() == after.strip()


def test_a_fence_is_longer_than_the_backticks_inside():
    assert fenced('x = """\n```\n"""').startswith("````python\n")


def test_crossover_takes_parts_of_the_other_programs_shown():
    other = PACKING.replace("0.7", "0.4321")
    prompt = generation(others=(shown(other), shown(AREA))).data
    texts = (answer(prompt, Random(seed)) for seed in range(60))
    assert any("from another program" in text and "0.4321" in text for text in texts)


def test_lines_of_another_program_come_with_the_search_that_they_call():
    other = SEARCHED[0]
    call = next(line for line in other.split("\n") if ", evaluations=" in line)
    taken = PACKING.replace("    return centers,", f"{call}\n    return centers,")
    assert "def row_search(" in complete(taken)
    assert value(complete(taken)) == value(other)


def strategy_data(
    source: str = initial_strategy(), failure: FailedAttempt | None = None
) -> PromptData | None:
    window = SearchWindow(13, 100, 10, 0.01)
    parent = ShownStrategy(source, 0.1, 0, 11, 0.3, 0.5)
    request = StrategyRequest("Pack circles.", window, "Stuck.", "", parent, (), failure)
    return strategy_prompt(request).data


def is_known(reply: str) -> bool:
    return parse_strategy(reply) in map(strategy_text, STRATEGIES)


def chosen(name: str, scores: list[float], seed: int = 1) -> Selection:
    """What a strategy selects among candidates of these scores, the first the initial program."""
    records = [
        StrategyRecord(
            id=f"{number}.1",
            code=f"def run():\n    return {number * 'x'!r}\n",
            score=score,
            metrics={},
            error=None,
            parent_id="0.1" if number else None,
            iteration=number,
            generation=min(number, 1),
        )
        for number, score in enumerate(scores)
    ]
    return select_context(strategy_text(name), records, 4, seed, Layer.PROCESS)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_at_hand_is_valid_and_prefers_good_parents(name):
    assert check_strategy(strategy_text(name), Layer.PROCESS) is None
    scores = [0.5 + 0.05 * (number % 6) for number in range(12)]
    selections = [chosen(name, scores, seed) for seed in range(12)]
    assert all(len(each.context_ids) == 4 for each in selections)
    parents = [int(each.parent_id.split(".")[0]) for each in selections]
    assert sum(scores[number] for number in parents) / 12 > 0.625


def test_a_strategy_that_sees_no_progress_diverges():
    assert chosen("patient", [0.9, *[0.5] * 6]).label == "diverge"
    assert chosen("patient", [0.5, 0.9]).label == ""


def test_about_one_strategy_in_ten_is_spoilt_and_found_out():
    replies = [answer(strategy_data(), Random(seed)) for seed in range(200)]
    spoilt = [reply for reply in replies if not is_known(reply)]
    assert 0.4 * FAILURE_RATE < len(spoilt) / len(replies) < 1.6 * FAILURE_RATE
    assert {parse_strategy(reply) for reply in replies if is_known(reply)} == {
        strategy_text(name) for name in STRATEGIES
    }
    sources = {parse_strategy(reply) for reply in spoilt}
    texts = [source for source in sources if isinstance(source, str)]
    assert 0 < len(texts) < len(sources)
    assert all(check_strategy(source, Layer.PROCESS) for source in texts)


def test_the_strategy_after_a_failed_attempt_is_sound_and_none_repeats_its_parent():
    text = strategy_text("patient")
    data = strategy_data(text, FailedAttempt("IndexError", "class Strategy: ..."))
    replies = [answer(data, Random(seed)) for seed in range(100)]
    assert all(is_known(reply) for reply in replies)
    assert text not in map(parse_strategy, replies)


def test_labels_are_ideas_for_both_headings():
    prompt = label_prompt("Pack circles.", "def evaluate(): ...")
    for seed in range(10):
        labels = parse_labels(OfflineModel(seed=seed).invoke(messages(prompt)).text)
        assert 3 <= len(labels.diverge.split("\n")) <= 6
        assert 3 <= len(labels.refine.split("\n")) <= 5


def test_an_insight_repeats_the_numbers_that_it_was_shown():
    rows = [population_row("0.1", 0, 0.25), population_row("1.1", 1, 0.5, "0.1")]
    statistics, facts = population_text(rows, 9, 0.01), population_facts(rows, 9, 0.01)
    strategies = (ShownStrategy(initial_strategy(), 0.1, 0, 11, 0.3, 0.5),) * 2
    prompt = insight_prompt("Pack circles.", statistics, strategies, facts)
    text = OfflineModel().invoke(messages(prompt)).text
    assert "Candidates: 2." in text
    assert "Iterations without an improvement of more than 0.01: 8 of 9." in text
    assert "## Strategy 2\n\nIn use from iteration 1 to 11. Best score 0.300000" in text


TACTIC = Tactic(idea="Anneal it.", description="Slowly.", approach_type="numpy.exp")


def test_a_generation_prompt_carries_what_it_was_made_of():
    failure = FailedAttempt("it broke", "x = 1\n")
    prompt = generation(
        action="exploration",
        others=(shown(AREA),),
        tactic=TACTIC,
        tactic_mode="refinement",
        failure=failure,
    )
    assert prompt.data == PromptData(
        kind="generation",
        program=PACKING,
        score=0.4,
        others=(AREA,),
        other_scores=(0.4,),
        action="exploration",
        mode="refinement",
        approach="numpy.exp",
        idea="Anneal it. Slowly.",
        has_failure=True,
    )
    assert generation(earlier_failures=(failure,)).data.has_failure


def test_a_label_counts_as_the_action_that_it_asks_for():
    assert generation(label="Polish.", label_name="refine").data.action == "exploitation"
    assert generation(label="", label_name="refine").data.action == "balanced"


def test_a_guide_prompt_carries_program_mode_and_failed_approaches():
    other = TACTIC.model_copy(update={"approach_type": "numpy.log"})
    data = guide(mode="refinement", tried=(TriedTactic(TACTIC, 0.0), TriedTactic(other, 0.5))).data
    assert data == PromptData("guide", PACKING, score=0.4, mode="refinement", failed=("numpy.exp",))


def test_data_are_read_back_from_a_message():
    data, trial = generation().data, TrialData("3.1.2", 0.5)
    both = (data.kwargs, (data, None)), (trial.kwargs, (None, trial))
    for kwargs, found in (*both, ({}, (None, None))):
        assert (prompt_data(kwargs), trial_data(kwargs)) == found
    with pytest.raises(ValueError, match="kind: got 'poem', expected"):
        answer(PromptData("poem"), Random(0))
