"""The models of a graph with their prices, checked before anything is spent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from costada.controller.constants import Constants
from costada.evaluators.problem import Problem
from costada.models.asking import with_tools
from costada.models.menu import MenuModel
from costada.models.prices import PriceBook, price_book
from costada.models.providers import RetryPolicy
from costada.models.rate_limits import with_rate_limits
from costada.models.retries import with_visible_requests
from costada.models.runnable_tree import AskedModel, underlying_models
from costada.nodes.attempts import ordinary_input
from costada.nodes.calls.budget import expected_cost
from costada.nodes.context import ChatModel, PricedModel
from costada.nodes.settings import Settings
from costada.prompts.tools import TOOLS
from costada.values.usage import Price

GivenModels = ChatModel | MenuModel | Sequence[ChatModel | MenuModel]
"""What a caller gives: one model, or a menu of several."""


@dataclass(frozen=True, slots=True)
class Models:
    """The models that make attempts, and the guide model if it is another one."""

    menu: tuple[PricedModel, ...]
    guide_model: PricedModel | None


def priced_models(
    given: GivenModels, guide_model: ChatModel | None, problem: Problem, settings: Settings
) -> Models:
    """The models of a graph, ready to be asked.

    A single model and its guide model share their prices; each model of a menu has its own, so that
    one name may have two prices.

    Raises:
        ValueError: There is no model, one has no price or two, cannot be asked
            as the settings say, or a price is given that holds for none of several models.
    """
    listed = _listed(given)
    (first, *others), guide_price = listed, settings.guide_price
    if settings.price is not None and (others or first.entry.price):
        raise ValueError(
            f"price: got one for {len(listed)} models, expected that of each:"
            " MenuModel(name, model, price)"
            if others
            else f"price: got one in the settings beside that of {first.name}, expected only one"
        )
    asked = [_ready(each.model, each.entry.timeout, settings) for each in listed]
    guide = None
    at = next((n for n, each in enumerate(listed) if each.model is guide_model), None)
    if guide_model is not None and at is None:
        guide = with_limits(guide_model, settings.retry_policy)
    others_prices = settings.other_prices
    if others:
        books = [
            _prices_of(each, model, others_prices)
            for model, each in zip(asked, listed, strict=True)
        ]
        if at is not None and guide_price is not None:
            books[at] = price_book(
                [(asked[at], listed[at].entry.given_price), (asked[at], guide_price)], others_prices
            )
    else:
        own = first.entry.given_price or settings.price
        priced = [(asked[0], own)]
        if guide_model is not None:
            priced.append((guide or asked[0], guide_price))
        books = [price_book(priced, others_prices)]
    tokens = ordinary_input(problem, settings.constants, settings.method)
    menu = []
    for each, model, book in zip(listed, asked, books, strict=True):
        priced_model = PricedModel(each.entry, model, book)
        expected = float(expected_cost(priced_model, tokens))
        menu.append(replace(priced_model, expected=expected))
    if guide is not None:
        book = price_book([(guide, guide_price)], others_prices) if others else books[0]
        return Models(tuple(menu), PricedModel(None, guide, book))
    return Models(tuple(menu), menu[at] if at else None)


def _prices_of(listed: MenuModel, model: ChatModel, others: Mapping[str, Price]) -> PriceBook:
    """The prices of one model of a menu; its own comes before another of its name."""
    price = listed.entry.given_price
    own = "" if price is None else AskedModel(underlying_models(listed.model)[0]).name
    further = {name: each for name, each in others.items() if name != own}
    try:
        return price_book([(model, price)], further)
    except ValueError as error:
        raise ValueError(f"models: {listed.name}: {error}") from None


def with_limits(model: ChatModel, policy: RetryPolicy) -> ChatModel:
    """A model whose retries can be seen and whose requests wait for their turn."""
    return with_rate_limits(with_visible_requests(model, policy), policy)


def with_reference_cost(settings: Settings, menu: Sequence[PricedModel]) -> Settings:
    """The settings with the reference cost of a menu: its mean expected cost, unless one is set."""
    constants, cost = settings.constants, settings.reference_cost
    is_default = constants.reference_cost == Constants().reference_cost
    if cost is None and is_default and len(menu) > 1:
        cost = fmean(each.expected for each in menu) or None
    if cost is None:
        return settings
    return settings.model_copy(
        update={"constants": constants.model_copy(update={"reference_cost": cost})}
    )


def _listed(given: GivenModels) -> list[MenuModel]:
    """The given models under their names."""
    several = list(given) if isinstance(given, Sequence) else [given]
    if not several:
        raise ValueError("models: got none, expected at least one")
    return [each if isinstance(each, MenuModel) else _named(each) for each in several]


def _named(model: ChatModel) -> MenuModel:
    found = underlying_models(model)
    if not found:
        raise ValueError(f"model is {model!r}; expected a LangChain chat model")
    return MenuModel(AskedModel(found[0]).name, model)


def _ready(model: ChatModel, call_timeout: float | None, settings: Settings) -> ChatModel:
    policy = settings.retry_policy
    if call_timeout is not None:
        policy = policy.model_copy(update={"call_timeout": call_timeout})
    ready = with_limits(model, policy)
    if settings.generator == "agent":
        try:
            with_tools(ready, TOOLS)
        except ValueError as error:
            raise ValueError(f"generator: got 'agent', and {error}") from None
    return ready
