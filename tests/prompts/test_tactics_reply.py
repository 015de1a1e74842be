import json

import pytest
from pydantic import ValidationError

from costada.prompts.tactics import Tactic, TriedTactic, parse_tactics

IDEA = {"idea": "LP for radii", "description": "Fix centres.", "approach_type": "scipy.linprog"}
SECOND = {**IDEA, "idea": "Anneal"}


def ideas(*entries: object) -> str:
    return json.dumps({"ideas": list(entries)}, indent=1)


@pytest.mark.parametrize(
    "reply",
    [
        ideas(IDEA, SECOND),
        json.dumps([IDEA, SECOND]),
        f"Here:\n```json\n{ideas(IDEA, SECOND)}\n```\nGood luck.",
        f"```python\nx = [1]\n```\n```json\n{ideas(IDEA, SECOND)}\n```",
        f"```\n{ideas(IDEA, SECOND)}\n```",
        f"The evaluator [1] sums radii. {ideas(IDEA, SECOND)} That is all.",
        f"```json\n{ideas(IDEA, SECOND)}",
    ],
)
def test_ideas_are_found_wherever_models_put_them(reply):
    assert [tactic.idea for tactic in parse_tactics(reply, 3)] == ["LP for radii", "Anneal"]


def test_a_json_fence_goes_before_others():
    reply = f"```\n{ideas(SECOND)}\n```\n```json\n{ideas(IDEA)}\n```"
    assert [tactic.idea for tactic in parse_tactics(reply, 3)] == ["LP for radii"]


def test_brackets_inside_texts_do_not_end_the_list():
    tricky = {**IDEA, "description": "Use x[0]] and {y}."}
    (tactic,) = parse_tactics(f"So: {ideas(tricky)}", 3)
    assert tactic.description == "Use x[0]] and {y}."


def test_missing_or_empty_optional_fields_get_their_defaults():
    for entry in (IDEA, {**IDEA, "what_to_optimize": None, "cautions": ""}):
        (tactic,) = parse_tactics(ideas(entry), 3)
        assert (tactic.what_to_optimize, tactic.cautions) == ("score", "")


def test_steps_given_as_a_list_become_one_text():
    entry = {**IDEA, "description": ["Fix centres.", "Solve."], "cautions": ["Scale", "it."]}
    (tactic,) = parse_tactics(ideas(entry), 3)
    assert (tactic.description, tactic.cautions) == ("Fix centres. Solve.", "Scale it.")


def test_invalid_entries_are_dropped_one_by_one():
    bad = [{**IDEA, "idea": " "}, {"idea": "x"}, "text", None, {**IDEA, "description": 3}]
    found = parse_tactics(ideas(*bad, {**SECOND, "extra": 1}), 3)
    assert [tactic.idea for tactic in found] == ["Anneal"]


def test_only_the_first_count_valid_ones_are_kept():
    entries = [{**IDEA, "idea": str(number)} for number in range(5)]
    assert [tactic.idea for tactic in parse_tactics(ideas({}, *entries), 3)] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "reply", ["", "No ideas.", "[]", "{}", '{"ideas": 3}', '[{"idea": "x"', "[{" * 5000, "7"]
)
def test_nothing_usable_gives_no_tactics(reply):
    assert parse_tactics(reply, 3) == ()


def test_line_breaks_inside_json_texts_are_tolerated():
    reply = ideas(IDEA).replace("Fix centres.", "Fix\ncentres.")
    assert parse_tactics(reply, 1)[0].description == "Fix\ncentres."


def test_a_count_below_one_is_refused():
    with pytest.raises(ValueError, match="count is 0; expected at least 1"):
        parse_tactics(ideas(IDEA), 0)


def test_a_tactic_is_frozen_and_survives_json():
    tactic = Tactic.model_validate(IDEA)
    assert Tactic.model_validate_json(tactic.model_dump_json()) == tactic
    with pytest.raises(ValidationError, match="frozen"):
        tactic.idea = "other"


def test_an_outcome_counts_as_success_above_one_thousandth():
    tactic = Tactic.model_validate(IDEA)
    assert TriedTactic(tactic, 0.0011).line == (
        "SUCCESS: scipy.linprog - LP for radii (improvement +0.0011)"
    )
    assert TriedTactic(tactic, 0.001).line.startswith("FAILED: ")
    assert TriedTactic(tactic, -0.5).line.endswith("(improvement -0.5000)")
