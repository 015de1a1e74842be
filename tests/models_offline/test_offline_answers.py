import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offline_programs import AREA, PACKING, PROGRAMS, generation, guide, messages, scene, shown

from costada.models.offline import OfflineModel
from costada.models.offline.answers import FAILURE_RATE, answer, fenced, replace_blocks
from costada.models.offline.ideas import IDEAS, find_idea
from costada.prompts.replies import Proposal, parse_program
from costada.prompts.requests import FailedAttempt
from costada.prompts.tactics import Tactic, TriedTactic, parse_tactics

SEEDS = range(150)


def proposal(text: str, code: str, entry_point: str) -> Proposal | None:
    read = parse_program(text, code, entry_point)
    return read if isinstance(read, Proposal) else None


def compiles(code: str) -> bool:
    try:
        compile(code, "candidate", "exec")
    except SyntaxError:
        return False
    return True


def is_sound(text: str, code: str, entry_point: str) -> bool:
    read = proposal(text, code, entry_point)
    return read is not None and compiles(read.code) and "[:-1]" not in read.code


@pytest.mark.parametrize("name", PROGRAMS)
def test_most_answers_hold_a_program_and_about_one_in_ten_fails(name):
    code, prompt = PROGRAMS[name], generation(PROGRAMS[name]).data
    entry_point = "run_packing" if name == "packing" else "run"
    failed = sum(not is_sound(answer(prompt, Random(seed)), code, entry_point) for seed in SEEDS)
    assert 0.4 * FAILURE_RATE < failed / len(SEEDS) < 1.6 * FAILURE_RATE


def test_the_answer_after_a_failed_attempt_is_not_spoilt():
    prompt = generation(failure=FailedAttempt("it broke")).data
    assert all(is_sound(answer(prompt, Random(k)), PACKING, "run_packing") for k in range(50))


def test_answers_come_as_blocks_and_at_times_as_a_whole_program():
    texts = [answer(generation().data, Random(seed)) for seed in range(50)]
    blocks = sum("<<<<<<< SEARCH" in text for text in texts)
    assert 30 < blocks < 50
    assert sum("```python" in text for text in texts) > 2
    assert all(text.startswith("Offline model: ") for text in texts)


@pytest.mark.parametrize("idea", IDEAS, ids=lambda each: each.approach)
def test_a_tactic_is_carried_out_where_the_program_offers_a_place(idea):
    cheap = find_idea("numpy.linalg.norm", "").edit(scene(PACKING), Random(0)).code
    codes = [PACKING, search_added(), cheap]
    fitting = [code for code in codes if idea.fits(scene(code))]
    assert fitting
    for code in fitting:
        prompt = generation(code, tactic=as_tactic(idea), tactic_mode="breakthrough").data
        verb = idea.edit(scene(code), Random(0)).summary.split()[0]
        assert all(f" {verb} " in answer(prompt, Random(seed)) for seed in range(3))


def as_tactic(idea) -> Tactic:
    return Tactic(idea=idea.idea, description=idea.steps, approach_type=idea.approach)


def search_added() -> str:
    found = find_idea("numpy.random.Generator.integers", "")
    return found.edit(scene(PACKING), Random(0)).code


@pytest.mark.parametrize(
    ("approach", "text", "expected"),
    [
        ("numpy.exp", "", "numpy.exp"),
        ("scipy.optimize.minimize()", "", "scipy.optimize.minimize"),
        ("scipy.optimize.dual_annealing", "Simulated annealing.", "numpy.exp"),
        ("own.code", "Precompute all distances with broadcasting.", "numpy.linalg.norm"),
        ("scipy.optimize.linprog", "Solve a linear program.", "numpy.minimum"),
    ],
)
def test_tactics_by_others_are_understood_by_their_words(approach, text, expected):
    assert find_idea(approach, text).approach == expected


def test_an_idea_nobody_knows_leads_to_a_usual_edit():
    assert find_idea("own.code", "Something else entirely.") is None
    tactic = Tactic(idea="Else.", description="Else.", approach_type="own.code")
    prompt = generation(tactic=tactic, tactic_mode="refinement").data
    assert any("SEARCH" in answer(prompt, Random(seed)) for seed in range(3))


@pytest.mark.parametrize("mode", ["breakthrough", "refinement"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_guide_answers_with_three_tactics_of_different_approaches(mode, name):
    for seed in range(3):
        reply = OfflineModel(seed=seed).invoke(messages(guide(PROGRAMS[name], mode))).text
        tactics = parse_tactics(reply, 3)
        assert len({each.approach_type for each in tactics}) == 3
        assert all(5 <= len(re.findall(r"\. |\.$", each.description)) <= 10 for each in tactics)


def test_a_guide_proposes_searches_first_and_refinements_of_a_search_later():
    searches = {each.approach for each in IDEAS if each.is_search}
    assert tactics(guide(PACKING, "breakthrough")) <= searches
    assert tactics(guide(search_added(), "refinement")).isdisjoint(searches)


def tactics(prompt) -> set[str]:
    return {each.approach_type for each in parse_tactics(answer(prompt.data, Random(0)), 3)}


def test_a_guide_leaves_out_what_has_failed():
    failed = [each for each in IDEAS if each.is_search][:3]
    tried = tuple(TriedTactic(as_tactic(each), 0.0) for each in failed)
    assert tactics(guide(tried=tried)).isdisjoint({each.approach for each in failed})


@pytest.mark.parametrize(
    "code", ["def run(:\n", "x = " + "(" * 300 + ")" * 300, "x = '\0'\n", "pass\n"]
)
def test_a_program_that_cannot_be_read_or_changed_is_answered_in_prose(code):
    text = answer(generation(code).data, Random(0))
    assert text.startswith("Offline model: ")
    assert "```" not in text
    assert len(parse_tactics(answer(guide(code).data, Random(0)), 3)) == 3


def test_a_deeply_nested_program_is_answered():
    code = "def run():\n    return " + " + ".join(["0.5"] * 3000) + "\n"
    assert answer(generation(code).data, Random(0)).startswith("Offline model: ")


LINES = st.lists(st.sampled_from(["    a = 1", "    b = 2", "", "    c = 3"]), max_size=12)


@given(LINES, LINES)
@settings(max_examples=100)
def test_blocks_turn_one_program_into_the_other(old, new):
    before, after = ("\n".join(["def run():", *part, "    return 0"]) for part in (old, new))
    blocks = replace_blocks(before, after)
    if blocks is None or before == after:
        return
    read = proposal(blocks, before, "run")
    assert read is not None
    assert read.code.strip() == after.strip()


def test_a_fence_is_longer_than_the_backticks_inside():
    assert fenced('x = """\n```\n"""').startswith("````python\n")


def test_crossover_takes_parts_of_the_other_programs_shown():
    other = PACKING.replace("0.7", "0.4321")
    prompt = generation(others=(shown(other), shown(AREA))).data
    texts = (answer(prompt, Random(seed)) for seed in range(60))
    assert any("from another program" in text and "0.4321" in text for text in texts)
