"""The texts about tools."""

import pytest

from costada.prompts.render import Prompt
from costada.prompts.requests import ProgramView
from costada.prompts.tools import (
    TOOLS,
    FoundProgram,
    allowance_text,
    call_error,
    listing,
    program_text,
    tools_section,
    trial_text,
    with_section,
)

PROGRAM = ProgramView(
    code="def f():\n    return 1\n",
    score=0.25,
    metrics={"radius": 1.5},
    artifacts={"feedback": "too slow", "log": "line"},
    error=None,
)


def found(name: str, changes: str = "- changed `f`", score: float = 0.25) -> FoundProgram:
    return FoundProgram(name, changes, ProgramView("x", score, {}, {}))


def test_each_tool_says_which_arguments_it_needs():
    required = {
        tool["function"]["name"]: tool["function"]["parameters"]["required"] for tool in TOOLS
    }
    assert required == {
        "evaluate_candidate": ["changes"],
        "read_program": ["id"],
        "search_archive": [],
        "submit": [],
    }


def test_every_argument_of_a_description_is_accepted():
    for tool in TOOLS:
        function = tool["function"]
        names = function["parameters"]["properties"]
        fitting = {name: "text" for name in names if name != "candidate"}
        assert call_error(function["name"], fitting) is None


@pytest.mark.parametrize("both", [{}, {"candidate": "1.1.1", "changes": "x"}])
def test_a_submission_is_a_candidate_or_changes(both):
    assert call_error("submit", both) == "submit needs either 'candidate' or 'changes'."


def test_the_part_about_tools_comes_first_and_in_the_order_of_the_paper_last():
    prompt, section = Prompt("Pack.", "# Task\n"), tools_section(answers=5, evaluations=1)
    assert with_section(prompt, section, "constant-first") == Prompt(
        "Pack.", f"{section}\n# Task\n"
    )
    assert with_section(prompt, section, "paper") == Prompt("Pack.", f"# Task\n\n{section}")


def test_the_section_says_how_much_is_allowed():
    text = tools_section(answers=5, evaluations=1)
    assert text.startswith("# Tools\n")
    assert "at most 1 time.\n" in text
    assert "You have 5 answers in all." in text


def test_what_is_left_is_said_in_a_sentence():
    assert allowance_text(3, 1) == "Left: 3 answers, 1 evaluation.\n"
    assert allowance_text(1, 2) == "One answer is left: submit your result with it.\n"


def test_a_trial_shows_score_output_and_feedback_and_no_code():
    text = trial_text(FoundProgram("4.1.2", "", PROGRAM))
    assert text.startswith("Candidate 4.1.2\n\nScore: 0.2500\n- radius: 1.5000\n")
    assert "Evaluator output `log`:\n\n```text\nline\n```" in text
    assert "too slow" in text
    assert "return 1" not in text


def test_a_program_is_shown_with_its_code():
    text = program_text(FoundProgram("4.1", "", PROGRAM))
    assert text.endswith("```python\ndef f():\n    return 1\n```\n")


def test_a_listing_ends_after_eight_programs():
    text = listing((found("0.1", changes=""), *(found(f"{n}.1", "a\nb") for n in range(1, 10))))
    lines = text.splitlines()
    assert lines[0] == "- 0.1: score 0.2500; the initial program"
    assert lines[1] == "- 1.1: score 0.2500; a b"
    assert (len(lines), lines[-1]) == (9, "2 more.")


def test_an_empty_listing_says_so():
    assert listing(()) == "No program holds all of these words.\n"
