"""A search as a Python caller describes it, checked: settings, and objects beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from costada.evaluators.problem import Problem
from costada.evaluators.registry import problem
from costada.evaluators.remote.engine import FORMS
from costada.models.menu import MenuModel, label_of
from costada.nodes.context import ChatModel
from costada.runs.config import RunConfig, checked_config
from costada.runs.models_file import named_models
from costada.values.setting import OBJECT_MARK

if TYPE_CHECKING:
    from costada.runs.models_file import GivenModel


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search as a Python caller describes it.

    Attributes:
        config: Its settings; what was given as an object is labelled there.
        problem: The problem, if it was given as an object.
        model: The model, likewise.
        guide_model: The guide model, likewise.
        models: The models of the menu that were given as objects, by name.
        executor: The executor of evaluations, if it was given as an object.
        sends_requests: Whether models are asked, so that a missing key is an error.
    """

    config: RunConfig
    problem: Problem | None = None
    model: ChatModel | None = None
    guide_model: ChatModel | None = None
    models: Mapping[str, MenuModel] = field(default_factory=dict)
    executor: Executor | None = None
    sends_requests: bool = True


def parse_request(
    problem: str | Path | Problem,
    model: str | ChatModel | MenuModel | None,
    models: str | Sequence[GivenModel],
    models_file: str | Path | None,
    guide_model: str | ChatModel | None,
    settings: Mapping[str, object],
) -> SearchRequest:
    """Check what a caller gives for a search.

    Args:
        problem: A benchmark's name, a problem folder, or a problem.
        model: A model id or a chat model, in place of `models`.
        models: Models to choose from.
        models_file: Explains texts in `models`.
        guide_model: A model id, a chat model, or a name in `models`.
        settings: The settings of `RunConfig`, budget included.

    Raises:
        ValueError: Naming the argument or setting, its value and what was expected.
    """
    if not isinstance(problem, str | Path | Problem):
        raise ValueError(f"problem: got {problem!r}, expected a name, a folder or a Problem")
    if isinstance(model, list | tuple):
        raise ValueError(f"model: got {len(model)} models, expected them as models=[...]")
    if models_file and not models:
        raise ValueError(f"models_file: got {models_file} without models, expected both or none")
    menu = named_models(models, models_file) if models else []
    if model is None and not menu:
        raise ValueError("model: got None, expected a chat model or a model id, or several models")
    if model is not None and menu:
        raise ValueError(f"model: got {label_of(model)} and models, expected only one of them")
    if isinstance(model, MenuModel):
        # A menu of one: the entry has a name, a price and limits of its own.
        menu, model = [model], None
    names: dict[str, object] = {"problem": problem, "model": model, "guide_model": guide_model}
    executor = settings.get("evaluate_on")
    if isinstance(executor, Executor):
        names["evaluate_on"] = executor
        settings = {name: value for name, value in settings.items() if name != "evaluate_on"}
    elif executor is not None and not isinstance(executor, str):
        raise ValueError(
            f"evaluate_on: got {executor!r}, expected {FORMS}, or an open executor of"
            " concurrent.futures"
        )
    # Settings are saved as JSON. An object stands there by a label, and is given again on a resume.
    labels: dict[str, object] = {
        key: None if value is None else label_of(value) for key, value in names.items()
    }
    if menu:
        labels["models"] = [
            each.entry.model_copy(update={"model": label_of(each.model)})
            if isinstance(each, MenuModel)
            else each
            for each in menu
        ]
    return SearchRequest(
        checked_config({**labels, **settings}),
        problem=problem if isinstance(problem, Problem) else None,
        model=None if isinstance(model, str) else model,
        guide_model=None if isinstance(guide_model, str) else guide_model,
        models={each.name: each for each in menu if isinstance(each, MenuModel)},
        executor=executor if isinstance(executor, Executor) else None,
    )


GivenProblem = Problem | str | Path
"""A problem, the name of a benchmark, or a problem folder."""


def problems_by_name(given: Iterable[GivenProblem]) -> dict[str, Problem]:
    """Problems to choose from, in the order given.

    Raises:
        ValueError: There is no such problem, or two have the same name.
    """
    found: dict[str, Problem] = {}
    for each in given:
        one = each if isinstance(each, Problem) else problem(each)
        if one.name in found:
            raise ValueError(f"problems: got two named {one.name!r}, expected different names")
        found[one.name] = one
    return found


def importable(name: str) -> str:
    """The value of a setting; raises `ValueError` if it is the label of an object."""
    if name.startswith(OBJECT_MARK):
        raise ValueError(
            f"this run got {name.removeprefix(OBJECT_MARK)} as a Python object; resume it from"
            " Python: discover(..., out=FOLDER, resume=True)"
        )
    return name
