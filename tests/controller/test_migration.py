from controller_samples import archive, candidate, ids

from costada.controller.archive import (
    Arrival,
    exchange,
    is_migration_due,
    migrant_copy,
    migrate,
    original_id,
)
from costada.controller.constants import Constants

CONSTANTS = Constants(num_migrants=2)


def test_a_migration_follows_every_fifteenth_iteration() -> None:
    assert [t for t in range(46) if is_migration_due(t, CONSTANTS)] == [15, 30, 45]


def test_nothing_moves_between_migrations() -> None:
    archives = (archive(candidate("a", 0.5)), archive(candidate("b", 0.6)))
    assert migrate(archives, 14, CONSTANTS) is archives


def test_the_best_of_each_frontier_are_copied_along_the_ring() -> None:
    archives = (
        archive(candidate("a1", 0.1), candidate("a2", 0.5), candidate("a3", 0.6)),
        archive(candidate("b1", 0.4)),
        archive(candidate("c1", 0.9)),
    )
    first, second, third = migrate(archives, 15, CONSTANTS)
    assert ids(second.members) == ["b1", "a3>1@15", "a2>1@15"]
    assert ids(third.members) == ["c1", "a3>1@15>2@15", "a2>1@15>2@15"]
    assert ids(first.members) == ["a1", "a2", "a3", "c1>0@15"]


def test_a_text_the_destination_holds_is_not_sent() -> None:
    archives = (archive(candidate("a", 0.5, "x")), archive(candidate("b", 0.1, "x")))
    assert migrate(archives, 15, CONSTANTS) == archives


def test_a_full_destination_applies_its_insertion_rule() -> None:
    full = archive(candidate("b1", 0.8, "aa"), candidate("b2", 0.7, "bb"), size=2)
    weak, strong = candidate("weak", 0.1, "cc"), candidate("strong", 0.9, "dd")
    assert migrate((archive(weak), full), 15, CONSTANTS)[1] is full
    assert ids(migrate((archive(strong), full), 15, CONSTANTS)[1].members) == ["b1", "strong>1@15"]


def test_every_migrant_that_entered_arrives_in_order_and_no_other_does() -> None:
    first = archive(candidate("weak", 0.6), candidate("strong", 0.9), candidate("rest", 0.1))
    full = archive(candidate("b1", 0.8, "aa"), candidate("b2", 0.65, "bb"), size=2)
    archives, arrivals = exchange((first, full), 15, CONSTANTS)
    assert archives == migrate((first, full), 15, CONSTANTS)
    assert [(each.frontier, each.candidate.id) for each in arrivals] == [
        (1, "strong>1@15"),
        (0, "b1>0@15"),
    ]
    assert arrivals[1] == Arrival(0, migrant_copy(full.members[0], 0, 15))


def test_a_migrant_arrived_even_if_the_next_one_took_its_place() -> None:
    full = archive(
        candidate("b1", 0.9, "xx"),
        candidate("b2", 0.5, "yy"),
        candidate("b3", 0.1, "aa bb"),
        size=3,
    )
    equals = archive(candidate("a1", 0.5, "aa bb cc"), candidate("a2", 0.5, "aa bb cc dd"))
    archives, arrivals = exchange((equals, full), 15, CONSTANTS)
    assert ids(archives[1].members) == ["b1", "b2", "a2>1@15"]
    assert [each.candidate.id for each in arrivals] == ["a1>1@15", "a2>1@15", "b1>0@15", "b2>0@15"]


def test_nobody_arrives_between_migrations() -> None:
    archives = (archive(candidate("a", 0.5)), archive(candidate("b", 0.6)))
    assert exchange(archives, 14, CONSTANTS) == (archives, ())


def test_a_single_frontier_sends_nothing_to_itself() -> None:
    alone = (archive(candidate("a", 0.5)),)
    assert migrate(alone, 15, CONSTANTS) == alone


def test_a_copy_is_a_child_of_its_original_and_keeps_the_rest() -> None:
    original = candidate("a", 0.5, parent_id="seed", iteration=3)
    copy = migrant_copy(original, 1, 15)
    assert (copy.id, copy.parent_id, copy.iteration) == ("a>1@15", "a", 15)
    assert (copy.program.text, copy.score, copy.generation) == (original.program.text, 0.5, 1)


def test_a_copy_of_a_copy_goes_back_to_its_original() -> None:
    twice = migrant_copy(migrant_copy(candidate("a", 0.5), 1, 15), 0, 30)
    assert (twice.id, original_id(twice.id)) == ("a>1@15>0@30", "a")
    assert original_id("a") == "a"
