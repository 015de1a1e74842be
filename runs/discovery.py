"""`discover`: a whole run from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict
from uuid import uuid4

from typing_extensions import Unpack

from costada.values.discovery import Discovery
from costada.values.usage import Price

if TYPE_CHECKING:
    from costada.evaluators.problem import Problem
    from costada.models.menu import MenuModel, ModelEntry
    from costada.nodes.context import ChatModel
    from costada.store.purse import Purse

__all__ = ["Discovery", "discover"]


class DiscoverOptions(TypedDict, total=False):
    """The settings of `RunConfig` as keyword arguments; it documents and checks them.

    Type checkers need the names and types written out. A test compares them with `RunConfig`.
    """

    preset: str | None
    price_in: Decimal | float | str | None
    price_out: Decimal | float | str | None
    guide_price_in: Decimal | float | str | None
    guide_price_out: Decimal | float | str | None
    other_prices: Mapping[str, Price]
    reference_cost: float | None
    on_missing_usage: Literal["raise", "estimate"]
    lost_calls: Literal["count", "ignore"]
    budget_policy: Literal["crossing", "hard"]
    step_cap: float | None
    method: str
    max_iterations: int
    max_failures: int
    generator: Literal["model", "agent"]
    tool_evaluations: int
    stop_when_flat: float | None
    prompt_order: Literal["constant-first", "paper"]
    seed: int
    parallel: int
    order: Literal["landing", "launch"]
    controller: Mapping[str, Any]
    router: str
    base_url: str | None
    max_tokens: int | None
    call_timeout: float
    retry_wait: float
    longest_wait: float
    longest_pause: float
    gateway: bool | None
    sandbox: str | None
    evaluators: int | None
    timeout: float | None
    memory_mb: int | None
    preflight: bool
    allow_invalid_start: bool
    keep_history: bool


def discover(
    problem: str | Path | Problem,
    model: str | ChatModel | None = None,
    *,
    budget: float,
    models: str | Sequence[str | ModelEntry | ChatModel | MenuModel] = (),
    models_file: str | Path | None = None,
    guide_model: str | ChatModel | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    purse: Purse | None = None,
    trust: bool = False,
    accept_loss: bool = False,
    **options: Unpack[DiscoverOptions],
) -> Discovery:
    """Run a search within a budget and return the best program.

    Ctrl-C cancels the running evaluation and raises `KeyboardInterrupt`; a run in a folder is saved
    and can be resumed.

    Args:
        problem: A benchmark's name, a problem folder, or a `Problem`.
        model: A model id as for `costada run --model`, or any LangChain chat model.
        budget: Dollars to spend (B).
        models: Models to choose from before each attempt, in place of `model`: texts as for
            `costada run --models`, chat models, or `MenuModel(name, model, price)` for a chat
            model with a name or a price of its own.
        models_file: TOML file that explains texts in `models`; by default `models.toml` in the
            working folder, if there is one.
        guide_model: The model that is asked for tactics, also by its name in `models`; by default
            `model`, or the first of `models`.
        out: Folder for the run's files; without one nothing is written.
        resume: Resume the run in `out`, which was started with the same settings; `budget` and
            `max_iterations` may be higher than before.
        purse: Pays for the run; unspent money is returned to it. If less than the budget is left, a
            purse with the policy "crossing" provides what it has; a hard one needs
            `budget_policy="hard"` and refuses. A run in a folder keeps its account until it ends,
            and needs the same purse when resumed.
        trust: Whether a resumed run may load a problem that lies in `out`. A run folder from
            somebody else is data; such a problem's evaluator would be executed.
        accept_loss: Whether to resume a run whose file has lost steps, as after a power failure.
            Their cost counts as spent; they are repeated and paid for again.
        **options: Further settings, see `RunConfig`.

    Raises:
        ValueError: If a setting, the problem or a price is wrong, `out` does not fit `resume`,
            this machine does not offer the sandbox, a provider rejects a request permanently or
            does not respond, or the purse is empty.
        UnmeteredCall: If a response has no token counts and estimates are not allowed.
        OSError: If a file of the run cannot be written.
    """
    from langgraph.runtime import RunControl

    from costada.models.menu import MenuModel
    from costada.reports.progress import Progress
    from costada.runs.config import checked_config
    from costada.runs.folder import RunFolder
    from costada.runs.interruption import interrupting_evaluations
    from costada.runs.menu import named_models
    from costada.runs.plan import plan_run
    from costada.runs.resume import extend_to
    from costada.runs.runner import carry_out

    if models_file and not models:
        raise ValueError(f"models_file: got {models_file} without models, expected both or none")
    menu = named_models(models, models_file) if models else []
    if model is None and not menu:
        raise ValueError("model: got None, expected a chat model or a model id, or several models")
    if model is not None and menu:
        raise ValueError(f"model: got {_label(model)} and models, expected only one of them")
    names = {"problem": problem, "model": model, "guide_model": guide_model}
    labels: dict[str, object] = {key: _label(value) for key, value in names.items()}
    if menu:
        labels["models"] = [_entry(each) for each in menu]
    config = checked_config({**labels, "budget": budget, **options})
    folder = RunFolder(Path(out)) if out is not None else None
    if folder and not resume:
        folder.check_free()
    if folder and resume and not trust:
        folder.check_own_problem()
    plan = plan_run(
        config,
        given_problem=None if isinstance(problem, str | Path) else problem,
        given_model=None if isinstance(model, str) else model,
        given_guide_model=None if isinstance(guide_model, str) else guide_model,
        given_models={each.name: each for each in menu if isinstance(each, MenuModel)},
        purse=purse,
    )
    with interrupting_evaluations():
        if folder:
            if resume:
                extend_to(folder, config)
            else:
                folder.claim(config)
            return carry_out(plan, folder, Progress(), RunControl(), accepts_loss=accept_loss)
        # A run without files gives its money back even if it fails.
        name = f"discover {plan.problem.name} {uuid4().hex}"
        with purse.child(name, plan.budget) if purse else nullcontext() as account:
            graph = replace(plan, purse=account).graph()
            found = graph.invoke({"seed": plan.settings.seed})
        return Discovery(**found, folder=None, sandbox=plan.sandbox)


def _entry(given: ModelEntry | MenuModel) -> ModelEntry:
    """The entry of a model of the menu, or a note that it was given as an object."""
    from costada.models.menu import ModelEntry

    if isinstance(given, ModelEntry):
        return given
    return ModelEntry(
        name=given.name,
        model=str(_label(given.model)),
        price=given.price,
        tier_prices=given.tier_prices or {},
        timeout=given.call_timeout,
    )


def _label(given: object) -> str | None:
    """The name of a problem or model, or a note that it was given as an object."""
    from costada.reports.run_view import OBJECT_MARK

    if given is None or isinstance(given, str | Path):
        return None if given is None else str(given)
    return f"{OBJECT_MARK}{getattr(given, 'name', None) or type(given).__name__}"
