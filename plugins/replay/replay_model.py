"""A chat model that answers with recorded answers, chosen by parent and context."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from random import Random
from typing import Any, TypeVar

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from costada.models.chat_models import TICKET, BuiltInModel
from costada.models.runnable_tree import byte_size
from costada.plugins.replay.answer_file import (
    SCORE_DECIMALS,
    AnswerFile,
    Bill,
    RecordedAnswer,
    RecordedTactic,
    read_answers,
)
from costada.prompts.reply_parts import fenced, find_edits
from costada.prompts.requests import PromptData
from costada.prompts.requests import prompt_data as data_of
from costada.prompts.whole_texts import edit_text
from costada.values.usage import Price, Usage, call_cost

MODEL_NAME = "replay"

NEAREST = 10
"""Recorded answers that one is drawn from, and more where several are equally far."""

TACTICS_PER_ANSWER = 3

NO_ANSWER = "No answer to a question like this is recorded."
NO_BILL = Bill(Usage(1, 1), Decimal(0))
"""What `NO_ANSWER` costs: nothing. An answer without tokens could not be charged."""

Recorded = TypeVar("Recorded", RecordedAnswer, RecordedTactic)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Places numbers by the share of known ones below them, so that no unit is needed."""

    known: Sequence[float]

    def place(self, value: float) -> float:
        """The share of the known values below, those equal to it counted by half; in [0, 1]."""
        return (bisect_left(self.known, value) + bisect_right(self.known, value)) / (
            2 * len(self.known)
        )

    def distance(self, one: float, another: float) -> float:
        """How far two values are apart, in [0, 1]."""
        return abs(self.place(one) - self.place(another))


def _scale(values: Sequence[float]) -> _Scale:
    return _Scale(sorted(values))


def _nearest(recorded: Sequence[Recorded], distance: Callable[[Recorded], float]) -> list[Recorded]:
    """The `NEAREST` recorded ones, and those as near as the last of them, in their order."""
    distances = [round(distance(each), 9) for each in recorded]
    farthest = sorted(distances)[:NEAREST][-1]
    return [each for each, far in zip(recorded, distances, strict=True) if far <= farthest]


class ReplayModel(BuiltInModel):
    """Answers prompts with recorded answers of a language model, raw where that is possible.

    Which answer a request for a program gets:

    1. Answers to prompts with a tactic serve requests with a tactic, the others those without; if
       the file holds none of the kind, all serve. What the tactic says makes no difference.
    2. The distance of an answer is the difference in the score of the parent plus the difference
       in the best score of the other programs shown, both with four decimals and measured in
       ranks: by the share of recorded answers with lower scores. No other program shown counts as
       below every score. Steps from .95 to .99 are thus long where many answers start there, and
       no unit of the score matters.
    3. One of the ten nearest answers, and of those as near as the tenth, is drawn with equal
       chances. The generator follows from the run's seed, the ticket and the prompt without run
       times, as for the offline model: a run that is repeated or resumed gets the same answers.
       Other answers given before make no difference, so an answer may come twice.
    4. Nothing is too far: where no answer is near, the nearest ones serve. A parent that is better
       than all recorded ones gets the answers to the best of them. No program is better than the
       best recorded one, unless blocks of changes happen to fit another parent.

    The answer is sent as it was recorded if its SEARCH/REPLACE blocks all have their place in the
    parent of the request, or if it has none. Otherwise the program that was made of it is sent in
    a fence, if it is recorded. The parser, the sandbox and the evaluator treat both like any
    answer, so their failures and scores are real ones.

    A guide gets the recorded answer of a guide, nearest by the best score and drawn in the same
    way. In a file without such answers three different tactics of guided prompts are drawn
    instead, and the call costs what one recorded call of a guide did. Where neither is recorded,
    and for other questions of a method about its candidates, the answer is a sentence without a
    tactic, free of charge.

    A call is charged the tokens and dollars of its recorded answer. Where an answer may have fewer
    tokens than it has, nothing is left of it and the limit is charged; a prompt is then charged at
    most one token for each of its bytes.

    Attributes:
        file: The file of the answers; see `costada.plugins.replay.answer_file`.
        seed: Chooses one of many equally good runs.
    """

    file: str
    answers: AnswerFile = Field(exclude=True, repr=False)

    @property
    def _llm_type(self) -> str:
        # With the digest, which says in the ledger from which version of a file an answer is.
        return f"{MODEL_NAME}-{self.answers.digest}"

    @property
    def recorded_price(self) -> Price:
        """Rates at which no answer costs less than it did."""
        return self.answers.rates

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        metadata = run_manager.metadata if run_manager else {}
        rng = self._generator(messages, metadata.get(TICKET))
        data = (data_of(each.additional_kwargs) for each in messages)
        asked = next((each for each in data if each is not None), None)
        text, bill = self._answer(asked, rng)
        reason, limit = "stop", kwargs.get("max_tokens")
        if limit is not None:
            text, bill, reason = self._limited(text, bill, limit, messages)
        message = self._charged(text, bill, reason)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _answer(self, asked: PromptData | None, rng: Random) -> tuple[str, Bill]:
        if asked is not None and asked.kind == "generation":
            drawn = rng.choice(self._near(asked))
            return _text_for(drawn, asked), drawn.bill
        if asked is not None and asked.kind == "guide":
            return self._guide_answer(asked, rng)
        return NO_ANSWER, NO_BILL

    def _near(self, asked: PromptData) -> list[RecordedAnswer]:
        """The answers that may serve a request for a program."""
        is_guided = bool(asked.approach)
        group = self._groups[is_guided]
        parents, contexts = self._scales[is_guided]
        parent, context = (
            round(score, SCORE_DECIMALS)
            for score in (asked.score, max(asked.other_scores, default=-float("inf")))
        )

        def distance(each: RecordedAnswer) -> float:
            return parents.distance(each.parent_score, parent) + contexts.distance(
                each.context_score, context
            )

        return _nearest(group, distance)

    @cached_property
    def _groups(self) -> dict[bool, Sequence[RecordedAnswer]]:
        """The proposals that serve requests without and with a tactic."""
        known = self.answers.proposals
        return {
            is_guided: [each for each in known if each.is_guided is is_guided] or known
            for is_guided in (False, True)
        }

    @cached_property
    def _scales(self) -> dict[bool, tuple[_Scale, _Scale]]:
        return {
            is_guided: (
                _scale([each.parent_score for each in group]),
                _scale([each.context_score for each in group]),
            )
            for is_guided, group in self._groups.items()
        }

    def _guide_answer(self, asked: PromptData, rng: Random) -> tuple[str, Bill]:
        best = round(asked.score, SCORE_DECIMALS)
        if guides := self.answers.guides:
            scale = _scale([each.parent_score for each in guides])
            near = _nearest(guides, lambda each: scale.distance(each.parent_score, best))
            drawn = rng.choice(near)
            return drawn.text, drawn.bill
        tactics, bills = self.answers.tactics, self.answers.guide_bills
        if not tactics or not bills:
            return NO_ANSWER, NO_BILL
        scores = _scale([each.score for each in tactics])
        near_tactics = _nearest(tactics, lambda each: scores.distance(each.score, best))
        drawn_tactics = rng.sample(near_tactics, min(TACTICS_PER_ANSWER, len(near_tactics)))
        records = [
            {"idea": each.idea, "description": each.how, "approach_type": "recorded.tactic"}
            for each in drawn_tactics
        ]
        return json.dumps({"ideas": records}, indent=2), rng.choice(bills)

    def _limited(
        self, text: str, bill: Bill, limit: int, messages: Sequence[BaseMessage]
    ) -> tuple[str, Bill, str]:
        """An answer under a limit; nothing is left of one that exceeds it."""
        most_read = sum(byte_size(message.text) for message in messages)
        is_cut = bill.usage.output_tokens > limit
        usage = replace(
            bill.usage,
            input_tokens=min(bill.usage.input_tokens, most_read),
            output_tokens=min(bill.usage.output_tokens, limit),
        )
        dollars = bill.dollars
        if usage != bill.usage:
            dollars = min(dollars, call_cost(usage, self.recorded_price))
        return "" if is_cut else text, Bill(usage, dollars), "length" if is_cut else "stop"

    def _charged(self, text: str, bill: Bill, reason: str) -> AIMessage:
        message = self._message(text, bill.usage, reason)
        # As providers report a cost beside the tokens.
        message.response_metadata["token_usage"] = {"cost": float(bill.dollars)}
        return message


def _text_for(drawn: RecordedAnswer, asked: PromptData) -> str:
    """The answer as it was recorded, or the program made of it where its blocks have no place."""
    if not isinstance(asked.program, str) or not drawn.code:
        return drawn.text
    edits = find_edits(drawn.text).complete
    _, _, unmatched = edit_text(asked.program, edits)
    return fenced(drawn.code, asked.language) if unmatched else drawn.text


def replay_model(argument: str, *, seed: int = 0) -> ReplayModel:
    """The model `replay:FILE`.

    Args:
        argument: The file of the answers.
        seed: The seed of the run.

    Raises:
        ValueError: No file is named, it cannot be read, or it is not as expected.
    """
    if not argument:
        raise ValueError('model "replay": got no file, expected "replay:FILE"')
    return ReplayModel(file=argument, answers=read_answers(argument), seed=seed)
