"""Which job is next: quotas and priorities of teams, by hand and for any queue."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from costada.agents.teams import Team, next_jobs, read_teams
from costada.store.job_queue import Job


def job(run, team, priority=0, place=0):
    return Job(run, team, "toy", priority, place, "{}")


def runs(jobs):
    return [each.run for each in jobs]


TEAMS = {"red": Team(budget=1), "blue": Team(budget=1)}


def test_teams_of_one_priority_take_turns_and_the_one_with_fewer_runs_begins():
    waiting = [job("r1", "red", place=1), job("r2", "red", place=2), job("b1", "blue", place=3)]
    assert runs(next_jobs(waiting, {}, TEAMS, 3)) == ["b1", "r1", "r2"]
    assert runs(next_jobs(waiting, {"blue": 1}, TEAMS, 2)) == ["r1", "b1"]


def test_within_a_team_priority_comes_first_then_age():
    waiting = [job("old", "red", 0, 1), job("new", "red", 0, 2), job("urgent", "red", 5, 3)]
    assert runs(next_jobs(waiting, {}, TEAMS, 3)) == ["urgent", "old", "new"]


def test_a_team_of_higher_priority_comes_first_up_to_its_quota():
    teams = {**TEAMS, "green": Team(budget=1, at_once=2, priority=1)}
    waiting = [job(f"g{n}", "green", place=n) for n in range(4)] + [job("r", "red", place=9)]
    assert runs(next_jobs(waiting, {"green": 1}, teams, 5)) == ["g0", "r"]


@given(
    some.lists(some.tuples(some.sampled_from("abc"), some.integers(-2, 2)), max_size=30),
    some.dictionaries(some.sampled_from("abc"), some.integers(0, 5)),
    some.lists(some.tuples(some.integers(1, 6), some.integers(0, 2)), min_size=3, max_size=3),
    some.integers(0, 12),
)
def test_no_team_exceeds_its_quota_and_no_place_stays_free_that_a_job_could_take(
    waiting, running, quotas, room
):
    teams = {
        name: Team(budget=1, at_once=most, priority=priority)
        for name, (most, priority) in zip("abc", quotas, strict=True)
    }
    jobs = [job(str(n), team, priority, n) for n, (team, priority) in enumerate(waiting)]
    found = next_jobs(jobs, running, teams, room)
    assert len({*runs(found)}) == len(found) <= room
    able = 0
    for name, team in teams.items():
        own = [each for each in jobs if each.team == name]
        free = max(0, team.at_once - running.get(name, 0))
        assert sum(each.team == name for each in found) <= free
        able += min(len(own), free)
        order = sorted(own, key=lambda each: (-each.priority, each.number))
        taken = [each for each in found if each.team == name]
        assert taken == order[: len(taken)]
    assert len(found) == min(room, able)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "has no team, expected a table such as"),
        ("[red]\nat_once = 2", "budget: is missing"),
        ("[red]\nbudget = 0", "red.budget: got 0, expected greater than 0"),
        (
            "[red]\nbudget = 1\nat_once = 0",
            "red.at_once: got 0, expected greater than or equal to 1",
        ),
        ("[red]\nbudget = 1\nat_once = 1.5", "red.at_once: got 1.5, expected an integer"),
        ("[red]\nbudget = 1\nquota = 2", "quota"),
        ("['a b']\nbudget = 1", "got the team 'a b', expected letters, digits, - and _"),
        ('[red]\nbudget = "5"', "red.budget: got '5', expected a number"),
        ("[red]\nbudget = true", "red.budget: got True, expected a number"),
        ("red = 1", "red: got 1, expected a table of names and values"),
        ("[red\nbudget = 1", "teams.toml: "),
    ],
)
def test_a_wrong_file_of_teams_is_refused_by_name(tmp_path, text, fault):
    file = tmp_path / "teams.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"teams\.toml: ") as refused:
        read_teams(file)
    assert fault in str(refused.value)


def test_a_file_of_teams_is_read(tmp_path):
    file = tmp_path / "teams.toml"
    file.write_text("[red]\nbudget = 1.5\nat_once = 2\npriority = -1\n[blue]\nbudget = 2\n")
    red, blue = Team(budget=1.5, at_once=2, priority=-1), Team(budget=2)
    assert read_teams(file) == {"red": red, "blue": blue}
