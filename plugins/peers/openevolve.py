"""The population of OpenEvolve: a MAP-Elites grid on each of five islands, and an elite archive.

The rules and the numbers in capitals are those of the package `openevolve` 0.4.1 from PyPI at its
defaults. Each docstring names the file and the function in which a rule stands there.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from random import Random
from typing import Any, Self

from costada.plugins.peers.peer_search import NO_GAINS, Choice, TextOf
from costada.values.candidate import Candidate

NUM_ISLANDS = 5
"""Islands on a ring (`config.py`, `DatabaseConfig.num_islands`)."""

POPULATION_SIZE = 1000
"""Members of all islands together (`DatabaseConfig.population_size`)."""

ARCHIVE_SIZE = 100
"""Members of the elite archive (`DatabaseConfig.archive_size`)."""

EXPLORATION, EXPLOITATION = 0.2, 0.7
"""Chances of the first two ways to draw a parent (`exploration_ratio`, `exploitation_ratio`)."""

ELITE_SHARE = 0.1
"""Share of the inspirations that are the best of the island (`elite_selection_ratio`)."""

NUM_BINS = 10
"""Cells of the grid along each feature (`feature_bins`; the archive's size asks for as many)."""

NUM_REFERENCES = 20
"""Programs that diversity is measured against (`diversity_reference_size`)."""

MIGRATION_INTERVAL = 50
"""Children of the busiest island between two migrations (`migration_interval`)."""

MIGRATION_SHARE = 0.1
"""Part of an island that migrates (`migration_rate`)."""

NUM_TOP, NUM_DIVERSE = 3, 2
"""Programs shown as the best and as others (`PromptConfig.num_top_programs`, `num_diverse_...`)."""

MIN_WEIGHT = 0.001
"""Smallest weight of a member in a draw by fitness (`database.py`)."""

MAX_STEP = 2
"""How many cells away a neighbour may lie along each feature (`database.py`)."""

MAX_MEASURED = 1000
"""Diversities that are remembered (`database.py`, `diversity_cache_size`)."""

COMPLEXITY, DIVERSITY = FEATURES = ("complexity", "diversity")
"""The features of the grid (`DatabaseConfig.feature_dimensions`)."""

Cell = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Member:
    """A program on an island.

    Attributes:
        id: Unique in the population; a migrant has its own.
        candidate: Id of the candidate whose program it is.
        text: Name of the program's text; two members with one text have the same.
        fitness: Score of the candidate.
        complexity: The evaluator's metric of that name, `None` where there is none.
        diversity: The same.
        island: Index of its island.
        is_migrant: Whether it is a copy from another island.
    """

    id: str
    candidate: str
    text: str
    fitness: float
    complexity: float | None = None
    diversity: float | None = None
    island: int = 0
    is_migrant: bool = False


@dataclass(slots=True)
class Population:
    """The members by id, and where each has its place; changed by `add`, `migrate` and draws.

    Attributes:
        members: All members, in the order in which they came.
        islands: Ids of each island's members, in the order in which they came.
        grids: The member in each occupied cell of an island's grid.
        archive: Ids of the elite archive.
        best: Id of the best member.
        island_bests: Id of the best member of each island; `None` if there is none.
        generations: Children that landed on each island.
        migrated_at: The most generations of an island at the last migration.
        ranges: Lowest and highest value of each feature so far.
        measured: Diversity of each text that was measured.
        references: Texts that diversity is measured against, by name.
        plans: What the next step of each island starts from; `None` while it is taken.
    """

    members: dict[str, Member] = field(default_factory=dict)
    islands: list[list[str]] = field(default_factory=lambda: [[] for _ in range(NUM_ISLANDS)])
    grids: list[dict[Cell, str]] = field(default_factory=lambda: [{} for _ in range(NUM_ISLANDS)])
    archive: list[str] = field(default_factory=list)
    best: str | None = None
    island_bests: list[str | None] = field(default_factory=lambda: [None] * NUM_ISLANDS)
    generations: list[int] = field(default_factory=lambda: [0] * NUM_ISLANDS)
    migrated_at: int = 0
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    references: list[str] = field(default_factory=list)
    plans: list[Choice | None] = field(default_factory=lambda: [None] * NUM_ISLANDS)

    def to_json(self) -> str:
        """The population as text."""
        plain = asdict(self)
        plain["members"] = [*plain["members"].values()]
        plain["grids"] = [[[*cell, id] for cell, id in grid.items()] for grid in self.grids]
        return json.dumps(plain)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The population that a text describes."""
        plain = json.loads(text)
        plain["members"] = {each["id"]: Member(**each) for each in plain["members"]}
        plain["grids"] = [{(x, y): id for x, y, id in grid} for grid in plain["grids"]]
        plain["ranges"] = {name: tuple(ends) for name, ends in plain["ranges"].items()}
        plain["plans"] = [_plan(each) for each in plain["plans"]]
        return cls(**plain)

    def add(self, member: Member, text_of: TextOf, rng: Random) -> None:
        """Put a program on its island (`database.py`, `_add`).

        It takes its cell of the grid if that is free or holds a worse one, which then leaves the
        island. A program that takes no cell stays on the island beside the grid.
        """
        island, grid = self.islands[member.island], self.grids[member.island]
        self.members[member.id] = member
        cell = self.cell_of(member, text_of, rng)
        replaced = grid.get(cell)
        if replaced is None or self._is_better(member, replaced):
            if replaced is not None:
                if replaced in self.archive:
                    self.archive.remove(replaced)
                    self.archive.append(member.id)
                island.remove(replaced)
            grid[cell] = member.id
        else:
            replaced = None
        island.append(member.id)
        self._enter_archive(member)
        if self.best is None or self._is_better(member, self.best):
            self.best = member.id
        self._note_island_best(member)
        if replaced is not None and replaced != self.best:
            self._remove([replaced])
        self._enforce_size(member.id)

    def _is_better(self, member: Member, other: str) -> bool:
        return member.fitness > self.members[other].fitness

    def _enter_archive(self, member: Member) -> None:
        """Any program enters while there is room, then a better one replaces the worst.

        `database.py`, `_update_archive`. One that took the place of a member of its cell may make
        the worst leave all the same.
        """
        if len(self.archive) >= ARCHIVE_SIZE:
            worst = min(self.archive, key=lambda each: self.members[each].fitness)
            if not self._is_better(member, worst):
                return
            self.archive.remove(worst)
        if member.id not in self.archive:
            self.archive.append(member.id)

    def _note_island_best(self, member: Member) -> None:
        """`database.py`, `_update_island_best_program`."""
        known = self.island_bests[member.island]
        if known is None:
            self.island_bests[member.island] = member.id
        elif known not in self.islands[member.island]:
            self._renew_island_bests()
        elif self._is_better(member, known):
            self.island_bests[member.island] = member.id

    def _renew_island_bests(self) -> None:
        """Find the best again on each island whose best has left it.

        `database.py`, `_cleanup_stale_island_bests`: islands without one are looked at only where
        some best has left.
        """
        stale = [
            index
            for index, best in enumerate(self.island_bests)
            if best is not None and best not in self.islands[index]
        ]
        for index in stale:
            self.island_bests[index] = None
        for index, island in enumerate(self.islands):
            if stale and self.island_bests[index] is None and island:
                self.island_bests[index] = max(island, key=lambda id: self.members[id].fitness)

    def _remove(self, ids: Sequence[str]) -> None:
        """Remove members from wherever they are."""
        for id in ids:
            del self.members[id]
            if id in self.archive:
                self.archive.remove(id)
            for island in self.islands:
                if id in island:
                    island.remove(id)
        for grid in self.grids:
            for cell in [cell for cell, holder in grid.items() if holder in ids]:
                del grid[cell]
        self._renew_island_bests()

    def _enforce_size(self, newcomer: str) -> None:
        """Remove the worst, those without a cell first, where there are too many members.

        `database.py`, `_enforce_population_limit`: the best and the newcomer stay, and the best
        does not count where it has lost its place.
        """
        owners = {holder for grid in self.grids for holder in grid.values()}
        placed = owners.union(*self.islands)
        excess = len(self.members) - (self.best not in placed) - POPULATION_SIZE
        if excess <= 0:
            return
        others = [each for each in self.members if each not in (self.best, newcomer)]
        others.sort(key=lambda each: (each in owners, self.members[each].fitness))
        self._remove(others[:excess])

    def cell_of(self, member: Member, text_of: TextOf, rng: Random) -> Cell:
        """The cell of a program, within the ranges that the features have had so far.

        `database.py`, `_calculate_feature_coords`: a metric of the evaluator that has the name of a
        feature takes its place. The first program has no diversity yet.
        """
        length = float(len(text_of(member.text)))
        complexity = self._bin(
            COMPLEXITY, length if member.complexity is None else member.complexity
        )
        if member.diversity is not None:
            return complexity, self._bin(DIVERSITY, member.diversity)
        if len(self.members) < 2:
            return complexity, 0
        return complexity, self._bin(DIVERSITY, self._diversity(member.text, text_of, rng))

    def _bin(self, feature: str, value: float) -> int:
        """The place of a value along a feature, whose range grows by it.

        `database.py`, `_update_feature_stats` and `_scale_feature_value`: a range without extent
        puts all in the middle.
        """
        low, high = self.ranges.get(feature, (inf, -inf))
        low, high = self.ranges[feature] = min(low, value), max(high, value)
        share = 0.5 if low == high else (value - low) / (high - low)
        return max(0, min(NUM_BINS - 1, int(share * NUM_BINS)))

    def _diversity(self, text: str, text_of: TextOf, rng: Random) -> float:
        """Mean distance of a text to the references, measured once.

        `database.py`, `_get_cached_diversity`: the references are chosen again until there are
        enough of them, and not changed afterwards.
        """
        if text in self.measured:
            return self.measured[text]
        if len(self.references) < NUM_REFERENCES:
            names = [each.text for each in self.members.values()]
            self.references = choose_references(names, text_of, rng)
        own = text_of(text)
        distances = [text_distance(own, text_of(each)) for each in self.references if each != text]
        if len(self.measured) >= MAX_MEASURED:
            del self.measured[next(iter(self.measured))]
        self.measured[text] = sum(distances) / max(1, len(distances))
        return self.measured[text]

    @classmethod
    def begin(
        cls, seed: Candidate, text_of: TextOf, rng: Random, gains: Mapping[str, float] = NO_GAINS
    ) -> Self:
        """The first island with the initial program, and a plan for the first step of each.

        `controller.py`, `run`; `process_parallel.py`, `run_evolution`.
        """
        population = cls()
        population.add(_member(seed, 0), text_of, rng)
        for island in range(NUM_ISLANDS):
            population.plans[island] = population.draw_plan(island, text_of, rng)
        return population

    def choose(self, island: int, text_of: TextOf, rng: Random) -> Choice:
        """What the next step of an island starts from: its plan, or another if that is in use."""
        plan = self.plans[island] or self.draw_plan(island, text_of, rng)
        self.plans[island] = None
        return plan

    def land(
        self,
        island: int,
        landed: Candidate | None,
        text_of: TextOf,
        rng: Random,
        gains: Mapping[str, float] = NO_GAINS,
    ) -> None:
        """Add the child of a step, migrate if that is due, and plan the island's next step.

        `process_parallel.py`, `run_evolution`; `database.py`, `should_migrate`.
        """
        if landed is not None:
            self.add(_member(landed, island), text_of, rng)
            self.generations[island] += 1
            if max(self.generations) - self.migrated_at >= MIGRATION_INTERVAL:
                self.migrate(text_of, rng)
        self.plans[island] = self.draw_plan(island, text_of, rng)

    def migrate(self, text_of: TextOf, rng: Random) -> None:
        """Copy the best of each island to both neighbours on the ring.

        `database.py`, `migrate_programs` and `_migrate_one`: all migrants are chosen before the
        first one moves, a copy never migrates again, and none moves to an island that has its text.
        """
        moves = []
        for index, island in enumerate(self.islands):
            natives = [self.members[id] for id in island if not self.members[id].is_migrant]
            natives.sort(key=lambda each: each.fitness, reverse=True)
            num_migrants = max(1, int(len(natives) * MIGRATION_SHARE))
            ends = (index + 1) % NUM_ISLANDS, (index - 1) % NUM_ISLANDS
            moves += [(each, end) for each in natives[:num_migrants] for end in ends]
        most = max(self.generations)
        for migrant, end in moves:
            texts = {self.members[id].text for id in self.islands[end]}
            if migrant.id not in self.members or migrant.text in texts:
                continue
            copy = Member(
                id=f"{migrant.candidate}@{end + 1}.{most}",
                candidate=migrant.candidate,
                text=migrant.text,
                fitness=migrant.fitness,
                complexity=migrant.complexity,
                diversity=migrant.diversity,
                island=end,
                is_migrant=True,
            )
            self.add(copy, text_of, rng)
        self.migrated_at = most

    def draw_plan(self, island: int, text_of: TextOf, rng: Random) -> Choice:
        """Draw what the next step of an island starts from.

        `database.py`, `sample_from_island`; `process_parallel.py`, `_run_iteration`, for what the
        prompt shows of the parent's island. An island without members starts as the first one does
        (`sample`), which gets a copy of the best when it explores without members
        (`_sample_exploration_parent`).
        """
        draw, home = rng.random(), island
        is_empty = not self.islands[island]
        near = self.islands[0 if is_empty else island]
        archived = [
            id for id in self.archive if self.members[id].island == (0 if is_empty else island)
        ]
        if draw < EXPLORATION:
            mode, parent = "exploration", rng.choice(near) if near else self._copy_best()
        elif draw < EXPLORATION + EXPLOITATION:
            mode, parent = "exploitation", rng.choice(archived or self.archive)
        elif is_empty:
            mode, parent = "weighted", rng.choice([*self.members])
        else:
            mode, parent = "weighted", self._draw_by_fitness(near, rng)
        if is_empty:
            home = self.members[parent].island
        inspirations = self._draw_inspirations(parent, home, text_of, rng)
        best = self._ranked(self.members[parent].island)[: NUM_TOP + NUM_DIVERSE]
        shown = [each.candidate for each in best]
        shown += [self.members[id].candidate for id in inspirations]
        return Choice(
            parent=self.members[parent].candidate,
            mode=mode,
            shown=tuple(dict.fromkeys(shown)),
            previous=tuple(shown[:NUM_TOP]),
        )

    def _copy_best(self) -> str:
        """Put a copy of the best on the first island, beside its grid; returns its id."""
        best = self.members[str(self.best)]
        name = f"{best.candidate}@1.{sum(self.generations)}.best"
        self.members[name] = replace(best, id=name, island=0, is_migrant=False)
        self.islands[0].append(name)
        return name

    def _draw_by_fitness(self, island: Sequence[str], rng: Random) -> str:
        """`database.py`, `_sample_from_island_weighted`."""
        if len(island) == 1:
            return island[0]
        weights = fitness_weights([self.members[id].fitness for id in island])
        return rng.choices(island, weights)[0]

    def _ranked(self, island: int) -> list[Member]:
        """The members of an island, best first, in the order in which they came on ties."""
        members = [self.members[id] for id in self.islands[island]]
        return sorted(members, key=lambda each: each.fitness, reverse=True)

    def _draw_inspirations(
        self, parent: str, island: int, text_of: TextOf, rng: Random
    ) -> list[str]:
        """The island's best, its elite, members of cells near the parent's, then any others.

        `database.py`, `_sample_inspirations`: the map of cells is made anew, within the ranges of
        today, so that the last member of a cell stands for it.
        """
        found: list[str] = []
        best = self.island_bests[island]
        if best is not None and best not in self.islands[island]:
            self.island_bests[island] = None
        elif best is not None and best != parent:
            found.append(best)
        num_elite = max(1, int(NUM_DIVERSE * ELITE_SHARE))
        for each in self._ranked(island)[:num_elite]:
            if each.id not in found and each.id != parent:
                found.append(each.id)
        missing = NUM_DIVERSE - len(found)
        if missing <= 0:
            return found[:NUM_DIVERSE]
        home = self.cell_of(self.members[parent], text_of, rng)
        cells = {self.cell_of(self.members[id], text_of, rng): id for id in self.islands[island]}
        for _ in range(3 * missing):
            moved = [place + rng.randint(-MAX_STEP, MAX_STEP) for place in home]
            x, y = (max(0, min(NUM_BINS - 1, place)) for place in moved)
            near = cells.get((x, y))
            if near is not None and near != parent and near not in found:
                found.append(near)
                if len(found) == NUM_DIVERSE:
                    return found
        others = [id for id in self.islands[island] if id != parent and id not in found]
        if others:
            found += rng.sample(others, min(NUM_DIVERSE - len(found), len(others)))
        return found


def fitness_weights(fitnesses: Sequence[float]) -> list[float]:
    """The chance of each member in a draw by fitness; they sum to one.

    `database.py`, `_sample_from_island_weighted`.
    """
    weights = [max(each, MIN_WEIGHT) for each in fitnesses]
    return [each / sum(weights) for each in weights]


def text_distance(one: str, other: str) -> float:
    """How different two texts are, by length, lines and the characters that occur.

    `database.py`, `_fast_code_diversity`.
    """
    length = abs(len(one) - len(other))
    lines = abs(one.count("\n") - other.count("\n"))
    return 0.1 * length + 10 * lines + 0.5 * len(set(one) ^ set(other))


def choose_references(names: Sequence[str], text_of: TextOf, rng: Random) -> list[str]:
    """The texts that diversity is measured against: all, or a spread-out choice of many.

    `database.py`, `_update_diversity_reference_set`: the first one is drawn, and each next one is
    the first that is farthest from its nearest chosen one.
    """
    if len(names) <= NUM_REFERENCES:
        return [*names]
    left = [*names]
    chosen = [left.pop(rng.randint(0, len(left) - 1))]
    while len(chosen) < NUM_REFERENCES and left:
        nearest = [
            min(text_distance(text_of(name), text_of(other)) for other in chosen) for name in left
        ]
        chosen.append(left.pop(nearest.index(max(nearest))))
    return chosen


def _member(landed: Candidate, island: int) -> Member:
    return Member(
        id=landed.id,
        candidate=landed.id,
        text=landed.program.hash,
        fitness=landed.score,
        complexity=landed.metrics.get(COMPLEXITY),
        diversity=landed.metrics.get(DIVERSITY),
        island=island,
    )


def _plan(plain: Mapping[str, Any] | None) -> Choice | None:
    if plain is None:
        return None
    return Choice(**{**plain, "shown": (*plain["shown"],), "previous": (*plain["previous"],)})
