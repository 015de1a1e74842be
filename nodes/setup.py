"""A problem and settings as texts that tell runs apart, without loading a model."""

from functools import cache
from importlib import metadata

from costada.evaluators.fingerprint import problem_facts
from costada.evaluators.problem import Problem
from costada.nodes.settings import Settings
from costada.store.setup import as_texts

APART = {"method", "seed"}
"""Settings that distinguish the runs of a comparison."""


def problem_texts(problem: Problem) -> dict[str, str]:
    """Return the facts of a problem as texts by name."""
    return as_texts(problem_facts(problem))


def settings_texts(settings: Settings, budget: float) -> dict[str, str]:
    """Return the settings that runs of a comparison share, as texts by name."""
    known = settings.model_dump(mode="json", exclude=APART)
    return as_texts({**known, "budget": budget, "costada": _version()})


@cache
def _version() -> str:
    """Return the version of this package; empty where it is not installed."""
    try:
        return metadata.version("costada")
    except metadata.PackageNotFoundError:
        return ""
