"""The rules of OpenEvolve's population, on programs whose scores and texts are drawn."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costada.plugins.peers.openevolve import (
    ARCHIVE_SIZE,
    NUM_ISLANDS,
    NUM_REFERENCES,
    Population,
    choose_references,
    fitness_weights,
    text_distance,
)
from costada.values.candidate import Candidate, Program

SEED = Candidate(id="0.1", program=Program.of("x = 1\n"), score=0.3)


class Texts(dict[str, str]):
    """The texts of programs by name."""

    def landed(self, number: int, score: float, text: str) -> Candidate:
        program = Program.of(text)
        self[program.hash] = text
        return Candidate(
            id=f"{number}.1", ticket=number, program=program, score=score, parent_id="0.1"
        )


def begun() -> tuple[Population, Texts]:
    texts = Texts({SEED.program.hash: SEED.program.text})
    return Population.begin(SEED, texts.__getitem__, Random(0)), texts


def grown(seed: int, steps: int) -> tuple[Population, Texts]:
    """A population after some steps of islands in turn, a few of which bring no program."""
    population, texts = begun()
    rng = Random(seed)
    for number in range(1, steps + 1):
        island = (number - 1) % NUM_ISLANDS
        population.choose(island, texts.__getitem__, rng)
        text = "y = 2\n" * rng.randrange(60) + "z" * rng.randrange(200)
        landed = texts.landed(number, round(rng.random(), 2), text)
        kept = landed if rng.random() < 0.9 else None
        population.land(island, kept, texts.__getitem__, rng)
    return population, texts


def test_all_islands_are_planned_to_begin_with_the_initial_program() -> None:
    population, _ = begun()
    assert population.islands == [["0.1"], [], [], [], []]
    assert [plan.parent for plan in population.plans if plan] == ["0.1"] * NUM_ISLANDS


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 80))
def test_a_cell_holds_the_best_that_was_offered_to_it(seed: int, steps: int) -> None:
    population, texts = begun()
    rng = Random(seed)
    offered: dict[tuple[int, tuple[int, int]], list[float]] = {}
    for number in range(1, steps + 1):
        landed = texts.landed(number, rng.random(), "a" * rng.randrange(1, 400))
        island = rng.randrange(NUM_ISLANDS)
        before = {name: cell for cell, name in population.grids[island].items()}
        population.land(island, landed, texts.__getitem__, rng)
        for cell, name in population.grids[island].items():
            if name == landed.id or name not in before:
                offered.setdefault((island, cell), []).append(landed.score)
        for cell, name in population.grids[island].items():
            assert population.members[name].fitness >= max(offered.get((island, cell), [0.0]))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_every_place_holds_a_member_and_every_member_has_one_island(seed: int) -> None:
    population, _ = grown(seed, 300)
    placed = [name for island in population.islands for name in island]
    assert len(placed) == len(set(placed))
    assert set(placed) <= population.members.keys()
    assert set(population.archive) <= population.members.keys()
    assert len(population.archive) == len(set(population.archive)) <= ARCHIVE_SIZE
    for index, (island, grid) in enumerate(zip(population.islands, population.grids, strict=True)):
        assert set(grid.values()) <= set(island)
        assert {population.members[name].island for name in island} == {index}
        best = population.island_bests[index]
        assert best is not None
        fitnesses = [population.members[name].fitness for name in island]
        assert population.members[best].fitness == max(fitnesses)
    best_of_all = max(each.fitness for each in population.members.values())
    assert population.members[str(population.best)].fitness == best_of_all


def test_the_best_of_each_island_is_copied_to_both_neighbours_and_no_further() -> None:
    population, texts = begun()
    rng = Random(4)
    for number in range(1, NUM_ISLANDS + 1):
        landed = texts.landed(number, 0.5 + number / 100, "b" * number * 30)
        population.land(number - 1, landed, texts.__getitem__, rng)
    population.migrate(texts.__getitem__, rng)
    copies = [each for each in population.members.values() if each.is_migrant]
    sent = {(each.candidate, each.island) for each in copies}
    assert sent == {
        (f"{number}.1", (number - 1 + step) % NUM_ISLANDS)
        for number in range(1, NUM_ISLANDS + 1)
        for step in (1, -1)
    }
    natives = {name for name, each in population.members.items() if not each.is_migrant}
    population.migrate(texts.__getitem__, rng)
    assert {each.candidate for each in population.members.values() if each.is_migrant} <= natives


def test_migration_is_due_when_the_busiest_island_has_had_fifty_children() -> None:
    population, texts = begun()
    rng = Random(1)
    for number in range(1, 51):
        assert population.migrated_at == 0
        landed = texts.landed(number, rng.random(), "c" * rng.randrange(1, 500))
        population.land(2, landed, texts.__getitem__, rng)
    assert population.migrated_at == 50


def test_the_first_island_gets_a_copy_of_the_best_when_it_explores_without_members() -> None:
    population, texts = begun()
    population.land(3, texts.landed(1, 0.9, "d = 4\n"), texts.__getitem__, Random(0))
    population._remove(["0.1"])
    rng = Random(1)  # begins with 0.13, which is a draw of exploration
    assert population.draw_plan(2, texts.__getitem__, rng).parent == "1.1"
    (name,) = population.islands[0]
    copy = population.members[name]
    assert (copy.candidate, copy.fitness, copy.island) == ("1.1", 0.9, 0)
    assert population.islands[3] == ["1.1"]
    assert population.grids[0] == {}


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=30))
def test_the_weights_of_a_draw_sum_to_one_and_leave_nobody_out(fitnesses: list[float]) -> None:
    weights = fitness_weights(fitnesses)
    assert sum(weights) == pytest.approx(1.0)
    assert min(weights) > 0


def test_texts_differ_by_length_lines_and_characters() -> None:
    # 4 characters more, 2 lines more, and b, c and the newline on one side only
    assert text_distance("aaa", "aabc\n\n.") == pytest.approx(0.4 + 20 + 0.5 * 4)
    assert text_distance("same", "same") == 0


def test_references_are_all_texts_until_there_are_too_many_and_then_spread_out() -> None:
    texts = {str(number): "d" * 10 * number for number in range(40)}
    names = [*texts]
    few = names[:NUM_REFERENCES]
    assert choose_references(few, texts.__getitem__, Random(0)) == few
    chosen = choose_references(names, texts.__getitem__, Random(0))
    assert len(set(chosen)) == NUM_REFERENCES
    # the second is the farthest from the first, whichever that is
    assert chosen[1] in ("0", "39")


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 120))
def test_a_population_that_was_written_and_read_goes_on_alike(seed: int, steps: int) -> None:
    population, texts = grown(seed, steps)
    read = Population.from_json(population.to_json())
    assert read == population
    landed = texts.landed(999, 0.77, "e" * 77)
    for each in (population, read):
        each.land(1, landed, texts.__getitem__, Random(5))
    assert read == population
