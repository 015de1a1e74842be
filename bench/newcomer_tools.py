"""What a newcomer types and writes, tool by tool, and the model that answers all of them.

The commands are those of each tool's own documentation, with `{iterations}`, `{last}` (the newest
checkpoint) and `{wheel}` filled in. All tools work on the same problem: the smallest value of
Himmelblau's function. The provider reads from a prompt in which form an answer is wanted, so every
tool gets the same programs in the same order.
"""

import json
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from billing_server import Body, Reply
from first_steps import OWN_PROBLEM
from loopback import CIRCLES, IDEAS, answered, circles

MODEL = "gpt-5-mini"
PRICE = "0.25,2"
TASK = "Find the x and y at which the Himmelblau function is smallest."
START = OWN_PROBLEM["initial_program.py"]
SCORE = "1 / (1 + (x * x + y - 11) ** 2 + (x + y * y - 7) ** 2)"
MARKED = f"# EVOLVE-BLOCK-START\n{START}# EVOLVE-BLOCK-END\n"


@dataclass(frozen=True)
class Newcomer:
    """How somebody uses one tool.

    Attributes:
        package: What pip installs.
        checkout: The repository that its example needs; empty if the package has it.
        example: Command of the first example; `files` of it are in `example_files`.
        files: What the user writes for a problem of their own.
        run: Runs it for so many iterations.
        go_on: Continues it after a kill; `{iterations}` are those of the whole run, `{rest}` those
            after the newest checkpoint.
        status: Shows how the run stands.
        stop: Stops it; empty for Ctrl-C.
        needs_skills: Whether `status` is one of the skills in the repository.
        view: Serves a page of many runs below `runs`; empty if the tool has none.
        needs_scripts: Whether `view` is a script of the repository.
        listing: Path of the list that the page asks for, and how many runs are in it.
    """

    name: str
    package: str
    example: str
    files: Mapping[str, str]
    run: str
    go_on: str
    checkout: str = ""
    example_files: Mapping[str, str] = field(default_factory=dict)
    status: str = ""
    stop: str = ""
    needs_skills: bool = False
    view: str = ""
    needs_scripts: bool = False
    listing: str = ""
    num_listed: Callable[[Any], int] = len


COSTADA = Newcomer(
    name="CostAda",
    package="{wheel}",
    example=f"costada run circle_packing --model openai:{MODEL} --price {PRICE}"
    " --max-iterations {iterations} --out first",
    files={f"my-problem/{name}": text for name, text in OWN_PROBLEM.items()},
    run=f"costada run my-problem --model openai:{MODEL} --price {PRICE}"
    " --max-iterations {iterations} --budget {dollars} --out out",
    go_on="costada resume out",
    view="costada watch runs --port {port}",
    listing="/index/0",
    num_listed=lambda found: len(found["rows"]),
)

COSTADA_TOOLS = (
    f"costada mcp --max-budget 1 --problems my-problem --model openai:{MODEL} --price {PRICE}"
)
MODELS_FILE = f"""\
[models.searcher]
model = "openai:{MODEL}"
base_url = "{{url}}"
price = "{PRICE}"
"""

SHINKA = Newcomer(
    name="ShinkaEvolve",
    package="shinka-evolve",
    checkout="ShinkaEvolve",
    example="shinka_run --task-dir examples/circle_packing --results_dir first"
    f" --num_generations {{iterations}} --set evo.llm_models='[\"{MODEL}\"]'",
    files={
        "task/initial.py": MARKED,
        "task/evaluate.py": f"""\
import argparse
import json
import runpy
from pathlib import Path


def main(program_path, results_dir):
    x, y = runpy.run_path(program_path)["point"]()
    metrics = {{"combined_score": {SCORE}}}
    Path(results_dir, "metrics.json").write_text(json.dumps(metrics))
    Path(results_dir, "correct.json").write_text(json.dumps({{"correct": True, "error": ""}}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program_path")
    parser.add_argument("--results_dir")
    main(**vars(parser.parse_args()))
""",
    },
    run="shinka_run --task-dir task --results_dir out --num_generations {iterations}"
    f" --set evo.llm_models='[\"{MODEL}\"]' --set evo.task_sys_msg='{TASK}'"
    " --set evo.max_api_costs={dollars}",
    go_on="shinka_run --task-dir task --results_dir out --num_generations {iterations}"
    f" --set evo.llm_models='[\"{MODEL}\"]' --set evo.task_sys_msg='{TASK}'"
    " --set evo.max_api_costs={dollars}",
    status="python skills/shinka-inspect/scripts/inspect_best_programs.py --results-dir out --k 1",
    needs_skills=True,
    view="shinka_visualize runs --port {port}",
    listing="/list_databases",
)

OPENEVOLVE = Newcomer(
    name="OpenEvolve",
    package="openevolve",
    checkout="openevolve",
    example="openevolve-run examples/function_minimization/initial_program.py"
    " examples/function_minimization/evaluator.py"
    " --config examples/function_minimization/config.yaml --iterations {iterations}"
    f" --primary-model {MODEL} --secondary-model {MODEL} --api-base $OPENAI_BASE_URL"
    " --output first",
    files={
        "initial_program.py": MARKED,
        "evaluator.py": f"""\
import runpy


def evaluate(program_path):
    x, y = runpy.run_path(program_path)["point"]()
    return {{"combined_score": {SCORE}}}
""",
        "config.yaml": f'prompt:\n  system_message: "{TASK}"\n',
    },
    run="openevolve-run initial_program.py evaluator.py --config config.yaml"
    f" --primary-model {MODEL} --api-base $OPENAI_BASE_URL"
    " --iterations {iterations} --output out",
    go_on="openevolve-run initial_program.py evaluator.py --config config.yaml"
    f" --primary-model {MODEL} --api-base $OPENAI_BASE_URL"
    " --checkpoint {last} --iterations {rest} --output out",
    status="tail -n 3 out/logs/*.log",
    view="python scripts/visualizer.py --path runs --port {port}",
    needs_scripts=True,
    listing="/api/data",
    num_listed=lambda found: len({found["checkpoint_dir"]}),
)

OPENEVOLVE_SAVING = replace(
    OPENEVOLVE,
    name="OpenEvolve, `checkpoint_interval: 1`",
    files=OPENEVOLVE.files
    | {"config.yaml": f"checkpoint_interval: 1\n{OPENEVOLVE.files['config.yaml']}"},
)
"""Its default is a checkpoint every 100 iterations."""

GEPA = Newcomer(
    name="GEPA",
    package="gepa[full]",
    example="python first.py",
    example_files={
        "first.py": f"""\
import gepa

result = gepa.optimize(
    seed_candidate={{"system_prompt": "Answer in one word."}},
    trainset=[
        {{"input": "What is 3 + 4?", "additional_context": {{}}, "answer": "7"}},
        {{"input": "What is 3 * 4?", "additional_context": {{}}, "answer": "12"}},
    ],
    task_lm="openai/{MODEL}",
    reflection_lm="openai/{MODEL}",
    max_metric_calls=50,
)
print(result.best_candidate, result.val_aggregate_scores[result.best_idx])
"""
    },
    files={
        "search.py": f"""\
import sys
from gepa.optimize_anything import EngineConfig, GEPAConfig, ReflectionConfig, optimize_anything

START = '''
{START}'''


def evaluate(candidate):
    names = {{}}
    exec(candidate, names)
    x, y = names["point"]()
    return {SCORE}


result = optimize_anything(
    seed_candidate=START,
    evaluator=evaluate,
    objective="{TASK}",
    config=GEPAConfig(
        engine=EngineConfig(
            run_dir="out",
            max_candidate_proposals=int(sys.argv[1]),
            max_reflection_cost=float(sys.argv[2]),
        ),
        reflection=ReflectionConfig(reflection_lm="openai/{MODEL}"),
    ),
)
print(result.best_candidate)
"""
    },
    run="python search.py {iterations} {dollars}",
    go_on="python search.py {iterations} {dollars}",
    status="tail -n 3 out/run_log.txt",
    stop="touch out/gepa.stop",
)

NEWCOMERS = (COSTADA, SHINKA, OPENEVOLVE, GEPA)


@dataclass
class Provider:
    """A model with recorded answers, each of which takes so many seconds.

    `began` and `ended` count the requests for a text. A point of the answers comes nearer to the
    best one, (3, 2), each time.
    """

    latency: float = 0.3
    began: int = 0
    ended: int = 0
    _lock: Lock = field(default_factory=Lock)

    def answer(self, body: Body) -> Reply:
        """The answer to a request."""
        if "embedding" in str(body["model"]):
            return Reply(input_tokens=100)
        with self._lock:
            self.began += 1
            number = self.began
        time.sleep(self.latency)
        text = reply_to(prompt_of(body), number)
        with self._lock:
            self.ended += 1
        given = answered({**body, "messages": messages_of(body)}, text, f"answer-{number}")
        usage = given["usage"]
        is_whole = "messages" in body and not body.get("stream")
        return Reply(
            text,
            input_tokens=usage["prompt_tokens"],
            output_tokens=usage["completion_tokens"],
            body=json.dumps(given).encode() if is_whole else None,
        )


def messages_of(body: Body) -> list[Mapping[str, Any]]:
    """The messages of a request to either of the two interfaces."""
    return list(body.get("messages") or body["input"])


def prompt_of(body: Body) -> str:
    """All texts of a request."""
    return "\n".join(str(message["content"]) for message in messages_of(body))


def reply_to(prompt: str, number: int) -> str:
    """The answer with this number, in the form that the prompt asks for."""
    if "approach_type" in prompt:
        return IDEAS
    if "def point" not in prompt:
        return other_reply(prompt, number)
    lines = point_lines(number)
    program = START.replace(point_lines(0), lines)
    if "EVOLVE-BLOCK-START" in prompt:
        program = f"# EVOLVE-BLOCK-START\n{program}# EVOLVE-BLOCK-END\n"
    if "<<<<<<< SEARCH" in prompt:
        return wrapped(prompt, changed(lines, r" +x = \S+\n +y = \S+\n", prompt))
    return wrapped(prompt, f"```python\n{program}```")


def point_lines(number: int) -> str:
    """The two lines of the program with this number; 0 is the start."""
    left = 0.9**number
    return f"    x = {3 - 0.5 * left:.6g}\n    y = {2 + 0.5 * left:.6g}\n"


def other_reply(prompt: str, number: int) -> str:
    """An answer for the examples that the tools bring."""
    if "def search_algorithm" in prompt:
        head = f"def search_algorithm(iterations={1000 + number}, bounds=(-5, 5)):"
        return changed(head, r"def search_algorithm\(.*", prompt)
    if "run_packing" in prompt:
        rng = random.Random(number)
        packed = CIRCLES.format(scale=0.5 + 0.5 * rng.random())
        return wrapped(prompt, f"```python\n{packed}```") if "<NAME>" in prompt else circles(rng)
    return f"```\nAnswer in at most {number} words.\n```"


def changed(new: str, pattern: str, prompt: str) -> str:
    """A SEARCH/REPLACE block for what the pattern finds in the current program."""
    shown = re.findall(r"current program[^`]*```\w*\n(.*?)```", prompt, re.DOTALL | re.IGNORECASE)
    found = re.search(pattern, shown[-1] if shown else prompt)
    old = found.group() if found else ""
    return f"<<<<<<< SEARCH\n{old.rstrip()}\n=======\n{new.rstrip()}\n>>>>>>> REPLACE"


def wrapped(prompt: str, answer: str) -> str:
    """An answer between the tags that a prompt asks for, if it asks for any."""
    if "<NAME>" not in prompt:
        return answer
    tag = "DIFF" if answer.startswith("<") else "CODE"
    named = "<NAME>\nstep\n</NAME>\n\n<DESCRIPTION>\nA step.\n</DESCRIPTION>\n\n"
    return f"{named}<{tag}>\n{answer}\n</{tag}>"
