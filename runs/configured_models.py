"""The chat models that the settings of a run name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pydantic import ValidationError

from costada.evaluators.problem import Problem
from costada.graph.run_context import place_of_model
from costada.models.chat_models import chat_model
from costada.models.menu import MenuModel, ModelEntry
from costada.models.prices import price_book
from costada.models.providers import HALF_PRICE_PATIENCE, HALF_PRICE_TIER, STANDARD_TIER
from costada.nodes.context import ChatModel
from costada.runs.config import RunConfig, is_openai
from costada.runs.models_file import (
    SUFFIX,
    ModelsFile,
    named_models,
    read_models_file,
    resolved_entry,
)
from costada.runs.search_request import importable
from costada.runs.user_input import explain
from costada.values.roles import CANDIDATE, EVALUATION

if TYPE_CHECKING:
    from costada.runs.models_file import GivenModel


def models_of_problem(
    problem: Problem, config: RunConfig, *, needs_key: bool = True
) -> dict[str, dict[str, MenuModel]]:
    """The models that evaluations of a problem ask, by the role of their calls and by name.

    Args:
        problem: The problem.
        config: Says how calls are made.
        needs_key: Whether a missing key is refused.

    Raises:
        ValueError: A model is unknown, cannot be asked, or has no key.
    """
    fields = {EVALUATION: problem.models, CANDIDATE: problem.candidate_models}
    return {
        role: {
            name: _model_of_problem(
                name, given, place_of_model(problem, role, name), config, needs_key
            )
            for name, given in models.items()
        }
        for role, models in fields.items()
        if models
    }


def _model_of_problem(
    name: str, given: object, place: str, config: RunConfig, needs_key: bool
) -> MenuModel:
    if isinstance(given, MenuModel):
        return given
    if not isinstance(given, str | Mapping):
        try:
            return MenuModel(name, cast(ChatModel, given))  # it refuses other objects
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
    if isinstance(given, str):
        try:
            entry = resolved_entry(given, read_models_file(None)).model_copy(update={"name": name})
        except ValueError as error:
            raise ValueError(f"{place}: {str(error).removeprefix('models: ')}") from None
    else:
        try:
            entry = ModelEntry.model_validate({**given, "name": name})
        except ValidationError as error:
            raise ValueError(f"{place}: {explain(error, ModelEntry.model_fields)}") from None
    if entry.parameters:
        raise ValueError(
            f"{place}: got parameters {', '.join(entry.parameters)}, expected none: the requests of"
            " the evaluator say how it answers"
        )
    try:
        return menu_model(entry, config, needs_key=needs_key)
    except ValueError as error:
        own = f"models: {name}: "
        raise ValueError(f"{place}: {str(error).removeprefix(own)}") from None


def menu_models(
    models: str | Sequence[GivenModel], models_file: str | Path | None = None
) -> list[MenuModel]:
    """The models of a menu, ready for `create_discovery_graph`.

    Args:
        models: Texts as for `costada run --models`, in one with commas between them or in a list,
            and chat models.
        models_file: TOML file that explains texts; by default `models.toml` in the working folder,
            if there is one.

    Raises:
        ValueError: A model is unknown, cannot be asked, has no key or no price at the service tier
            that it asks for; or the file is wrong.
    """
    # Only for the default limits of calls; the problem is not looked up.
    config = RunConfig(problem="any")
    return [
        each if isinstance(each, MenuModel) else menu_model(each, config)
        for each in named_models(models, models_file)
    ]


def menu_model(entry: ModelEntry, config: RunConfig, *, needs_key: bool = True) -> MenuModel:
    """The chat model of a menu's entry; raises `ValueError` as `chat_model` does.

    A call at half the price may take longer. The price of a service tier has to be known.
    """
    tier = entry.service_tier
    if tier == HALF_PRICE_TIER and entry.timeout is None:
        entry = entry.model_copy(update={"timeout": config.call_timeout * HALF_PRICE_PATIENCE})
    try:
        model = _chat_model(entry, config, needs_key)
    except ValueError as error:
        raise ValueError(f"models: {entry.name}: {error}") from None
    if tier not in (None, STANDARD_TIER, *entry.tier_prices):
        book = price_book([(model, entry.given_price)], config.other_prices)
        if not book.has_tiers(model):
            raise ValueError(
                f"models: {entry.name}: service tier {tier!r} has no known price for this model;"
                " give price and tier_prices in models.toml"
            )
    return MenuModel.from_entry(entry, model)


def named_guide(menu: Sequence[MenuModel], config: RunConfig, needs_key: bool) -> ChatModel | None:
    """The guide that the settings name, `None` if it is the model; a name of the menu comes first.

    Beside a menu it may have an effort and a service tier, as an entry has.
    """
    name = config.guide_model
    if name is None or name == config.model:
        return None
    same = [entry.model for entry in menu if entry.name == name]
    if same:
        return same[0]
    if menu and SUFFIX in name:
        return menu_model(resolved_entry(name, ModelsFile()), config, needs_key=needs_key).model
    return named_model(name, config, needs_key)


def named_model(model_id: str, config: RunConfig, needs_key: bool) -> ChatModel:
    """The chat model of an id, which need not be a name for a menu; raises as `chat_model`."""
    entry = ModelEntry.model_construct(name=model_id, model=model_id)
    return _chat_model(entry, config, needs_key)


def _chat_model(entry: ModelEntry, config: RunConfig, needs_key: bool) -> ChatModel:
    return chat_model(
        importable(entry.model),
        base_url=entry.base_url or (config.base_url if is_openai(entry.model) else None),
        max_tokens=entry.max_tokens or config.max_tokens,
        timeout=entry.timeout or config.call_timeout,
        retry_wait=config.retry_wait,
        longest_wait=config.longest_wait,
        api_key_variable=entry.api_key_variable,
        service_tier=entry.service_tier,
        parameters=entry.parameters,
        seed=config.seed,
        needs_key=needs_key,
    )
