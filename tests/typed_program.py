"""A user's program outside of the repository: each public function, and the types of its results.

Type checkers read it with the checkout and with the wheel; nothing runs it.
"""

from collections.abc import Mapping, Sequence
from typing import assert_type

from langchain.agents import create_agent
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict, Unpack

from costada import (
    Account,
    BestProgram,
    BudgetMiddleware,
    Candidate,
    CandidateResult,
    ChatModel,
    Choices,
    Constants,
    Direction,
    DiscoverKeywords,
    Discovery,
    DiscoveryGraph,
    DiscoveryNode,
    DiscoveryToolkit,
    Entry,
    Evaluation,
    FrontMember,
    GraphKeywords,
    Limits,
    LoadedRun,
    MenuModel,
    ModelEntry,
    OfflineModel,
    Price,
    Problem,
    Program,
    Purse,
    RetryPolicy,
    RunList,
    RunResult,
    RunStatus,
    RunStore,
    SearchContext,
    SearchInput,
    SearchOutput,
    as_discovery_node,
    chat_model,
    create_discovery_graph,
    create_discovery_tool,
    create_discovery_toolkit,
    discover,
    failed,
    load_run,
    menu_models,
    normalize,
    problem,
)


class Work(TypedDict):
    number: int
    code: str
    dollars: float


def to_input(state: Work) -> SearchInput:
    return {"seed": state["number"]}


def to_update(found: SearchOutput) -> Mapping[str, object]:
    assert_type(found.get("best_objective"), float | None)
    return {"code": found.get("best_program", ""), "dollars": found.get("spent", 0.0)}


def graph_of(model: ChatModel, **settings: Unpack[GraphKeywords]) -> DiscoveryGraph:
    choices = Choices(max_budget=1.0, models=[model, MenuModel("own", model, Price(1, 2))])
    return create_discovery_graph(
        "circle_packing", model, budget=0.05, choices=choices, store=RunStore(), **settings
    )


def node_in_a_larger_graph(search: DiscoveryGraph) -> str:
    node: DiscoveryNode[Work] = as_discovery_node(search, input=to_input, output=to_update)
    parent = StateGraph(Work)
    parent.add_node("discover", node)
    parent.add_node("again", as_discovery_node(search, output={"best_program": "code"}))
    parent.add_edge(START, "discover")
    parent.add_edge("discover", "again")
    parent.add_edge("again", END)
    compiled = parent.compile(checkpointer=InMemorySaver())
    start = Work(number=2, code="", dollars=0.0)
    found = compiled.invoke(start, {"configurable": {"thread_id": "1"}})
    return str(found["code"])


async def stream(search: DiscoveryGraph) -> SearchOutput:
    chosen: SearchContext = {"budget": 0.02}
    async for row in search.astream({"seed": 1}, context=chosen, stream_mode="custom"):
        print(row)
    found = await search.ainvoke({"seed": 1}, context=chosen)
    return {"spent": found["spent"]}


def score(results: Sequence[CandidateResult]) -> Evaluation:
    if results[0].error:
        return failed(results[0].error)
    return Evaluation(score=normalize(1.0, 2.0, Direction.MAXIMIZE), objective=1.0, is_valid=True)


def run(**settings: Unpack[DiscoverKeywords]) -> Discovery:
    half = Problem(
        name="half",
        task="Return a number.",
        initial_program="def number():\n    return 0.25\n",
        entry_point="number",
        calls=[{}],
        score=score,
        limits=Limits(wall_seconds=5),
    )
    _ = discover(half, "offline", budget=0.02, controller=Constants(max_attempts=2))
    found = discover(half, OfflineModel(), budget=0.02, **settings)
    assert_type(found.best_program, str)
    assert_type(found.pareto_front, Sequence[FrontMember])
    if found.stop_reason == "target":
        print(found.best_objective)
    return found


def agent_of(model: ChatModel, purse: Purse) -> list[BaseTool]:
    payer = BudgetMiddleware(
        purse.child("agent", 0.1), price=Price(1, 5), retry_policy=RetryPolicy(call_timeout=60)
    )
    one = create_discovery_tool(
        ["circle_packing", problem("heilbronn_convex")], model, max_budget=0.1, purse=purse
    )
    toolkit: DiscoveryToolkit = create_discovery_toolkit("circle_packing", model, purse=purse)
    tools = [one, *toolkit.get_tools()]
    create_agent("openai:gpt-5.4-mini", tools, middleware=[payer])
    return tools


def shown(state: RunStatus, best: BestProgram, result: RunResult, runs: RunList) -> str:
    left = runs["purse_left"] - state["spent"]
    metrics: dict[str, float] = result["metrics"]
    return f"{state['phase']} {left} {best['files']} {metrics} {result['stop_reason']}"


def money(purse: Purse) -> tuple[list[Account], list[Entry]]:
    return purse.accounts(), list(purse.calls())


def saved(path: str) -> tuple[LoadedRun, float]:
    run = load_run(path)
    assert_type(run.best_files, Mapping[str, str])
    return run, sum(float(str(row["spent"])) for row in run.steps)


def described(candidate: Candidate) -> Program:
    return candidate.program


def menu() -> list[MenuModel]:
    entry = ModelEntry(name="mini", model="openai:gpt-5.4-mini")
    return menu_models([entry, chat_model("offline")])
