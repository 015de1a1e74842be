from dataclasses import replace

import pytest

from costada.prompts.render import CODE_LIMIT, TEXT_LIMIT, cut, generation_prompt, guide_prompt
from costada.prompts.requests import (
    FailedAttempt,
    GenerationRequest,
    GuideRequest,
    ShownProgram,
    Siblings,
)
from costada.prompts.tactics import Tactic, TriedTactic

PARENT = ShownProgram(
    code="# EVOLVE-BLOCK-START\ndef pack():\n    return 1\n# EVOLVE-BLOCK-END\n",
    score=0.36424,
    metrics={"sum_radii": 0.95976},
    artifacts={},
)
OTHER = ShownProgram("def pack():\n    return 2\n", 0.5, {}, {}, error="circles overlap")
TACTIC = Tactic(
    idea="Solve for all radii at once",
    description="Set up one linear program.\nSolve it for fixed centres.",
    approach_type="scipy.optimize.linprog",
)
REQUEST = GenerationRequest(
    task="Pack 26 circles.",
    current=PARENT,
    action="balanced",
    others=(OTHER,),
    timeout=360.0,
    entry_point="pack",
)
GUIDE = GuideRequest(
    task="Pack 26 circles.",
    evaluator_source="def evaluate(program): ...",
    best=PARENT,
    mode="breakthrough",
    tried=(),
    timeout=600.0,
    count=3,
)


def headings(text: str) -> list[str]:
    """Headings outside fences; programs hold comment lines that look like headings."""
    found, closing = [], ""
    for line in text.split("\n"):
        if closing:
            closing = "" if line == closing else closing
        elif line.startswith("```"):
            closing = "`" * (len(line) - len(line.lstrip("`")))
        elif line.startswith("#"):
            found.append(line)
    return found


def test_the_problem_text_is_the_system_message_unchanged():
    request = replace(REQUEST, task="  Pack {{ 26 }} circles & more.\n\n")
    assert generation_prompt(request).system == request.task


def test_a_plain_generation_prompt_has_the_fixed_parts_in_order():
    assert headings(generation_prompt(REQUEST).user) == [
        "# Current program assessment",
        "# Previous attempts",
        "# Other programs",
        "## Program 1",
        "# Current program",
        "# Task",
    ]


def test_guidance_parts_appear_in_order_when_all_are_there():
    request = replace(
        REQUEST,
        current=replace(PARENT, artifacts={"feedback": "corner is empty"}),
        tactic=TACTIC,
        tactic_mode="breakthrough",
        siblings=Siblings(0.36424, (0.4,)),
        failure=FailedAttempt("NameError: np", "def pack():\n    return np\n"),
    )
    user = generation_prompt(request).user
    assert headings(user)[-6:] == [
        "# Search guidance",
        "## Evaluator feedback",
        "## Tactic",
        "## Sibling results",
        "## Failed attempt",
        "# Task",
    ]
    assert "corner is empty" in user
    assert "```text\nNameError: np\n```" in user
    assert "```python\ndef pack():\n    return np\n```" in user


def test_programs_are_shown_whole_with_score_error_and_metrics():
    user = generation_prompt(REQUEST).user
    current = user.split("# Current program\n")[1]
    assert "Score: 0.3642\n- sum_radii: 0.9598\n\n```python\n" + PARENT.code + "```\n" in current
    other = user.split("## Program 1\n")[1]
    assert other.startswith("\nScore: 0.5000\nError:\n```text\ncircles overlap\n```\n\n```python\n")


def test_the_task_names_entry_point_time_limit_markers_and_both_answer_forms():
    task = generation_prompt(REQUEST).user.split("# Task\n")[1]
    for expected in (
        "`pack` stays defined",
        "after 360 seconds",
        "EVOLVE-BLOCK",
        "<<<<<<< SEARCH\n",
        "\n=======\n",
        "\n>>>>>>> REPLACE\n",
        "character by character",
        "one complete program",
    ):
        assert expected in task


def test_without_an_entry_point_the_task_speaks_of_what_the_evaluator_uses():
    user = generation_prompt(replace(REQUEST, entry_point=None)).user
    assert "- What the evaluator uses stays defined" in user


def test_the_task_mentions_no_editable_block_where_there_is_none():
    request = replace(REQUEST, current=OTHER)
    assert "EVOLVE-BLOCK" not in generation_prompt(request).user.split("# Task\n")[1]


@pytest.mark.parametrize(
    ("action", "words"),
    [("exploration", "different algorithm"), ("exploitation", "among the best so far")],
)
def test_the_action_sets_the_label_above_the_parent(action, words):
    labelled = generation_prompt(replace(REQUEST, action=action)).user
    plain = generation_prompt(REQUEST).user
    assert words in labelled.split("# Current program\n")[1].split("```python")[0]
    assert words not in plain


def test_only_a_program_over_500_characters_is_asked_to_be_simpler():
    short = replace(REQUEST, current=replace(PARENT, code="x" * 500))
    long = replace(REQUEST, current=replace(PARENT, code="x" * 501))
    assert "less code" not in generation_prompt(short).user
    assert "less code" in generation_prompt(long).user


def test_a_tactic_is_shown_field_by_field_on_single_lines():
    user = generation_prompt(replace(REQUEST, tactic=TACTIC, tactic_mode="refinement")).user
    assert (
        "Idea: Solve for all radii at once\n"
        "How: Set up one linear program. Solve it for fixed centres.\n"
        "Target: score\n"
        "Cautions: none\n"
        "Approach: scipy.optimize.linprog\n"
    ) in user
    assert "builds on a recent success" in user
    assert "keep the structure" in user


def test_a_breakthrough_tactic_says_that_the_search_has_stalled():
    user = generation_prompt(replace(REQUEST, tactic=TACTIC, tactic_mode="breakthrough")).user
    assert "stopped making progress" in user
    assert "recent success" not in user


def test_the_five_latest_siblings_are_listed_with_their_outcome():
    siblings = Siblings(0.5, (0.9, 0.5009, 0.4991, 0.502, 0.498, 0.75))
    user = generation_prompt(replace(REQUEST, siblings=siblings)).user
    assert "0.9000" not in user
    assert (
        "- 0.5000 -> 0.5009 (+0.0009, unchanged)\n"
        "- 0.5000 -> 0.4991 (-0.0009, unchanged)\n"
        "- 0.5000 -> 0.5020 (+0.0020, improved)\n"
        "- 0.5000 -> 0.4980 (-0.0020, regressed)\n"
        "- 0.5000 -> 0.7500 (+0.2500, improved)\n"
        "\n"
        "2 improved, 1 regressed, 2 unchanged."
    ) in user


def test_long_errors_artifacts_and_failed_programs_are_cut():
    request = replace(
        REQUEST,
        current=replace(PARENT, artifacts={"stderr": "a" * (TEXT_LIMIT + 1)}),
        failure=FailedAttempt("é" * (TEXT_LIMIT + 1), "ö" * (CODE_LIMIT + 1)),
    )
    user = generation_prompt(request).user
    assert user.count("é") == TEXT_LIMIT
    assert user.count("ö") == CODE_LIMIT
    assert "a" * TEXT_LIMIT + "\n[the first 2000 of 2001 characters]" in user
    assert cut("abc", 3) == "abc"


def test_a_program_cannot_close_its_own_fence():
    code = 'NOTE = """\n```\n# Task\n````\n"""\n'
    user = generation_prompt(replace(REQUEST, current=replace(PARENT, code=code))).user
    assert "`````python\n" + code + "`````\n" in user
    assert headings(user).count("# Task") == 1


def test_text_in_values_is_neither_escaped_nor_run_as_a_template():
    request = replace(REQUEST, failure=FailedAttempt("a < b and {{ 1 + 1 }} {% if %}"))
    assert "a < b and {{ 1 + 1 }} {% if %}" in generation_prompt(request).user


@pytest.mark.parametrize("mode", ["breakthrough", "refinement"])
def test_a_guide_prompt_has_its_parts_in_order(mode):
    best = replace(PARENT, artifacts={"feedback": "corner is empty"})
    assert headings(guide_prompt(replace(GUIDE, mode=mode, best=best)).user) == [
        "# Problem",
        "# Evaluator",
        "# Best program",
        "# Analysis",
        "# Ideas tried before",
        "# Technique guidance",
        "# Evaluator feedback",
        "# Output",
    ]


def test_a_guide_sees_task_evaluator_and_best_program_with_six_decimals():
    user = guide_prompt(GUIDE).user
    assert "Pack 26 circles." in user
    assert "```python\ndef evaluate(program): ...\n```" in user
    assert "Score: 0.364240\n\n```python\n" + PARENT.code + "```" in user
    assert "600 seconds" in user
    assert "# Evaluator feedback" not in user


def test_only_the_breakthrough_guide_asks_for_fundamentally_different_ideas():
    breakthrough = guide_prompt(GUIDE).user
    refinement = guide_prompt(replace(GUIDE, mode="refinement")).user
    assert "fundamentally different" in breakthrough
    assert "keep the algorithm" not in breakthrough
    assert "keep the algorithm" in refinement
    assert "fundamentally different" not in refinement


def test_a_guide_is_asked_for_json_with_the_exact_count():
    prompt = guide_prompt(replace(GUIDE, count=2))
    assert "JSON object" in prompt.system
    assert "exactly 2 objects" in prompt.user
    assert '{"ideas": [{"idea":' in prompt.user


def test_a_guide_reads_what_was_tried_and_is_asked_not_to_repeat_failures():
    tactic = Tactic(
        idea="one linear program", description="It.", approach_type="scipy.optimize.linprog"
    )
    line = "FAILED: scipy.optimize.linprog - one linear program (improvement +0.0000)"
    user = guide_prompt(replace(GUIDE, tried=(TriedTactic(tactic, 0.0),))).user
    assert f"- {line}\n\nAsk why the failed ones failed." in user
    assert "None yet." not in user
    assert "None yet." in guide_prompt(GUIDE).user


def test_requests_refuse_values_without_words():
    with pytest.raises(ValueError, match="action is 'bold'; expected one of exploration"):
        replace(REQUEST, action="bold")
    with pytest.raises(ValueError, match="tactic_mode is None; expected one of breakthrough"):
        replace(REQUEST, tactic=TACTIC)
    with pytest.raises(ValueError, match="tactic_mode is 'refinement'; expected None"):
        replace(REQUEST, tactic_mode="refinement")
    with pytest.raises(ValueError, match="mode is 'both'; expected one of breakthrough"):
        replace(GUIDE, mode="both")
    with pytest.raises(ValueError, match="count is 0; expected at least 1"):
        replace(GUIDE, count=0)
