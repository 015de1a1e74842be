import pytest

from costada.prompts.evox import PopulationRow, population_text, trace_text

ROWS = (
    PopulationRow("0.1", 0, 0.1),
    PopulationRow("1.1", 1, 0.2, "0.1"),
    PopulationRow("2.1", 2, 0.30001, "0.1", "diverge", ("1.1",)),
    PopulationRow("4.1", 4, 0.3, "1.1", "", ("0.1", "2.1")),
    PopulationRow("5.1", 5, 0.305, "0.1", "refine", ("2.1",)),
)


def test_the_population_is_told_in_numbers():
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


def test_a_trace_tells_what_each_candidate_was_made_from():
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
    rows = [PopulationRow(f"{k}.1", k, 0.005 * k, "0.1" if k else None) for k in range(9)]
    assert "more than 0.01: 8 of 8" in population_text(rows, 8, 0.01)


def test_the_text_does_not_grow_with_the_run():
    def text(count: int) -> str:
        context = ("10.1", "11.1", "12.1", "13.1", "14.1", "15.1")
        rows = [
            PopulationRow(f"{k}.1", k, 0.5 + k / 1e6, "0.1" if k else None, "refine", context)
            for k in range(count)
        ]
        return population_text(rows, count, 0.01)

    assert len(text(5000)) < 1.1 * len(text(200)) < 6000


def test_without_candidates_there_is_nothing_to_tell():
    with pytest.raises(ValueError, match="rows: got none"):
        population_text([], 1, 0.01)
