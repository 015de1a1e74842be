"""Searches as tools of an agent that starts, follows, stops and continues them."""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial, wraps
from inspect import Parameter, signature
from pathlib import Path
from socket import gethostname
from types import TracebackType
from typing import Any, Self

from langchain_core.tools import BaseTool, BaseToolkit, StructuredTool, ToolException
from pydantic import BaseModel, ConfigDict, InstanceOf, create_model
from typing_extensions import Unpack

from costada.agents.node import stream_writer
from costada.agents.run_answers import RunStatus
from costada.agents.search_service import SearchService, named_problems
from costada.agents.search_tools import SearchTools
from costada.agents.tool import refusal_text
from costada.models.menu import MenuModel, ModelEntry
from costada.nodes.context import ChatModel
from costada.nodes.pool import NODE_THREADS
from costada.runs.folder import DEFAULT_PARENT
from costada.runs.keywords import DiscoverKeywords
from costada.runs.search_request import GivenProblem, parse_request
from costada.store.address import check_database
from costada.store.purse import Purse

CLOSE_SECONDS = 60.0
"""Seconds in which calls in flight can end when a toolkit is closed."""


class DiscoveryToolkit(BaseToolkit):
    """The tools of a search service; made by `create_discovery_toolkit`.

    As a context manager it interrupts its runs at the end, so that they can be continued.
    """

    model_config = ConfigDict(frozen=True)

    service: InstanceOf[SearchService]

    def get_tools(self) -> list[BaseTool]:
        """The tools, for `langchain.agents.create_agent` or a `ToolNode`.

        They are `discover`, `continue_run`, `submit_program`, `stop_run`, `run_status`,
        `wait_for_run`, `list_runs`, `best_program` and `run_result`, with the arguments and answers
        of those of `costada mcp`.
        """
        offered = SearchTools(self.service, _write_state)
        methods = [*offered.starting, *offered.steering, *offered.reading]
        return [_tool(each, offered.description(each)) for each in methods]

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Interrupt the runs, so that they save, and wait for them for at most `seconds`."""
        self.service.end(seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def create_discovery_toolkit(
    problems: GivenProblem | Sequence[GivenProblem],
    model: str | ChatModel | MenuModel | None = None,
    *,
    purse: Purse,
    models: str | Sequence[str | ModelEntry | ChatModel | MenuModel] = (),
    models_file: str | Path | None = None,
    guide_model: str | ChatModel | None = None,
    out: str | Path = DEFAULT_PARENT,
    store: str | None = None,
    **settings: Unpack[DiscoverKeywords],
) -> DiscoveryToolkit:
    """Create tools with which an agent starts searches in the background and follows them.

    `discover` returns at once; `wait_for_run` waits up to 45 seconds, and writes the run's states
    to the custom stream of the agent's graph. Each answer is JSON, with the same dictionary as its
    artifact; it has the dollars of the purse and what is left of them. The same problem and seed
    are the same run: while it is running `discover` returns it, and afterwards it says that
    `continue_run` continues it. What a call got wrong is answered with an error text, before any
    money is spent.

    Each run has a folder in `out`. With the same `out` and a purse in a file, a later process lists
    the runs of earlier ones, and `continue_run` continues those that were interrupted. With a
    `store`, runs are in Postgres: any toolkit or server with the same database and purse lists
    them, and resumes those that were interrupted, or whose process has died, by itself.

    Args:
        problems: What can be named: a `Problem`, a benchmark's name, a folder, or several of them.
        model: A model id or a chat model that proposes programs.
        purse: Pays for all runs together; a budget is lowered to what it has left.
        models: Models to choose from before each attempt, in place of `model`.
        models_file: TOML file that explains texts in `models`.
        guide_model: The model that is asked for tactics; by default `model`.
        out: Parent of the run folders.
        store: Address of a Postgres database that keeps the runs, `postgresql://USER@HOST/DATABASE`;
            needs a purse in a database.
        **settings: Further settings, as for `discover`; the agent chooses the seed. By default the
            budget policy is that of the purse.

    Raises:
        ValueError: There is nothing to improve, two problems have the same name, a seed is given, a
            store goes with a purse that is not in a database, or `discover` refuses the arguments.
    """
    given = [problems] if isinstance(problems, GivenProblem) else problems
    if not given:
        raise ValueError("problems: got none, expected at least one")
    if "seed" in settings:
        raise ValueError(f"seed: got {settings['seed']!r}, expected none: the agent chooses it")
    request = parse_request(
        given[0],
        model,
        models,
        models_file,
        guide_model,
        {"budget": float(purse.budget), "budget_policy": purse.policy, **settings},
    )
    if store is not None:
        check_database(store)
        if not purse.is_shared:
            raise ValueError("store: got an address with a purse of this machine, expected dsn=...")
    machine = gethostname() if purse.is_shared and store is None else ""
    service = SearchService(named_problems(given), request, purse, Path(out), store, machine)
    service.check()
    if store is None:
        service.paid.reclaim()
    service.follow()
    return DiscoveryToolkit(service=service)


def _write_state(state: RunStatus) -> None:
    stream_writer()(state)


def _tool(function: Callable[..., object], description: str) -> BaseTool:
    """A tool that takes only the arguments of its function, in exactly their types."""

    @wraps(function)
    def call(**given: object) -> tuple[str, object]:
        try:
            answer = function(**given)
        except (ValueError, OSError, sqlite3.Error) as error:
            raise ToolException(str(error)) from None
        return json.dumps(answer), answer

    @wraps(function)
    async def acall(**given: object) -> tuple[str, object]:
        called = partial(copy_context().run, partial(call, **given))
        return await asyncio.get_running_loop().run_in_executor(NODE_THREADS, called)

    return StructuredTool.from_function(
        call,
        acall,
        name=function.__name__,
        description=description,
        args_schema=_arguments(function),
        infer_schema=False,
        response_format="content_and_artifact",
        handle_tool_error=True,
        handle_validation_error=refusal_text,
    )


def _arguments(function: Callable[..., object]) -> type[BaseModel]:
    fields: dict[str, Any] = {
        each.name: (each.annotation, ... if each.default is Parameter.empty else each.default)
        for each in signature(function).parameters.values()
    }
    strict = ConfigDict(extra="forbid", strict=True)
    return create_model(f"{function.__name__}_arguments", __config__=strict, **fields)
