"""The settings that Python callers give by keyword: the words of `RunConfig`.

Type checkers need the names and types written out; `make reference` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Literal

from typing_extensions import TypedDict

from costada.controller.constants import Constants
from costada.values.usage import Price


class SearchKeywords(TypedDict, total=False):
    """Settings of a search, wherever it runs; `RunConfig` documents and checks them."""

    # <!-- generated: search_keywords -->

    preset: str | None
    method: str
    max_iterations: int
    router: str
    call_timeout: float
    retry_wait: float
    longest_wait: float
    longest_pause: float
    price: Price | Mapping[str, Any] | str | None
    guide_price: Price | Mapping[str, Any] | str | None
    other_prices: Mapping[str, Price | Mapping[str, Any] | str]
    reference_cost: float | None
    on_missing_usage: Literal["raise", "estimate"]
    lost_calls: Literal["count", "ignore"]
    budget_policy: Literal["crossing", "hard"]
    purse_slice: float | None
    compute_price: float | None
    step_cap: float | None
    parents: Literal["method", "pareto"]
    max_failures: int
    generator: str
    generator_timeout: float
    tool_evaluations: int
    prompt_order: Literal["constant-first", "paper"]
    stop_when_flat: float | None
    target: float | None
    experiment: Literal["guides", "calibration", "router"] | None
    gains_in_flight: float | None
    seed: int
    guides: Literal["paper", "always", "never", "learned"]
    parallel: int
    order: Literal["landing", "launch"]
    controller: Constants | Mapping[str, Any]
    base_url: str | None
    max_tokens: int | None
    sandbox: str | None
    evaluations_at_once: int | None
    evaluate_on: str | Executor
    endpoint: str | None
    timeout: float | None
    memory_mb: int | None
    preflight: bool
    allow_invalid_start: bool

    # <!-- end of search_keywords -->


class DiscoverKeywords(SearchKeywords, total=False):
    """Settings of `discover`: those of a search, and those of a run with a folder."""

    # <!-- generated: discover_keywords -->

    gateway: bool | None
    keep_history: bool
    log: str | Sequence[str]

    # <!-- end of discover_keywords -->


class GraphKeywords(SearchKeywords, total=False):
    """Settings of a graph or tool: those of a search, and questions.

    A graph can ask its caller, and a tool asks that of its agent.
    """

    # <!-- generated: graph_keywords -->

    on_exhausted: Literal["stop", "interrupt"]
    approve_guides: bool

    # <!-- end of graph_keywords -->
