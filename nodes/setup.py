"""What decides the result of a run besides method and seed, in words."""

import json
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib import metadata

from costada.evaluators.fingerprint import problem_facts
from costada.evaluators.problem import Problem
from costada.models.identity import model_facts
from costada.nodes.context import RunContext
from costada.nodes.settings import Settings
from costada.store.rows import RunSetup

APART = {"method", "seed"}
"""Settings that runs are told apart by, and compared in."""

LONGEST = 80
"""Characters of a fact; a longer one is told by its hash."""


def setup_of(context: RunContext, granted_budget: float | None = None) -> RunSetup:
    """Return the setup of a run that begins.

    Args:
        context: Of the run.
        granted_budget: Dollars that a purse granted; `None` if the run draws from none.
    """
    models = {"model": model_facts(context.model)}
    if context.guide_model is not context.model:
        models["guide_model"] = model_facts(context.guide_model)
    budget = context.budget if granted_budget is None else granted_budget
    return RunSetup(
        told_problem(context.problem), {**told_settings(context.settings, budget), **told(models)}
    )


def told_problem(problem: Problem) -> dict[str, str]:
    """Return the facts of a problem as texts by name."""
    return told(problem_facts(problem))


def told_settings(settings: Settings, budget: float) -> dict[str, str]:
    """Return the settings that runs of a comparison share, as texts by name."""
    known = settings.model_dump(mode="json", exclude=APART)
    return told({**known, "budget": budget, "costada": _version()})


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return in words which facts are no longer what they were."""
    names = sorted({*before, *now})
    return [
        f"{name} was {before.get(name, 'not set')}, is {now.get(name, 'not set')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def told(facts: Mapping[str, object]) -> dict[str, str]:
    """Return plain values as texts, those of a mapping under names with dots; none for `None`."""
    texts: dict[str, str] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            texts |= {f"{name}.{inner}": text for inner, text in told(_by_text(value)).items()}
        elif value is not None:
            texts[name] = _text(value)
    return texts


def _by_text(values: Mapping[object, object]) -> dict[str, object]:
    return {str(name): value for name, value in values.items()}


def _text(value: object) -> str:
    plain = json.dumps(value, default=lambda odd: f"a {type(odd).__name__}", sort_keys=True)
    text = value if isinstance(value, str) and value.isprintable() else plain
    return text if len(text) <= LONGEST else sha256(plain.encode()).hexdigest()[:16]


@cache
def _version() -> str:
    """Return the version of this package; empty where it is not installed."""
    try:
        return metadata.version("costada")
    except metadata.PackageNotFoundError:
        return ""
