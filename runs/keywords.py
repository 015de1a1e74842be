"""The settings that Python callers give by keyword: the words of `RunConfig`.

Type checkers need the names and types written out. A test compares them with `RunConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Literal

from typing_extensions import TypedDict

from costada.controller.constants import Constants
from costada.values.usage import Price

GivenPrice = Price | Mapping[str, Any] | str | None


class SearchKeywords(TypedDict, total=False):
    """Settings of a search, wherever it runs; `RunConfig` documents and checks them."""

    preset: str | None
    price: GivenPrice
    guide_price: GivenPrice
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
    controller: Constants | Mapping[str, Any]
    router: str
    base_url: str | None
    max_tokens: int | None
    call_timeout: float
    retry_wait: float
    longest_wait: float
    longest_pause: float
    sandbox: str | None
    evaluations: str | Executor
    timeout: float | None
    memory_mb: int | None
    preflight: bool
    allow_invalid_start: bool


class DiscoverKeywords(SearchKeywords, total=False):
    """Settings of `discover`: those of a search, and those of a run with a folder."""

    evaluators: int | None
    gateway: bool | None
    keep_history: bool
    log: str | Sequence[str]


class ToolKeywords(SearchKeywords, total=False):
    """Settings of a tool, whose `evaluators` are something else: those of a search, and questions.

    A graph can ask its caller, and a tool asks that of its agent.
    """

    on_exhausted: Literal["stop", "interrupt"]
    approve_guides: bool


class GraphKeywords(ToolKeywords, total=False):
    """Settings of a graph."""

    evaluators: int | None


FOLDER_SETTINGS = tuple(DiscoverKeywords.__annotations__.keys() - GraphKeywords.__annotations__)
"""Settings that only a run with a folder has."""

GRAPH_SETTINGS = tuple(GraphKeywords.__annotations__.keys() - DiscoverKeywords.__annotations__)
"""Settings that only a graph has, whose caller can be asked."""
