"""A scripted chat model and a toy problem for tests of the graph."""

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field

from costada.evaluators.problem import Problem
from costada.values.evaluation import Evaluation, failed

SEED_PROGRAM = """# EVOLVE-BLOCK-START
def value():
    return 0.10
# EVOLVE-BLOCK-END
"""


def program(value: float) -> str:
    return SEED_PROGRAM.replace("0.10", f"{value:.4f}")


def rewrite(value: float) -> str:
    return f"Here it is.\n```python\n{program(value)}```\n"


IDEAS = (
    '{"ideas": ['
    '{"idea": "one", "description": "do one", "approach_type": "a.one"},'
    '{"idea": "two", "description": "do two", "approach_type": "b.two"},'
    '{"idea": "three", "description": "do three", "approach_type": "c.three"}]}'
)


def is_guide_prompt(prompt: str) -> bool:
    return "# Output" in prompt


class ScriptedModel(BaseChatModel):
    """Answers by a function of the prompt; 1,000 input and 500 output tokens a call."""

    answer: Callable[[str], str]
    input_tokens: int = 1000
    output_tokens: int = 500
    prompts: list[str] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _get_ls_params(self, stop: Any = None, **kwargs: Any) -> Any:
        return {"ls_provider": "scripted", "ls_model_name": "scripted", "ls_model_type": "chat"}

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        prompt = str(messages[-1].content)
        self.prompts.append(prompt)
        message = AIMessage(content=self.answer(prompt), usage_metadata=self._usage())
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        prompt = str(messages[-1].content)
        self.prompts.append(prompt)
        for piece in re.findall(r".{1,40}", self.answer(prompt), re.DOTALL):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=piece))
            if run_manager:
                run_manager.on_llm_new_token(piece, chunk=chunk)
            yield chunk
        yield ChatGenerationChunk(
            message=AIMessageChunk(content="", usage_metadata=self._usage(), chunk_position="last")
        )

    def _usage(self) -> Any:
        total = self.input_tokens + self.output_tokens
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "total_tokens": total,
        }


def hashed_answer(prompt: str) -> str:
    """Answer as a function of the prompt alone: mostly a value, at times a failure."""
    if is_guide_prompt(prompt):
        return IDEAS
    draw = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:4], "big") / 2**32
    if draw < 0.1:
        return "I would rather not."
    return rewrite(draw if draw > 0.9 else draw / 2)


def evaluate_value(code: str) -> Evaluation:
    """Score the number that the program returns; above 1 is invalid."""
    found = re.search(r"return (-?[\d.]+)", code)
    value = float(found.group(1)) if found else 2.0
    if value > 1:
        return failed(f"value is {value}; expected at most 1")
    return Evaluation(score=value, objective=10 * value, is_valid=True, metrics={"value": value})


def stopping_evaluation(number: int) -> Callable[[str], Evaluation]:
    """Return an evaluator that is asked to stop in its `number`-th evaluation."""
    judged = []

    def evaluate(code: str) -> Evaluation:
        judged.append(code)
        if len(judged) == number:
            raise InterruptedError("asked to stop")
        return evaluate_value(code)

    return evaluate


TOY_EVALUATOR = """from costada import Evaluation


def score(output):
    return Evaluation(score=output, objective=output, is_valid=output <= 1)
"""


def toy_folder(parent: Path, name: str = "toy", evaluator: str = TOY_EVALUATOR) -> Path:
    """A problem folder: return a large number, at most 1."""
    folder = parent / name
    folder.mkdir()
    (folder / "problem.md").write_text("Return a large number, at most 1.")
    (folder / "problem.toml").write_text('entry_point = "value"\n')
    (folder / "initial_program.py").write_text(SEED_PROGRAM)
    (folder / "evaluator.py").write_text(evaluator)
    return folder


def toy_problem(**changes: Any) -> Problem:
    fields: dict[str, Any] = {
        "name": "toy",
        "task": "Return a large number, at most 1.",
        "initial_program": SEED_PROGRAM,
        "evaluate": evaluate_value,
        "entry_point": "value",
    }
    return Problem(**{**fields, **changes})
