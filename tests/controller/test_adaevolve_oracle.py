"""AdaEvolve against its description, written down a second time with plain dictionaries."""

from math import inf, log, sqrt
from random import Random

import pytest
from controller_samples import BALANCE, bill, candidate, played, random_scores

from costada.controller.archive import Archive, EliteWeights
from costada.controller.baselines.adaevolve import AdaEvolve
from costada.controller.constants import Constants
from costada.controller.step import seed_archives

WEIGHTS = {
    "balanced": EliteWeights(0.7, 0.3, 0.2),
    "quality": EliteWeights(0.8, 0.2, 0.3),
    "diversity": EliteWeights(0.5, 0.5, 0.1),
    "pareto": EliteWeights(0.8, 0.2, 0.2),
    "exploration": EliteWeights(0.5, 0.5, 0.05),
}


class Oracle:
    def __init__(self, seed_score: float, archives: tuple[Archive, ...]) -> None:
        self.archives = list(archives)
        self.gbest = self.y = -inf
        self.h: list[int] = []
        self.tactics: list[int] = []
        self.turn = self.t = self.guides = 0
        self.last_spawn = -30
        self.guide_next = False
        self.frontiers = [self.blank() for _ in archives]
        self.regular(0, seed_score)
        for k in range(1, len(archives)):
            self.external(k, seed_score)

    @staticmethod
    def blank(preset: str | None = None) -> dict[str, object]:
        zeros = dict.fromkeys(("G", "imp", "ev", "V", "W", "D"), 0)
        return {"best": -inf, "preset": preset, **zeros}

    def external(self, k: int, f: float) -> None:
        s = self.frontiers[k]
        if f > s["best"]:
            delta = 1 if s["best"] == -inf else min((f - s["best"]) / (abs(s["best"]) + 1e-8), 1)
            s["best"] = f
            s["G"] = 0.9 * s["G"] + 0.1 * delta**2
        self.gbest = max(self.gbest, f)

    def regular(self, k: int, f: float) -> None:
        s = self.frontiers[k]
        x = 0.0
        if f > s["best"]:
            x = 1 if self.gbest == -inf else min((f - s["best"]) / (abs(self.gbest) + 1e-8), 1)
            s["imp"] += 1
        self.h = [*self.h, int(f > self.y)][-10:]
        self.y = max(self.y, f)
        self.external(k, f)
        s["ev"] += 1
        s["V"] += 1
        s["D"] = 0.9 * s["D"] + 1
        s["W"] = 0.9 * s["W"] + x

    def choose(self, rng: Random) -> int:
        if self.t == 0:
            return 0
        unvisited = [k for k, s in enumerate(self.frontiers) if s["V"] < 3]
        if unvisited:
            return rng.choice(unvisited)
        value = [s["W"] / s["D"] + 1.41 * sqrt(log(self.t + 1) / s["V"]) for s in self.frontiers]
        return max(range(len(value)), key=lambda k: (value[k], -k))

    def step(self, score: float | None, attempts: int, seed: int) -> tuple[int, str]:
        t = self.t + 1
        if self.guide_next:
            self.guides += 1
            if self.guides % 3:
                self.tactics, self.turn = [2] * (self.guides % 3), 0
        rng = Random(f"{seed}/{t}/allocate")
        k = self.choose(rng)
        intensity = 0.15 + 0.35 / (1 + sqrt(self.frontiers[k]["G"] + 1e-8))
        for _ in range(attempts):
            self.use()
        if score is not None:
            before = self.archives[k]
            self.archives[k] = before.insert(candidate(f"c{t}", score))
            if self.archives[k] is not before:
                self.regular(k, score)
            self.y = max(self.y, score)
        self.spawn(t, Random(f"{seed}/{t}/maintenance"))
        if t % 15 == 0:
            self.migrate(t)
        draw = rng.random()
        exploit = draw < intensity + 0.7 * (1 - intensity)
        name = "exploration" if draw < intensity else "exploitation" if exploit else "balanced"
        self.t = t
        self.guide_next = len(self.h) == 10 and not any(self.tactics) and sum(self.h) / 10 < 0.12
        return k, name

    def use(self) -> None:
        if any(self.tactics):
            while not self.tactics[self.turn % len(self.tactics)]:
                self.turn += 1
            self.tactics[self.turn % len(self.tactics)] -= 1
            self.turn += 1

    def spawn(self, t: int, rng: Random) -> None:
        ev = sum(s["ev"] for s in self.frontiers)
        barren = sum(s["imp"] for s in self.frontiers) / ev < 0.015
        if len(self.frontiers) >= 5 or t - self.last_spawn < 30 or not barren:
            return
        counts = dict.fromkeys(WEIGHTS, 0)
        for s in self.frontiers:
            if s["preset"]:
                counts[s["preset"]] += 1
        preset = rng.choice([name for name in WEIGHTS if counts[name] == min(counts.values())])
        everyone = sorted((m for a in self.archives for m in a.members), key=lambda m: -m.score)
        texts: list[str] = []
        new = Archive((), self.archives[0].size, WEIGHTS[preset])
        for member in everyone:
            if member.program.text not in texts and len(texts) < 5:
                texts.append(member.program.text)
                new = new.insert(candidate(f"s{t}.{len(texts)}", member.score, member.program.text))
        self.archives.append(new)
        self.frontiers.append(self.blank(preset))
        self.last_spawn = t

    def migrate(self, t: int) -> None:
        count = len(self.archives)
        for source in range(count):
            target = (source + 1) % count
            best = sorted(self.archives[source].members, key=lambda m: -m.score)[:5]
            for n, member in enumerate(best):
                if member.program.text in [m.program.text for m in self.archives[target].members]:
                    continue
                copy = candidate(f"m{t}.{source}.{n}", member.score, member.program.text)
                before = self.archives[target]
                self.archives[target] = before.insert(copy)
                if self.archives[target] is not before:
                    self.external(target, member.score)


def barren_scores(seed: int, steps: int) -> list[float | None]:
    rng = Random(seed)
    return [rng.choice([0.1, 0.2, 0.3, 0.45, 0.5]) for _ in range(steps)]


@pytest.mark.parametrize("size", [2, 20, 300])
@pytest.mark.parametrize("scores", [random_scores(1, 200), barren_scores(3, 220)])
@pytest.mark.parametrize("num_frontiers", [1, 2, 3])
def test_every_statistic_follows_the_description(
    scores: list[float | None], size: int, num_frontiers: int
) -> None:
    constants = Constants(archive_size=size, num_frontiers=num_frontiers)
    start = AdaEvolve.start(0.5, constants)
    seeds = [candidate(f"0.{n + 1}", 0.5, "seed") for n in range(num_frontiers)]
    oracle = Oracle(0.5, seed_archives(start, seeds, constants))
    run = played("adaevolve", scores, bill(len(scores)), constants=constants, seed=7)
    previous = start
    for t, (score, (controller, archives)) in enumerate(zip(scores, run, strict=True), start=1):
        expected = oracle.step(score, 2 if t % 4 == 0 else 1, seed=7)
        assert isinstance(controller, AdaEvolve)
        assert chosen(previous, t, constants) == expected
        assert_same(controller, archives, oracle)
        previous = controller


def chosen(controller: AdaEvolve, t: int, constants: Constants) -> tuple[int, str]:
    allocation = controller.ask(BALANCE, Random(f"7/{t}/allocate"), constants)
    return allocation.frontier, allocation.action.value


def assert_same(controller: AdaEvolve, archives: tuple[Archive, ...], oracle: Oracle) -> None:
    state = controller
    assert [frontier.signal for frontier in state.frontiers] == pytest.approx(
        [s["G"] for s in oracle.frontiers], rel=1e-9
    )
    remembered = [
        (f.best_score, f.improvements, f.evaluations, f.visits, f.reward, f.decayed_visits)
        for f in state.frontiers
    ]
    described = ("best", "imp", "ev", "V", "W", "D")
    assert remembered == [tuple(s[key] for key in described) for s in oracle.frontiers]
    assert [f.preset for f in state.frontiers] == [s["preset"] for s in oracle.frontiers]
    assert (state.global_best, controller.incumbent_score) == (oracle.gbest, oracle.y)
    assert [int(entry) for entry in state.history] == oracle.h
    assert (state.last_spawn, controller.iteration) == (oracle.last_spawn, oracle.t)
    assert controller.pending == ("breakthrough" if oracle.guide_next else None)
    uses = list(controller.cycle.uses_left) if controller.cycle else []
    assert (uses if any(uses) else []) == (oracle.tactics if any(oracle.tactics) else [])
    held = [[(m.program.text, m.score) for m in archive.members] for archive in archives]
    assert held == [
        [(m.program.text, m.score) for m in archive.members] for archive in oracle.archives
    ]
