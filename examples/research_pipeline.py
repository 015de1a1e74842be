"""A search inside a larger graph: a planner chooses a seed, a search runs, a writer reports.

python examples/research_pipeline.py
"""

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from costada import OfflineModel, as_discovery_node, create_discovery_graph, problem

# Replaces a provider, so that no key is needed; any chat model works.
assistant = GenericFakeChatModel(
    messages=iter([AIMessage("2"), AIMessage("A better packing was found, see the program.")])
)


class Research(TypedDict, total=False):
    """The state of the pipeline; it has no key of a search."""

    question: str
    start: int
    code: str
    quality: float
    dollars: float
    report: str


def plan(state: Research) -> Research:
    """Ask the planner for the seed of the search."""
    answer = assistant.invoke(f"{state['question']} Name a seed, only the number.")
    return {"start": int(answer.text)}


def write(state: Research) -> Research:
    """Ask the writer for a report and add the numbers."""
    answer = assistant.invoke(f"Report on this program:\n{state['code']}")
    facts = f"Sum of radii {state['quality']:.4f} for ${state['dollars']:.4f}."
    return {"report": f"{answer.text} {facts}"}


search = create_discovery_graph(problem("circle_packing"), OfflineModel(), budget=0.04)

pipeline = StateGraph(Research)
pipeline.add_node("plan", plan)
pipeline.add_node(
    "discover",
    as_discovery_node(
        search,
        input={"seed": "start"},
        output={"best_program": "code", "best_objective": "quality", "spent": "dollars"},
    ),
)
pipeline.add_node("write", write)
pipeline.add_edge(START, "plan")
pipeline.add_edge("plan", "discover")
pipeline.add_edge("discover", "write")
pipeline.add_edge("write", END)

question = {"question": "How should 26 circles be packed into a square?"}
for mode, part in pipeline.compile().stream(question, stream_mode=["custom", "updates"]):
    if mode == "custom":  # the rows of the search, in the stream of the pipeline
        print(f"  step {part['iteration']}: best {part['best_objective']:.4f}")
    elif "write" in part:
        print(part["write"]["report"])
    else:
        print(f"{', '.join(part)} is done")
