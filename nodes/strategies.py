"""What an attempt of EvoX starts from: the search strategy in use chooses."""

from costada.controller.baselines.evox import EvoX
from costada.controller.contract import Controller
from costada.controller.randomness import draws
from costada.evaluators.confine import layer_of
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.strategies import (
    Selection,
    StrategyRecord,
    initial_strategy,
    select_sources,
)
from costada.graph.state import SearchState
from costada.nodes.candidates import load_candidate
from costada.nodes.context import RunContext
from costada.nodes.population import population, previous_attempts, strategy_record
from costada.nodes.sources import Sources
from costada.prompts.evox import label_text
from costada.prompts.evox_reply import Labels


def evox_of(controller: Controller) -> EvoX:
    """Return the controller of EvoX.

    Raises:
        TypeError: It is another method's.
    """
    if not isinstance(controller, EvoX):
        raise TypeError(f"controller: got {type(controller).__name__}, expected EvoX")
    return controller


def strategy_layer(context: RunContext) -> Layer:
    """Return what holds strategies: what holds the problem's candidates."""
    return layer_of(context.problem) or Layer.AUTO


def strategy_text(name: str, context: RunContext) -> str:
    """Return the text of a strategy."""
    return context.store.text(name) or initial_strategy()


def chosen_sources(
    controller: Controller, state: SearchState, context: RunContext
) -> tuple[Controller, Sources]:
    """Return what the next attempt starts from, and the controller after any fall-back.

    A strategy that fails to choose is given up for the one before it. All attempts of a step
    start from the same choice.
    """
    rows = population(state, context)
    records = [strategy_record(row, context.problem) for row in rows]
    working, selection = _selection(evox_of(controller), records, state, context)
    ids = selection.context_ids
    return working, Sources(
        parent=load_candidate(selection.parent_id, state, context),
        inspirations=tuple(load_candidate(name, state, context) for name in ids),
        siblings=None,
        label=selection.label,
        wording=label_text(selection.label, _labels(state, context)),
        previous=previous_attempts(rows, state, context),
    )


def _selection(
    controller: EvoX, records: list[StrategyRecord], state: SearchState, context: RunContext
) -> tuple[EvoX, Selection]:
    count = context.settings.constants.num_inspirations
    seed = draws(state["run_seed"], state["iteration"], "strategy").getrandbits(32)
    source = strategy_text(controller.strategy, context)
    choice = select_sources(source, records, count, seed, strategy_layer(context))
    if isinstance(choice, Selection):
        return controller, choice
    if not controller.strategy:
        raise RuntimeError(f"the initial strategy failed: {choice.reason}")
    return _selection(controller.fall_back(), records, state, context)


def _labels(state: SearchState, context: RunContext) -> Labels:
    known = state["labels"]
    return Labels(context.store.text(known["diverge"]), context.store.text(known["refine"]))
