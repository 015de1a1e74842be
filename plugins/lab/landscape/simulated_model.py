"""A chat model that proposes programs of a simulated landscape; no language model is behind it."""

import hashlib
import json
import re
from dataclasses import replace
from random import Random
from typing import Any, cast

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from costada.models.chat_models import ENTRY_POINTS, TICKET, BuiltInModel
from costada.models.runnable_tree import byte_size
from costada.plugins.lab.landscape.landscape import (
    GUIDE_TOKENS,
    INSIGHT_TOKENS,
    LABEL_TOKENS,
    STRATEGY_TOKENS,
    Attempt,
    Landscape,
    Wording,
    call_tokens,
    drawn_landscape,
    generation_tokens,
)
from costada.plugins.lab.landscape.landscape_problem import proposed_program, read_program
from costada.prompts.requests import PromptData, prompt_data
from costada.values.plugins import load_plugin, plugins_of
from costada.values.usage import Usage

OFFLINE = "offline"

TACTICS_PER_ANSWER = 3

PROMISING_ODDS = 2.0
"""How many times as likely a guide names an approach whose ceiling lies above the best score; an
assumption: it knows something, but is not an oracle."""

REFINEMENTS = ("start", "constraints", "polish")
"""What refinement tactics are called; each keeps the approach of the program."""

_NAMED = re.compile(r"landscape\.approach_(\d{1,2})", re.ASCII)


def named_approaches(
    landscape: Landscape, current: int, best_score: float, rng: Random
) -> tuple[int, ...]:
    """The approaches that three breakthrough tactics name, all different from the current one."""
    weights = {
        number: PROMISING_ODDS if approach.ceiling > best_score else 1.0
        for number, approach in enumerate(landscape.approaches)
        if number != current
    }
    # The smallest of exponential times are a weighted sample without replacement.
    keys = {number: rng.expovariate(weight) for number, weight in weights.items()}
    return tuple(sorted(keys, key=keys.__getitem__)[:TACTICS_PER_ANSWER])


def named_approach(approach_type: str) -> int | None:
    """The number of the approach that a tactic names, None if it names none."""
    match = _NAMED.fullmatch(approach_type)
    return int(match[1]) if match else None


def attempt_of(asked: PromptData) -> Attempt | None:
    """What an answer starts from, None where it sees no program of the landscape."""
    seen = read_program(asked.program) if isinstance(asked.program, str) else None
    if seen is None:
        return None
    wording = Wording(asked.mode or asked.action)
    named = named_approach(asked.approach) if wording is Wording.BREAKTHROUGH else None
    return Attempt(seen.approach, seen.quality, wording, named)


NO_LANDSCAPE = "I see no program of the simulated landscape here."


def answer_prompt(asked: PromptData | None, seed: int, rng: Random) -> tuple[str, Usage]:
    """The answer to a prompt and what it is billed for; the seed chooses the landscape."""
    if asked is None:
        return NO_LANDSCAPE, generation_tokens(0, 1.0, rng)
    match asked.kind:
        case "generation":
            return _program_answer(asked, seed, rng)
        case "guide":
            return _guide_answer(asked, seed, rng), call_tokens(GUIDE_TOKENS, rng)
        case "labels":
            return _population_reply(asked, rng), call_tokens(LABEL_TOKENS, rng)
        case "insight":
            return _population_reply(asked, rng), call_tokens(INSIGHT_TOKENS, rng)
        case "strategy":
            return _population_reply(asked, rng), call_tokens(STRATEGY_TOKENS, rng)
    return NO_LANDSCAPE, generation_tokens(0, 1.0, rng)


def _population_reply(asked: PromptData, rng: Random) -> str:
    """What the offline model says of the candidates of a run, as a landscape has no words for it.

    Raises:
        ValueError: That model is not installed.
    """
    plugin = plugins_of(ENTRY_POINTS).get(OFFLINE)
    if plugin is None:
        raise ValueError(
            f"model {OFFLINE} is not installed; {MODEL_NAME} needs it with this method"
        )
    return str(cast(Any, load_plugin(plugin, type)).population_reply(asked, rng))


def _program_answer(asked: PromptData, seed: int, rng: Random) -> tuple[str, Usage]:
    attempt = attempt_of(asked)
    if attempt is None or not isinstance(asked.program, str):
        return NO_LANDSCAPE, generation_tokens(len(asked.others), 1.0, rng)
    landscape = drawn_landscape(seed)
    program = asked.program.strip("\n") + "\n"
    code, tokens = proposed_program(program, attempt, len(asked.others), landscape, rng)
    return f"Simulated answer.\n\n```python\n{code}```\n", tokens


def _guide_answer(asked: PromptData, seed: int, rng: Random) -> str:
    seen = read_program(asked.program) if isinstance(asked.program, str) else None
    if seen is None:
        return NO_LANDSCAPE
    if asked.mode == "refinement":
        ideas = [(f"Carry it further: {each}.", f"landscape.{each}") for each in REFINEMENTS]
    else:
        named = named_approaches(drawn_landscape(seed), seen.approach, seen.quality, rng)
        ideas = [(f"Take approach {each}.", f"landscape.approach_{each}") for each in named]
    records = [
        {
            "idea": idea,
            "description": "Change the numbers of the program accordingly.",
            "what_to_optimize": "score",
            "cautions": "",
            "approach_type": approach_type,
        }
        for idea, approach_type in ideas
    ]
    return json.dumps({"ideas": records}, indent=2)


MODEL_NAME = "simulated"


class SimulatedModel(BuiltInModel):
    """A stochastic stand-in for a language model on the problem "landscape".

    Scores, failures and token counts follow the distributions in docs/understand/landscape.md. The
    same seed, messages and ticket always get the same answer; independent attempts that start
    from the same prompt differ by their ticket. Where `max_tokens` is bound to the model, nothing
    is left of an answer longer than that, and a prompt is billed at most one token for each byte.

    Attributes:
        seed: Chooses the landscape and the draws on it.
    """

    @property
    def _llm_type(self) -> str:
        return MODEL_NAME

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        metadata = run_manager.metadata if run_manager else {}
        rng = _generator(self.seed, messages, metadata.get(TICKET))
        text, tokens = answer_prompt(prompt_data(messages[-1].additional_kwargs), self.seed, rng)
        limit, reason = kwargs.get("max_tokens"), "stop"
        if limit is not None:
            # Programs of the landscape are shorter than those on record, whose tokens are drawn. A
            # hard budget, which sets the limit, expects no more tokens than a prompt has bytes.
            most_read = sum(byte_size(message.text) for message in messages)
            tokens = replace(tokens, input_tokens=min(tokens.input_tokens, most_read))
            if tokens.output_tokens > limit:
                text, tokens, reason = "", replace(tokens, output_tokens=limit), "length"
        message = self._message(text, tokens, reason)
        return ChatResult(generations=[ChatGeneration(message=message)])


def _generator(seed: int, messages: list[BaseMessage], ticket: object) -> Random:
    prompt = "\n\n".join(message.text for message in messages)
    digest = hashlib.sha256(f"{seed}\n{ticket}\n{prompt}".encode()).digest()
    return Random(int.from_bytes(digest))
