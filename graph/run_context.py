"""What a search is given, checked before anything is spent, and put together as its context."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean
from typing import Required, get_args

from typing_extensions import TypedDict, Unpack

from costada.controller.constants import Constants
from costada.controller.experiment import check_experiment
from costada.controller.method import ParentRule
from costada.controller.methods import check_guides
from costada.controller.router import start_router
from costada.evaluators.folder_evaluators import FolderEvaluator, FolderFunction
from costada.evaluators.problem import Problem
from costada.evaluators.repository import RepositoryEvaluator
from costada.evaluators.sandboxed import CandidateRunner, Confined
from costada.graph.graph_input import Overrides
from costada.models.asking import with_tools
from costada.models.menu import MenuModel
from costada.models.prices import HOW_TO_PRICE, PriceBook, price_book
from costada.models.providers import RetryPolicy
from costada.models.rate_limits import with_rate_limits
from costada.models.retries import with_visible_requests
from costada.models.runnable_tree import AskedModel, underlying_models
from costada.nodes.attempts import first_prompt, ordinary_input
from costada.nodes.calls.bounds import (
    check_first_request,
    evaluation_bound,
    expected_cost,
    expected_evaluation,
)
from costada.nodes.context import ChatModel, LandingOrder, PricedModel, RunContext
from costada.nodes.generator_command import WITH_TOOLS, GeneratorCommand, is_command
from costada.nodes.settings import MAX_PARALLEL, Settings
from costada.prompts.tools import TOOLS
from costada.store.purse import Purse
from costada.store.run_store import RunStore
from costada.values.evaluation import Direction
from costada.values.roles import CANDIDATE, EVALUATION

GivenModels = ChatModel | MenuModel | Sequence[ChatModel | MenuModel]
"""What a caller gives: one model, or a menu of several."""


class SearchOptions(TypedDict, total=False):
    """Further arguments of a search, as `RunContext` keeps them.

    `budget` is dollars a run may spend (B); the step that crosses it completes, then the run stops.
    `name` is that of the graph. Each run draws its budget from a `purse`, as an account named by
    its run id, and returns to it at its end what it did not spend. Where less than the budget is
    left, a run gets what there is; a hard purse raises `OverBudget` when the run begins.

    Up to `parallel` steps are in flight at a time (K); with more than one, model calls and
    evaluations overlap. They land in the `order` in which they finish, the fastest, or with
    `"launch"` in that of their launch, so that a seed gives the same run whatever the latencies.

    `router` says who chooses among several models: a name in `ROUTERS`, or `fixed:NAME`. `chosen`
    is what a caller has chosen for a run, which the run's state keeps, and `max_budget` the most
    dollars that it may grant a run when it is asked for more.
    """

    budget: Required[float]
    name: str
    purse: Purse | None
    parallel: int
    order: LandingOrder
    router: str
    chosen: Overrides
    max_budget: float


def run_context(
    problem: Problem,
    model: GivenModels,
    *,
    store: RunStore,
    guide_model: ChatModel | None = None,
    settings: Settings | None = None,
    granted: Mapping[str, Mapping[str, MenuModel]] | None = None,
    **options: Unpack[SearchOptions],
) -> RunContext:
    """Check the arguments of a search and build its context.

    Args:
        problem: The starting program and its evaluator.
        model: The chat model that proposes programs; may be wrapped in retries or fallbacks. Of
            several, a menu, the router chooses one for each attempt; a bare model is called by its
            own name there, and `MenuModel` gives it another one, or a price.
        store: Where programs and calls are kept.
        guide_model: The chat model that is asked for tactics; by default `model`, of several the
            first.
        settings: Controller constants, seed and prices.
        granted: The models that evaluations ask, by the role of their calls and the names that
            requests give.
        **options: The budget and further `SearchOptions`.

    Raises:
        ValueError: An argument is not what it should be, a model that may be called has no price
            or two, two models have one name, a model makes retries that cannot be seen, a guide
            price comes without a guide model, the purse is hard and the budget policy is not, a
            hard budget pays for no request and the caller is not to be asked for more, an
            experiment is about a part that the run does not have, a model is to use tools and
            cannot, or the program of a command as the generator is missing.
    """
    settings = settings or Settings()
    _check_arguments(problem, options["budget"], guide_model, settings, store)
    models = priced_models(model, guide_model, problem, settings)
    _check_granted(problem, granted or {})
    _check_allowance(problem, settings)
    context = RunContext(
        granted=priced_models_by_role(problem, granted or {}, settings),
        problem=problem,
        menu=models.menu,
        guide_model=models.guide_model,
        settings=with_reference_cost(settings, models.menu),
        store=store,
        **options,
    )
    _check_parallel(context.parallel, context.order)
    _check_purse(context.purse, settings)
    _check_parents(context)
    check_guides(context.method, context.constants.guides)
    _check_target(context)
    check_experiment(settings.experiment, context.method, settings.constants, len(context.menu))
    start_router(context.router, [each.name for each in models.menu])
    # A caller who can be asked for more may begin with less than one request costs.
    if context.is_hard and settings.on_exhausted == "stop":
        evaluation = evaluation_bound(problem, settings)
        check_first_request(models.menu, first_prompt(problem), context.budget, evaluation)
    return context


def _check_arguments(
    problem: object, budget: object, guide_model: object, settings: object, store: object
) -> None:
    if not isinstance(problem, Problem):
        raise ValueError(f"problem: got {problem!r}, expected a Problem such as problem(NAME)")
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 < budget < inf:
        raise ValueError(f"budget: got {budget!r}, expected finite dollars above 0")
    if not isinstance(settings, Settings):
        raise ValueError(f"settings: got {settings!r}, expected Settings(...)")
    if is_command(settings.generator):
        GeneratorCommand.read(settings.generator).program()
    if settings.guide_price is not None and guide_model is None:
        raise ValueError("guide_price: got one without guide_model, expected both or none")
    if not isinstance(store, RunStore | None):
        # without the value: an address may hold a password
        raise ValueError(
            f"store: got a {type(store).__name__}, expected None or a RunStore, such as"
            " RunStore.postgres(ADDRESS)"
        )


def _check_parallel(parallel: object, order: object) -> None:
    is_no_number = isinstance(parallel, bool) or not isinstance(parallel, int)
    if is_no_number or parallel not in range(1, MAX_PARALLEL + 1):
        raise ValueError(
            f"parallel: got {parallel!r}, expected an integer from 1 to {MAX_PARALLEL}"
        )
    if order not in get_args(LandingOrder):
        raise ValueError(f"order: got {order!r}, expected 'landing' or 'launch'")


def _check_parents(context: RunContext) -> None:
    """Refuse parents from the front over examples where there are none, or nobody draws them."""
    settings, method = context.settings, context.method
    if settings.parents != "pareto":
        return
    if not context.problem.examples:
        raise ValueError(
            f"parents: got 'pareto' for problem {context.problem.name!r}, which has no examples;"
            " expected 'method'"
        )
    if method.start(0.0, settings.constants).parents is ParentRule.POPULATION:
        raise ValueError(
            f"parents: got 'pareto' with method {method.name!r}, which chooses parents itself;"
            " expected 'method'"
        )


def _check_target(context: RunContext) -> None:
    """Refuse a target that no minimised objective reaches."""
    target, problem = context.settings.target, context.problem
    if target is not None and target <= 0 and problem.direction is Direction.MINIMIZE:
        raise ValueError(
            f"target: got {target:g} for problem {problem.name!r}, which minimises a positive"
            " objective; expected above 0"
        )


def _check_purse(purse: object, settings: Settings) -> None:
    """Refuse a hard purse for a run that may cross its budget."""
    if not isinstance(purse, Purse | None):
        raise ValueError(f"purse: got {purse!r}, expected Purse(BUDGET) or None")
    if purse and purse.policy == "hard" and settings.budget_policy != "hard":
        raise ValueError(
            f"budget_policy: got {settings.budget_policy!r} with a hard purse, expected 'hard'"
        )


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
            _prices_of(each, model, settings, f"models: {each.name}")
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
        dollars = expected_cost(priced_model, tokens) + expected_evaluation(problem, settings)
        expected = float(dollars)
        menu.append(replace(priced_model, expected=expected))
    if guide is not None:
        book = price_book([(guide, guide_price)], others_prices) if others else books[0]
        return Models(tuple(menu), PricedModel(None, guide, book))
    return Models(tuple(menu), menu[at] if at else None)


TABLES = {EVALUATION: "models", CANDIDATE: "candidate_models"}
"""Where a problem declares the models of a role."""


def priced_models_by_role(
    problem: Problem, given: Mapping[str, Mapping[str, MenuModel]], settings: Settings
) -> dict[str, dict[str, PricedModel]]:
    """Models that evaluations ask, by role and by the names that requests give.

    Raises:
        ValueError: One has no price, or makes retries that cannot be seen.
    """
    return {
        role: {name: _granted_model(problem, role, name, models[name], settings) for name in models}
        for role, models in given.items()
    }


def _granted_model(
    problem: Problem, role: str, name: str, each: MenuModel, settings: Settings
) -> PricedModel:
    policy = settings.retry_policy
    if each.entry.timeout is not None:
        policy = policy.model_copy(update={"call_timeout": each.entry.timeout})
    model = with_limits(each.model, policy)
    asked = AskedModel(underlying_models(each.model)[0]).name
    if is_of_folder(problem):
        how = f'[{TABLES[role]}.{name}] with model = "{each.entry.model}" and price = "IN,OUT"'
    else:
        how = (
            f'{{"model": ..., "price": "IN,OUT"}} or MenuModel({name!r}, model, Price(IN, OUT)) for'
            f" it, or other_prices={{{asked!r}: Price(IN, OUT)}}"
        )
    place = place_of_model(problem, role, name)
    how += ", in dollars per million tokens"
    return PricedModel(each.entry, model, _prices_of(each, model, settings, place, how))


def place_of_model(problem: Problem, role: str, name: str) -> str:
    """Where a problem declares a model that its evaluations ask, for messages."""
    if is_of_folder(problem):
        return f"problem.toml, [{TABLES[role]}.{name}]"
    return f'Problem({TABLES[role]}={{"{name}": ...}})'


def is_of_folder(problem: Problem) -> bool:
    """Whether a problem is described by a folder."""
    own = FolderEvaluator | RepositoryEvaluator
    return isinstance(problem.scorer, FolderFunction) or isinstance(problem.evaluate, own)


def _check_granted(problem: Problem, given: Mapping[str, Mapping[str, MenuModel]]) -> None:
    """Refuse a problem whose models are not those that its evaluations are given."""
    wanted = {EVALUATION: problem.models, CANDIDATE: problem.candidate_models}
    for role, models in wanted.items():
        if set(models) != set(given.get(role, {})):
            raise ValueError(
                f"problem {problem.name!r}: asks the models {', '.join(models) or 'none'}, got"
                f" {', '.join(given.get(role, {})) or 'none'} for them; expected a graph of"
                " create_discovery_graph, discover or costada run"
            )


def _check_allowance(problem: Problem, settings: Settings) -> None:
    """Refuse programs that ask models for whatever is left of a hard budget.

    A request of one that is too large for it would end the run, and every resume at that program.
    """
    is_shared = isinstance(problem.evaluate, Confined) and not isinstance(
        problem.evaluate, CandidateRunner
    )
    asks = bool(problem.candidate_models or (is_shared and problem.models))
    if settings.budget_policy == "hard" and asks and problem.evaluation_dollars is None:
        raise ValueError(
            f"evaluation_dollars: got none for problem {problem.name!r}, whose programs ask models,"
            " under a hard budget; expected the most dollars that these may cost in one evaluation"
        )


def _prices_of(
    listed: MenuModel,
    model: ChatModel,
    settings: Settings,
    place: str,
    how_to_price: str = HOW_TO_PRICE,
) -> PriceBook:
    """The prices of one of several models; its own comes before another of its name."""
    price = listed.entry.given_price
    own = "" if price is None else AskedModel(underlying_models(listed.model)[0]).name
    further = {name: each for name, each in settings.other_prices.items() if name != own}
    try:
        return price_book([(model, price)], further, how_to_price)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


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
    if settings.generator == WITH_TOOLS:
        try:
            with_tools(ready, TOOLS)
        except ValueError as error:
            raise ValueError(f"generator: got 'agent', and {error}") from None
    return ready
