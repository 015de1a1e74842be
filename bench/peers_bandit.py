"""Choices of ShinkaEvolve's bandit over models, replayed against the routers of `plugins/peers`.

`AsymmetricUCB` of the package is given scripted scores and costs of the models that it draws, up to
three of them in flight. The router here is given the same, and has to give each model the same
chance before each draw.

    pip install --no-deps --target DIR shinka-evolve==0.0.7
    python bench/peers_bandit.py DIR

Prints one line per rule and script: choices compared, choices that differ, and the first
difference. The exit code is 1 if any differ that must not.
"""

import argparse
import sys
from dataclasses import dataclass, replace
from importlib.util import module_from_spec, spec_from_file_location
from math import isclose
from pathlib import Path
from random import Random
from typing import Any

from costada.controller.arms import Arm, ModelOption
from costada.controller.router import start_router
from costada.plugins.peers.bandit import PRICE_BLIND, PRICE_WEIGHT, SHINKA, ShinkaRouter

SEED_SCORE = 0.3
MAX_IN_FLIGHT = 3
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Script:
    """What the answers of a menu bring and cost, drawn from a seed.

    Attributes:
        seed: Decides all of it.
        scale: Factor of all scores; from some hundreds on, their exponentials are not finite.
        failure_rate: Part of the programs that the evaluator refuses.
        unanswered_rate: Part of the answers without a program, which the package leaves out of its
            rewards.
    """

    seed: int
    scale: float = 1.0
    failure_rate: float = 0.3
    unanswered_rate: float = 0.0

    @property
    def models(self) -> list[str]:
        """Names of two to five models."""
        return [*"abcde"[: 2 + self.seed % 4]]

    def price(self, name: str) -> float:
        """Dollars of an ordinary answer of a model."""
        return 0.002 * 4.0 ** Random(f"{self.seed}/{name}").uniform(0.0, 2.0)


def package_bandit(folder: Path) -> Any:
    """The class of the package, from its file alone: the folder imports clients of providers."""
    sys.path.append(str(folder))
    path = folder / "shinka" / "llm" / "prioritization.py"
    spec = spec_from_file_location("prioritization", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"{folder}: it has no {path.relative_to(folder)}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.AsymmetricUCB


def reported(bandit: Any, rule: str, script: Script, iterations: int) -> tuple[int, list[str]]:
    """How many choices were compared, and those that differ."""
    rng = Random(f"answers {script.seed}")
    weight = PRICE_WEIGHT if rule == SHINKA else 0.0
    package = bandit(arm_names=script.models, seed=script.seed, cost_aware_coef=weight)
    package.set_baseline_score(SEED_SCORE * script.scale)
    router = start_router(rule, script.models)
    in_flight: list[str] = []
    best, differences = SEED_SCORE, list[str]()
    for number in range(iterations):
        one_hot, theirs = package.select_llm()
        if not isinstance(router, ShinkaRouter):
            raise TypeError(f"router: got {router}, expected a ShinkaRouter")
        arms = [
            Arm(each, ModelOption(each.name, script.price(each.name), in_flight.count(each.name)))
            for each in router.records
        ]
        ours = router.probabilities(arms)
        if not all(isclose(a, b, abs_tol=TOLERANCE) for a, b in zip(theirs, ours, strict=True)):
            differences.append(f"choice {number}: package {[*theirs]}, router {ours}")
        name = script.models[int(one_hot.argmax())]
        package.update_submitted(name)
        in_flight.append(name)
        while in_flight and (len(in_flight) == MAX_IN_FLIGHT or rng.random() < 0.5):
            name = in_flight.pop(rng.randrange(len(in_flight)))
            parent = best if rng.random() < 0.5 else SEED_SCORE
            dollars = script.price(name) * rng.lognormvariate(0.0, 0.3)
            is_answered = rng.random() >= script.unanswered_rate
            is_valid = is_answered and rng.random() >= script.failure_rate
            score = min(1.0, max(0.0, parent + rng.gauss(-0.05, 0.1))) if is_valid else None
            package.update_cost(name, dollars)
            scaled = None if score is None else score * script.scale
            if is_answered:
                package.update(name, scaled, parent * script.scale)
            router = router.tell(name, scaled, parent * script.scale, dollars, has_reference=False)
            best = max(best, score or 0.0)
    return iterations, differences


UNANSWERED = "the package takes an answer without a program for no answer, the router for a failure"


def main() -> int:
    """Compare both routers on all scripts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the package is installed")
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=8)
    given = parser.parse_args()
    bandit = package_bandit(given.folder)
    scripts = [Script(seed) for seed in range(given.seeds)]
    kinds = [
        ("scores up to 1", scripts, ""),
        ("scores up to 10,000", [replace(each, scale=1e4) for each in scripts], ""),
        (
            "a tenth without a program",
            [replace(each, unanswered_rate=0.1) for each in scripts],
            UNANSWERED,
        ),
    ]
    failed = False
    for rule in (SHINKA, PRICE_BLIND):
        for kind, chosen, reason in kinds:
            found = [reported(bandit, rule, script, given.iterations) for script in chosen]
            compared = sum(each for each, _ in found)
            differences = [text for _, texts in found for text in texts]
            why = f" ({reason})" if reason else ""
            first = f"; first at {differences[0]}" if differences else ""
            print(f"{rule}, {kind}: {compared} choices, {len(differences)} differ{why}{first}")
            failed = failed or bool(differences and not reason)
    return failed


if __name__ == "__main__":
    sys.exit(main())
