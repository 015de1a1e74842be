import pytest

from costada.prompts.evox import Labels, parse_labels, parse_strategy
from costada.prompts.replies import MAX_PROGRAM_CHARACTERS, Rejection

SOURCE = "import math\n\n\nclass Strategy:\n    pass\n"


def test_points_below_the_two_headings_become_the_labels():
    reply = (
        "Here you are.\n\n## DIVERGE\n\n- Use `scipy.optimize.linprog`.\n* Try a grid,\n"
        "  then a finer one.\n\n## REFINE\n\n1. Tighten the tolerances.\n2) Spend more time.\n"
    )
    assert parse_labels(reply) == Labels(
        "- Use `scipy.optimize.linprog`.\n- Try a grid, then a finer one.",
        "- Tighten the tolerances.\n- Spend more time.",
    )


@pytest.mark.parametrize(
    "form", ["**{}:**\n", "### {}\n", "{}:\n", "# **{}**\r\n", "```{}\n", "`{}`\n"]
)
def test_headings_are_known_in_many_forms(form):
    reply = f"{form.format('Diverge')}- a\n```\n{form.format('refine')}- b\n```\n"
    assert parse_labels(reply) == Labels("- a", "- b")


def test_a_label_without_points_stays_empty():
    assert parse_labels("## DIVERGE\n\n- a\n") == Labels("- a", "")
    assert parse_labels("## REFINE\n\nNothing comes to my mind.\n") == Labels()
    assert parse_labels("- refine the grid\n- diverge from it\n") == Labels()
    assert parse_labels("") == Labels()


def test_points_of_other_headings_do_not_count():
    assert parse_labels("## Analysis\n- x\n## DIVERGE\n- a\n## Notes\n- y\n") == Labels("- a", "")


def test_labels_are_short_however_long_the_reply():
    reply = "## DIVERGE\n" + f"- {'x' * 10_000}\n" * 100
    assert len(parse_labels(reply).diverge) < 5000


def test_the_last_fenced_program_with_the_class_is_the_strategy():
    reply = (
        f"First\n```python\nclass Strategy:\n    old = 1\n```\nbetter:\n```python\n{SOURCE}```\n"
        "Use it like\n```python\nStrategy().add({})\n```\n"
    )
    assert parse_strategy(reply) == SOURCE


def test_a_bare_program_is_taken_without_a_fence():
    assert parse_strategy(SOURCE) == SOURCE


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no fenced program with `class Strategy`"),
        ("I would choose the best.", "no fenced program with `class Strategy`"),
        ("```python\nclass Search:\n    pass\n```", "no fenced program with `class Strategy`"),
        ("```python\nclass Strategy:\n    def add(", "ends before its program is complete"),
        (f"```python\n{SOURCE}#{'x' * MAX_PROGRAM_CHARACTERS}\n```", "at most 60000 are allowed"),
    ],
)
def test_a_reply_without_a_strategy_is_refused_with_a_reason(reply, reason):
    rejected = parse_strategy(reply)
    assert isinstance(rejected, Rejection)
    assert reason in rejected.reason
