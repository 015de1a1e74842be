"""What CostAda adds to a step: time and bytes per iteration, against a bare LangGraph loop.

Both loops have eight nodes and checkpoint into SQLite with the same settings. The model and the
evaluator answer at once, with programs of about 5 KB; everything else is the product.

    python bench/overhead.py [--iterations 5000] [--window 50]
"""

import argparse
import random
import re
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from costada import Constants, Evaluation, Price, Problem, Settings, create_discovery_graph
from costada.store.database import connect

NUM_NODES = 8
FILLER = "".join(f"# line {line}: {line * 7919 % 1009} of the constructor\n" for line in range(120))
HEAD = "# EVOLVE-BLOCK-START\ndef value():\n    return "
TAIL = "\n# EVOLVE-BLOCK-END\n"
IDEAS = '{"ideas": [{"idea": "i", "description": "d", "approach_type": "a.b"}]}'


class InstantModel(BaseChatModel):
    """Proposes another number in a program of 5 KB, without delay."""

    rng: Any = random.Random(0)

    @property
    def _llm_type(self) -> str:
        return "instant"

    def _get_ls_params(self, stop: Any = None, **kwargs: Any) -> Any:
        return {"ls_provider": "bench", "ls_model_name": "instant", "ls_model_type": "chat"}

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        is_guide = "# Output" in str(messages[-1].content)
        value = self.rng.random()
        words = [f"# word {self.rng.randrange(10**6)}\n" for _ in range(10)]
        text = IDEAS if is_guide else f"```python\n{HEAD}{value}\n{''.join(words)}{FILLER}{TAIL}```"
        usage = {"input_tokens": 1000, "output_tokens": 500, "total_tokens": 1500}
        message = AIMessage(content=text, usage_metadata=usage)  # type: ignore[arg-type]
        return ChatResult(generations=[ChatGeneration(message=message)])


def evaluate(code: str) -> Evaluation:
    """Score the number in the program at once."""
    found = re.search(r"return ([\d.e-]+)", code)
    value = float(found.group(1)) if found else 0.0
    return Evaluation(score=value, objective=value, is_valid=True)


class Count(TypedDict):
    """The state of the bare loop."""

    iteration: int


@dataclass(frozen=True)
class Sample:
    """Milliseconds and bytes per iteration over a window that ends at an iteration."""

    iteration: int
    milliseconds: float
    kilobytes: float


def costada_loop(saver: SqliteSaver, iterations: int) -> Iterator[int]:
    """Yield the number of each finished iteration of a discovery run."""
    problem = Problem(
        name="bench",
        task="Any number.",
        initial_program=HEAD + "0.0" + TAIL,
        evaluate=evaluate,
        entry_point="value",
    )
    settings = Settings(price=Price(1, 2), constants=Constants(max_iterations=iterations))
    graph = create_discovery_graph(
        problem, InstantModel(), budget=1e6, settings=settings, checkpointer=saver
    )
    config = {"configurable": {"thread_id": "1"}}
    for row in graph.stream({}, config, stream_mode="custom", durability="sync"):
        yield row["iteration"]


def bare_loop(saver: SqliteSaver, iterations: int) -> Iterator[int]:
    """Yield the number of each finished round of eight nodes that only count."""
    names = [f"node_{index}" for index in range(NUM_NODES)]
    graph = StateGraph(Count)
    for name in names:
        step = 1 if name == names[-1] else 0
        graph.add_node(name, lambda state, step=step: {"iteration": state["iteration"] + step})
    graph.add_edge(START, names[0])
    for first, second in pairwise(names):
        graph.add_edge(first, second)
    graph.add_conditional_edges(
        names[-1], lambda state: END if state["iteration"] >= iterations else names[0]
    )
    compiled = graph.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "1"}, "recursion_limit": NUM_NODES * iterations + 10}
    for update in compiled.stream(
        {"iteration": 0}, config, stream_mode="updates", durability="sync"
    ):
        if names[-1] in update:
            yield update[names[-1]]["iteration"]


def measure(loop: Any, iterations: int, window: int, marks: list[int]) -> list[Sample]:
    """Run a loop on a fresh file and sample it over the windows that end at the marks."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.sqlite"
        connection = connect(path)
        samples, starts = [], {}
        for iteration in loop(SqliteSaver(connection), iterations):
            if iteration + window in marks:
                starts[iteration + window] = (time.perf_counter(), size_of(path))
            if iteration in starts:
                began, size = starts[iteration]
                seconds = time.perf_counter() - began
                grown = size_of(path) - size
                samples.append(Sample(iteration, 1e3 * seconds / window, grown / 1e3 / window))
        connection.close()
    return samples


def size_of(path: Path) -> int:
    """Return the bytes of a database, what its log holds included."""
    with closing(sqlite3.connect(path)) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        return pages * connection.execute("PRAGMA page_size").fetchone()[0]


def main() -> None:
    """Print both loops side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=5000)
    parser.add_argument("--window", type=int, default=50)
    options = parser.parse_args()
    marks = sorted({min(mark, options.iterations) for mark in (100, 1000, 5000)})
    bare = measure(bare_loop, options.iterations, options.window, marks)
    ours = measure(costada_loop, options.iterations, options.window, marks)
    print(f"{'':12}{'ms per iteration':>24}{'':8}{'KB per iteration':>24}")
    print(f"{'iteration':12}" + f"{'bare':>8}{'costada':>9}{'ratio':>7}{'':8}" * 2)
    for before, after in zip(bare, ours, strict=True):
        print(
            f"{after.iteration:<12}{row(before.milliseconds, after.milliseconds)}"
            f"{row(before.kilobytes, after.kilobytes)}"
        )
    print(
        f"{'last / first':12}{row(*(growth(s, 'milliseconds') for s in (bare, ours)))}"
        f"{row(*(growth(s, 'kilobytes') for s in (bare, ours)))}"
    )


def row(bare: float, ours: float) -> str:
    """Return two figures and their ratio as one part of a line."""
    return f"{bare:8.2f}{ours:9.2f}{ours / bare:7.2f}{'':8}"


def growth(samples: list[Sample], field: str) -> float:
    """Return the last sample in units of the first."""
    return getattr(samples[-1], field) / getattr(samples[0], field)


if __name__ == "__main__":
    main()
