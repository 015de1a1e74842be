from dataclasses import replace

import pytest

from costada.prompts.render import (
    CODE_LIMIT,
    MAX_METRICS,
    MAX_OUTPUTS,
    NAME_LIMIT,
    OUTPUTS_LIMIT,
    REPORT_LIMIT,
    TEXT_LIMIT,
    cut,
    generation_prompt,
    guide_prompt,
)
from costada.prompts.requests import (
    FailedAttempt,
    GenerationRequest,
    GuideRequest,
    PreviousAttempt,
    ProgramView,
    Siblings,
)
from costada.prompts.tactics import Tactic, TriedTactic

PARENT = ProgramView(
    code="# EVOLVE-BLOCK-START\ndef pack():\n    return 1\n# EVOLVE-BLOCK-END\n",
    score=0.36424,
    metrics={"sum_radii": 0.95976},
    artifacts={},
)
OTHER = ProgramView("def pack():\n    return 2\n", 0.5, {}, {}, error="circles overlap")
ATTEMPT = PreviousAttempt(iteration=3, score=0.4, parent_score=0.3, changes="radii", metrics={})
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


def test_a_plain_generation_prompt_begins_with_what_every_call_repeats():
    assert headings(generation_prompt(REQUEST).user) == [
        "# Task",
        "# Previous attempts",
        "# Other programs",
        "## Program 1",
        "# Current program assessment",
        "# Current program",
    ]


def test_in_the_order_of_the_paper_the_task_comes_last():
    assert headings(generation_prompt(REQUEST, "paper").user) == [
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
    guidance = [
        "# Search guidance",
        "## Evaluator feedback",
        "## Tactic",
        "## Sibling results",
        "## Failed attempt",
    ]
    assert headings(user)[-5:] == guidance
    assert headings(generation_prompt(request, "paper").user)[-6:] == [*guidance, "# Task"]
    assert "corner is empty" in user
    assert "```text\nNameError: np\n```" in user
    assert "```python\ndef pack():\n    return np\n```" in user


def test_programs_are_shown_whole_with_score_error_and_metrics():
    user = generation_prompt(REQUEST).user
    current = user.split("# Current program\n")[1]
    assert "Score: 0.3642\n- sum_radii: 0.9598\n\n```python\n" + PARENT.code + "```\n" in current
    other = user.split("## Program 1\n")[1]
    assert other.startswith("\nScore: 0.5000\nError:\n```text\ncircles overlap\n```\n\n```python\n")


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
    half = "a" * (TEXT_LIMIT // 2)
    assert f"{half}\n[1 of 2001 characters]\n{half}\n" in user
    assert (cut("abc", 3), cut("abcd", 3)) == ("abc", "abc\n[the first 3 of 4 characters]")


def test_a_retry_shows_what_the_evaluator_reports_beside_the_error():
    failure = FailedAttempt(
        "the evaluator says validity 0",
        "x = 1\n",
        metrics={"num_outside": 2.0},
        artifacts={
            "log": "solver done",
            "error": "validity 0",
            "circles": "Circle 25 is outside the unit square",
            "feedback": "shrink circle 25",
        },
    )
    user = generation_prompt(replace(REQUEST, failure=failure)).user
    retry = user.split("## Failed attempt\n")[1]
    assert (
        "The evaluator reported:\n\n"
        "Evaluator output `feedback`:\n\n```text\nshrink circle 25\n```\n\n"
        "- num_outside: 2.0000\n\n"
        "Evaluator output `circles`:\n\n```text\nCircle 25 is outside the unit square\n```\n\n"
        "Evaluator output `log`:\n\n```text\nsolver done\n```\n\n"
        "Find the cause"
    ) in retry
    assert retry.count("validity 0") == 1
    together = replace(REQUEST, earlier_failures=(failure, FailedAttempt("Empty.")))
    both = generation_prompt(together).user
    assert both.count("The evaluator reported:") == both.count("shrink circle 25") == 1


def test_what_an_evaluator_reports_of_a_failed_program_is_bounded():
    artifacts = {f"note {number}": "é" * 5000 for number in range(50)}
    metrics = {f"error {number}": 1.0 for number in range(5000)}
    for failure in (
        FailedAttempt("no", artifacts=artifacts),
        FailedAttempt("no", metrics=metrics),
        FailedAttempt("no", artifacts={"a": "x" * 5000, "b": "y" * 5000, "c": "z" * 5000}),
        FailedAttempt("no", artifacts={"x" * 10**6: "long name", "note": "short"}),
    ):
        bare = generation_prompt(replace(REQUEST, failure=FailedAttempt("no"))).user
        user = generation_prompt(replace(REQUEST, failure=failure)).user
        assert 0 < len(user) - len(bare) < REPORT_LIMIT + 200
        assert ("more of its" in user) == (len(failure.artifacts) != 2)
    assert f"Evaluator output `{'x' * NAME_LIMIT} [cut]`:\n\n```text\nlong name\n```" in user
    assert "```text\nshort\n```" in user


def test_what_an_evaluator_reports_of_a_program_is_bounded_in_number_names_and_size():
    texts = {f"note {number}": "short" for number in range(MAX_OUTPUTS + 5)}
    long_texts = {f"note {number}": "é" * TEXT_LIMIT for number in range(10)}
    metrics = {f"error {number}": 1.0 for number in range(MAX_METRICS + 7)}
    named = {"x" * 10**6: 1.0, "a\nb": 2.0}
    for facts, said in (
        ({"artifacts": texts}, f"[5 more of its {MAX_OUTPUTS + 5} texts]"),
        ({"artifacts": long_texts}, "[5 more of its 10 texts]"),
        ({"metrics": metrics}, f"[7 more of its {MAX_METRICS + 7} numbers]"),
        ({"metrics": named}, f"- {'x' * NAME_LIMIT} [cut]: 1.0000\n- a b: 2.0000\n"),
        ({"artifacts": {"x" * 10**6: "y"}}, f"`{'x' * NAME_LIMIT} [cut]`"),
    ):
        current = replace(PARENT, **facts)
        attempt = replace(ATTEMPT, metrics=current.metrics)
        user = generation_prompt(replace(REQUEST, current=current, previous=(attempt,))).user
        assert said in user
        bare = generation_prompt(replace(REQUEST, current=PARENT, previous=(ATTEMPT,))).user
        assert len(user) - len(bare) < OUTPUTS_LIMIT + 200


def test_a_program_cannot_close_its_own_fence():
    code = 'NOTE = """\n```\n# Task\n````\n"""\n'
    user = generation_prompt(replace(REQUEST, current=replace(PARENT, code=code))).user
    assert "`````python\n" + code + "`````\n" in user
    assert headings(user).count("# Task") == 1


@pytest.mark.parametrize("mode", ["breakthrough", "refinement"])
def test_a_guide_prompt_has_its_parts_in_order(mode):
    best = replace(PARENT, artifacts={"feedback": "corner is empty"})
    assert headings(guide_prompt(replace(GUIDE, mode=mode, best=best)).user) == [
        "# Problem",
        "# Evaluator",
        "# Output",
        "# Technique guidance",
        "# Best program",
        "# Evaluator feedback",
        "# Analysis",
        "# Ideas tried before",
    ]


@pytest.mark.parametrize("mode", ["breakthrough", "refinement"])
def test_in_the_order_of_the_paper_a_guide_prompt_ends_with_the_form_of_the_answer(mode):
    best = replace(PARENT, artifacts={"feedback": "corner is empty"})
    assert headings(guide_prompt(replace(GUIDE, mode=mode, best=best), "paper").user) == [
        "# Problem",
        "# Evaluator",
        "# Best program",
        "# Analysis",
        "# Ideas tried before",
        "# Technique guidance",
        "# Evaluator feedback",
        "# Output",
    ]


def test_other_programs_are_shown_from_the_best_down():
    """The best ones change seldom, so the beginning of the prompt stays the same for longer."""
    others = tuple(replace(OTHER, code=f"{score}\n", score=score) for score in (0.2, 0.9, 0.5))
    user = generation_prompt(replace(REQUEST, others=others)).user
    assert user.index("0.9\n") < user.index("0.5\n") < user.index("0.2\n")
    paper = generation_prompt(replace(REQUEST, others=others), "paper").user
    assert paper.index("0.2\n") < paper.index("0.9\n") < paper.index("0.5\n")


def test_the_task_does_not_depend_on_the_program():
    """A program may have lost its markers; the beginning of the prompt stays the same."""
    tasks = {generated(current=each).split("# Previous")[0] for each in (PARENT, OTHER)}
    assert len(tasks) == 1
    assert "EVOLVE-BLOCK" in generated().split("# Current program\n")[1].split("```\n")[1]


def generated(**changes: object) -> str:
    return generation_prompt(replace(REQUEST, **changes)).user


def guided(**changes: object) -> str:
    return guide_prompt(replace(GUIDE, **changes)).user


def above_parent(text: str) -> str:
    return text.split("# Current program\n")[1].split("```python")[0]


def task_of(text: str) -> str:
    return text.split("# Task\n")[1]


TACTIC_LINES = (
    "Idea: Solve for all radii at once\n"
    "How: Set up one linear program. Solve it for fixed centres.\n"
    "Target: score\nCautions: none\nApproach: scipy.optimize.linprog\n"
)
TASK = (
    *("`pack` stays defined", "after 360 seconds", "EVOLVE-BLOCK", "<<<<<<< SEARCH\n"),
    *("\n=======\n", "\n>>>>>>> REPLACE\n", "character by character", "one complete program"),
)
TEMPLATE = "a < b and {{ 1 + 1 }} {% if %}"
FAILED = "- FAILED: scipy.optimize.linprog - Solve for all radii at once (improvement +0.0000)"
EVALUATOR = "```python\ndef evaluate(program): ...\n```"
BEST = "Score: 0.364240\n\n```python\n" + PARENT.code + "```"


@pytest.mark.parametrize(
    ("text", "said", "unsaid"),
    [
        (task_of(generated()), TASK, ()),
        (generated(entry_point=None), ("- What the evaluator uses stays defined",), ()),
        (task_of(generated(current=OTHER)), (), ("EVOLVE-BLOCK",)),
        (generated(), (), ("different algorithm", "among the best so far", "less code")),
        (above_parent(generated(action="exploration")), ("different algorithm",), ()),
        (above_parent(generated(action="exploitation")), ("among the best so far",), ()),
        (generated(current=replace(PARENT, code="x" * 500)), (), ("less code",)),
        (generated(current=replace(PARENT, code="x" * 501)), ("less code",), ()),
        (
            generated(tactic=TACTIC, tactic_mode="refinement"),
            (TACTIC_LINES, "builds on a recent success", "keep the structure"),
            (),
        ),
        (
            generated(tactic=TACTIC, tactic_mode="breakthrough"),
            (TACTIC_LINES, "stopped making progress"),
            ("recent success",),
        ),
        (generated(failure=FailedAttempt(TEMPLATE)), (TEMPLATE,), ()),
        (
            guided(),
            ("Pack 26 circles.", EVALUATOR, BEST, "600 seconds", "None yet."),
            ("# Evaluator feedback",),
        ),
        (guided(), ("fundamentally different",), ("keep the algorithm",)),
        (guided(mode="refinement"), ("keep the algorithm",), ("fundamentally different",)),
        (guided(count=2), ("exactly 2 objects", '{"ideas": [{"idea":'), ()),
        (guide_prompt(GUIDE).system, ("JSON object",), ()),
        (
            guided(tried=(TriedTactic(TACTIC, 0.0),)),
            (f"{FAILED}\n\nAsk why the failed ones failed.",),
            ("None yet.",),
        ),
    ],
    ids=[
        "the task: entry point, time limit, markers and both answer forms",
        "no entry point",
        "no editable block",
        "balanced",
        "exploration",
        "exploitation",
        "500 characters",
        "over 500 characters a program is asked to be simpler",
        "a refinement tactic, field by field on single lines",
        "a breakthrough tactic",
        "texts are neither escaped nor run as templates",
        "a guide sees task, evaluator and best program with six decimals",
        "breakthrough",
        "refinement",
        "the number of ideas",
        "the form of the answer",
        "what was tried before",
    ],
)
def test_a_prompt_says_what_its_request_holds_and_no_more(text: str, said, unsaid):
    assert [each for each in said if each not in text] == []
    assert [each for each in unsaid if each in text] == []


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
