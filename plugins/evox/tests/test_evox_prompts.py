from dataclasses import replace

import pytest
from rows import population_row

from costada.plugins.evox.prompts import (
    Labels,
    SearchWindow,
    ShownStrategy,
    StrategyRequest,
    insight_prompt,
    label_prompt,
    label_text,
    parse_labels,
    parse_strategy,
    population_text,
    strategy_prompt,
    trace_text,
)
from costada.prompts.render import CODE_LIMIT, STRATEGY_LIMIT, generation_prompt
from costada.prompts.requests import FailedAttempt, GenerationRequest, PreviousAttempt, ProgramView
from costada.prompts.whole_texts import MAX_PROGRAM_CHARACTERS, Rejection

PARENT = ProgramView("def pack():\n    return 1\n", 0.6, {"sum_radii": 1.2}, {})
REQUEST = GenerationRequest("Pack.", PARENT, "balanced", (PARENT,), 60.0, "pack")
STRATEGY = ShownStrategy(
    source="class Strategy:\n    pass\n",
    score=0.133334,
    since=10,
    until=25,
    start=0.5,
    end=0.8,
    trace="No candidates were found.",
)
OTHER = replace(STRATEGY, source="class Strategy:\n    OTHER = 1\n", score=0.0, end=0.5)
WINDOW = SearchWindow(iteration=27, max_iterations=100, horizon=10, threshold=0.01)
NEW = StrategyRequest("Pack.", WINDOW, "## Population\n\nStuck.", "- size: 3", STRATEGY, (OTHER,))
LABELS = Labels(diverge="- `scipy.optimize.linprog`\n- a grid", refine="- tolerances")


def headings(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.startswith("#")]


def test_the_label_request_shows_problem_evaluator_packages_and_form():
    prompt = label_prompt("Pack.", "def evaluate(): ...", ("numpy 2.1", "scipy"))
    assert headings(prompt.user) == [
        "# Problem",
        "# Evaluator",
        "# Packages",
        "# Labels",
        "# Output",
        "## DIVERGE",
        "## REFINE",
    ]
    assert "# Problem\n\nPack.\n" in prompt.user
    assert "```python\ndef evaluate(): ...\n```" in prompt.user
    assert "# Packages\n\n- numpy 2.1\n- scipy\n\n# Labels" in prompt.user
    assert "3 to 6 points" in prompt.user
    assert "3 to 5 points" in prompt.user


def test_without_a_list_of_packages_the_usual_ones_are_named():
    user = label_prompt("Pack.", "x").user
    assert "# Packages\n\nThe standard library, numpy and scipy.\n\n# Labels" in user


def test_the_insight_request_shows_the_population_and_each_strategy_with_its_trace():
    prompt = insight_prompt("Pack.", "- candidates: 3", (STRATEGY, OTHER))
    assert headings(prompt.user) == [
        "# Problem",
        "# Insight",
        "## Population",
        "## Strategy 1",
        "## Strategy 2",
        "# Population",
        "# Strategy 1",
        "# Strategy 2",
    ]
    assert "# Population\n\n- candidates: 3\n\n# Strategy 1\n\nIn use from iteration 11 to 25." in (
        prompt.user
    )
    assert (
        "Best score 0.500000 at its start and 0.800000 at its end (+0.300000). J = 0.133334.\n\n"
        "```python\nclass Strategy:\n    pass\n```\n\n"
        "What it chose and what came of it:\n\nNo candidates were found.\n\n# Strategy 2"
    ) in prompt.user
    assert "At most 70 words" in prompt.user


def test_the_strategy_request_has_its_parts_in_order():
    assert headings(strategy_prompt(NEW).user) == [
        "# Problem",
        "# New strategy",
        "# Parent strategy",
        "# Search window",
        "# Insight",
        "## Population",
        "# Other strategies",
        "## Strategy 1",
    ]
    failed = replace(NEW, failure=FailedAttempt("IndexError: 0", "class Strategy: ..."))
    assert headings(strategy_prompt(failed).user)[-1] == "# Failed attempt"


def test_the_strategy_request_names_the_window():
    user = strategy_prompt(NEW).user
    assert "- Start: iteration 27 of 100\n- Horizon: 10 iterations\n- Threshold: " in user
    assert "raises the best score by 0.01 or less" in user


def test_the_system_message_names_the_class_the_score_and_the_constraints():
    system = strategy_prompt(NEW).system
    for expected in (
        "class Strategy:",
        "def add(self, record):",
        "def select(self, n_context, rng):",
        "return parent_id, label, context_ids",
        "J = (end - start) * (1 + ln(1 + max(0, start))) / sqrt(horizon)",
        "60000 characters",
        "5 seconds",
    ):
        assert expected in system


def test_no_prompt_of_the_strategy_speaks_of_money():
    insight = insight_prompt("Pack.", "- candidates: 3", (STRATEGY,))
    for prompt in (strategy_prompt(NEW), insight):
        text = f"{prompt.system}\n{prompt.user}".lower()
        assert not any(word in text for word in ("budget", "cost", "dollar", "$", "price"))


def test_with_an_insight_other_strategies_are_listed_without_their_texts():
    user = strategy_prompt(NEW).user
    assert "## Strategy 1\n\nIn use from iteration 11 to 25. Best score 0.500000" in user
    assert "OTHER = 1" not in user
    assert "- size: 3" not in user


def test_without_an_insight_the_statistics_and_the_texts_stand_in():
    user = strategy_prompt(replace(NEW, insight="")).user
    assert "# Insight\n\n- size: 3\n\n# Other strategies" in user
    assert "```python\nclass Strategy:\n    OTHER = 1\n```" in user


def test_a_strategy_that_failed_is_quoted_with_its_error():
    failed = replace(NEW, failure=FailedAttempt("IndexError: 0", "class Strategy: ..."))
    user = strategy_prompt(failed).user
    assert "```text\nIndexError: 0\n```\n\nIt came from this program:\n\n```python\nclass S" in user


def test_long_texts_of_other_strategies_are_cut_and_the_parent_is_whole():
    long = "class Strategy:\n" + "é" * (2 * STRATEGY_LIMIT)
    request = replace(NEW, insight="", parent=replace(STRATEGY, source=long))
    assert strategy_prompt(request).user.count("é") == 2 * STRATEGY_LIMIT
    request = replace(NEW, insight="", context=(replace(OTHER, source=long),))
    assert strategy_prompt(request).user.count("é") == STRATEGY_LIMIT - len("class Strategy:\n")


def test_a_label_is_fixed_words_with_its_advice():
    diverge, refine = label_text("diverge", LABELS), label_text("refine", LABELS)
    assert diverge.startswith("DIVERGE: take a fundamentally different approach")
    assert diverge.endswith("\n\n- `scipy.optimize.linprog`\n- a grid")
    assert refine.startswith("REFINE: keep the approach of this program")
    assert refine.endswith("\n\n- tolerances")


def test_without_a_label_or_without_its_advice_nothing_is_shown():
    assert label_text("", LABELS) == ""
    assert label_text("diverge", Labels()) == ""
    with pytest.raises(ValueError, match="label is 'bold'; expected"):
        label_text("bold", LABELS)


def test_the_label_stands_directly_above_the_current_program():
    user = generation_prompt(replace(REQUEST, label=label_text("refine", LABELS))).user
    assert "# Current program\n\nREFINE: keep" in user
    assert "\n- tolerances\n\nScore: 0.6000\n- sum_radii: 1.2000\n\n```python" in user


def test_earlier_candidates_are_listed_with_changes_score_and_outcome():
    previous = (
        PreviousAttempt(8, 0.7, 0.6, "pack: on a grid", {"sum_radii": 1.4}),
        PreviousAttempt(12, 0.5, 0.6, "pack: at random", {}),
        PreviousAttempt(3, 0.5, 0.5, "", {}),
    )
    user = generation_prompt(replace(REQUEST, previous=previous)).user
    assert (
        "# Previous attempts\n\n## Attempt 1, from iteration 8\n\n"
        "Changes:\n```text\npack: on a grid\n```\n\n"
        "Score: 0.7000, improved (0.6000 before the changes)\n- sum_radii: 1.4000\n\n"
        "## Attempt 2, from iteration 12\n\nChanges:\n```text\npack: at random\n```\n\n"
        "Score: 0.5000, regressed (0.6000 before the changes)\n\n"
    ) in user
    assert "Score: 0.5000, unchanged (0.5000 before the changes)\n\n# Other programs" in user
    assert "No earlier attempts" not in user


def test_the_assessment_compares_with_the_latest_of_the_previous_attempts():
    previous = tuple(PreviousAttempt(t, s, 0.5, "", {}) for t, s in ((4, 0.9), (9, 0.75)))
    request = replace(REQUEST, previous=previous)
    said = "has a score of 0.7500; the current program differs from it by -0.1500."
    first, paper = generation_prompt(request).user, generation_prompt(request, "paper").user
    assert f"attempts above {said}" in first.split("# Current program assessment\n")[1]
    assert f"attempts below {said}" in paper.split("# Previous attempts\n")[0]


def test_a_retry_begins_with_the_whole_prompt_of_the_attempt_that_failed():
    once = generation_prompt(replace(REQUEST, earlier_failures=(FailedAttempt("Empty."),))).user
    assert once.startswith(generation_prompt(REQUEST).user)
    failed = replace(NEW, failure=FailedAttempt("IndexError: 0", "class Strategy: ..."))
    assert strategy_prompt(failed).user.startswith(strategy_prompt(NEW).user)


def test_all_failed_attempts_follow_the_other_programs_in_the_order_of_the_paper():
    failures = (FailedAttempt("NameError: np", "ö" * (CODE_LIMIT + 1)), FailedAttempt("Empty."))
    user = generation_prompt(replace(REQUEST, earlier_failures=failures), "paper").user
    order = ["## Program 1", "# Failed attempts", "## Failure 1", "## Failure 2"]
    assert headings(user)[3:8] == [*order, "# Current program"]
    assert user.count("ö") == CODE_LIMIT
    assert "```text\nEmpty.\n```\n\nFind the causes" in user
    assert "# Search guidance" not in user


def test_a_request_refuses_more_than_it_has_room_for():
    attempt = PreviousAttempt(1, 0.5, 0.5, "", {})
    with pytest.raises(ValueError, match="previous has 4 attempts; expected at most 3"):
        replace(REQUEST, previous=(attempt,) * 4)
    failure = FailedAttempt("no")
    with pytest.raises(ValueError, match="failure is given; expected None"):
        replace(REQUEST, failure=failure, earlier_failures=(failure,))


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


ROWS = (
    population_row("0.1", 0, 0.1),
    population_row("1.1", 1, 0.2, "0.1"),
    population_row("2.1", 2, 0.30001, "0.1", "diverge", ("1.1",)),
    population_row("4.1", 4, 0.3, "1.1", "", ("0.1", "2.1")),
    population_row("5.1", 5, 0.305, "0.1", "refine", ("2.1",)),
)


def test_the_population_is_described_in_numbers():
    assert population_text(ROWS, 7, 0.01).split("\n")[:-9] == [
        "- candidates: 5",
        "- scores: best 0.305000, upper quartile 0.300010, median 0.300000, "
        "lower quartile 0.200000, worst 0.100000",
        "- share of candidates: upper quartile and above 40.0%, median to upper quartile 20.0%, "
        "lower quartile to median 20.0%, below lower quartile 20.0%",
        "- distinct scores at 4 decimals: 4",
        "- top 5 scores: 0.3050, 0.3000, 0.3000, 0.2000, 0.1000",
        "- iterations without an improvement of more than 0.01: 5 of 7",
        "- most used parent: 0.1, 3 of 4 times (75.0%)",
        "- most used in contexts: 2.1, 2 of 3 times (66.7%)",
        "- recent scores, oldest first: 0.2000, 0.3000, 0.3000, 0.3050",
        "- scores of their parents: 0.1000, 0.1000, 0.2000, 0.1000",
    ]


def test_a_trace_shows_what_each_candidate_was_made_from():
    assert trace_text(ROWS, 1, 4) == (
        "| iteration | score | label | parent | context |\n"
        "|---|---|---|---|---|\n"
        "| 2 | 0.3000 | diverge | 0.1 (0.1000) | 1.1 (0.2000) |\n"
        "| 4 | 0.3000 | none | 1.1 (0.2000) | 0.1 (0.1000), 2.1 (0.3000) |"
    )
    assert trace_text(ROWS, 5, 9) == "No candidates were found."


def test_the_population_ends_in_the_trace_of_all_iterations():
    text = population_text(ROWS, 7, 0.01)
    assert text.endswith(f"\n\nLatest candidates:\n\n{trace_text(ROWS, 0, 7)}")


def test_the_order_of_the_rows_makes_no_difference():
    assert population_text(ROWS[::-1], 7, 0.01) == population_text(ROWS, 7, 0.01)


def test_a_lone_initial_program_is_a_population():
    text = population_text(ROWS[:1], 3, 0.01)
    assert "best 0.100000, upper quartile 0.100000, median 0.100000" in text
    assert "- iterations without an improvement of more than 0.01: 3 of 3\n" in text
    assert "- most used parent: none yet\n" in text
    assert "- recent scores, oldest first: none yet\n" in text


def test_creeping_progress_counts_as_none():
    rows = [population_row(f"{k}.1", k, 0.005 * k, "0.1" if k else None) for k in range(9)]
    assert "more than 0.01: 8 of 8" in population_text(rows, 8, 0.01)


def test_the_text_does_not_grow_with_the_run():
    def text(count: int) -> str:
        context = ("10.1", "11.1", "12.1", "13.1", "14.1", "15.1")
        rows = [
            population_row(f"{k}.1", k, 0.5 + k / 1e6, "0.1" if k else None, "refine", context)
            for k in range(count)
        ]
        return population_text(rows, count, 0.01)

    assert len(text(5000)) < 1.1 * len(text(200)) < 6000


def test_without_candidates_there_is_nothing_to_show():
    with pytest.raises(ValueError, match="rows: got none"):
        population_text([], 1, 0.01)
