"""Recorded answers, read from a file of JSON lines.

A line is a JSON object. `costada export --table answers` writes such files, and recordings of other
programs may have the same form:

| field | meaning |
| --- | --- |
| `kind` | `proposal` (an answer that was to change a program), `guide` (an answer with tactics); lines of other kinds are skipped |
| `response` | the raw answer; lines without one are skipped |
| `parent_score` | score of the program to change, of a guide the best score; lines without one are skipped |
| `best_context_score` | best score of the other programs in the prompt; may be null or missing |
| `guided` | whether the prompt held a tactic; false where it is missing |
| `code` | the program that was made of the answer; may be null or missing |
| `prompt_tokens`, `completion_tokens`, `cost` | tokens of the call and its dollars |
| `guide_text` | the tactic of a guided proposal, an object with `idea` and `how`; may be null or missing |
| `iteration_calls`, `iteration_input_tokens`, `iteration_output_tokens`, `iteration_cost` | sums over the calls of the iteration; of a guided proposal with two calls they tell what its guide cost |

Left out are answers to prompts that a search here does not send: those of runs with cut-off
answers (`regime` is `capped`), to prompts with emptied or other guidance (`guide_state` is neither
`none` nor `guided`), and to parents that scored nothing (`parent_failed`). Runs of EvoX
(`method` is `evox`) without one failure (`valid` is false) are left out as well: they kept no
failures, so they would hide how often answers fail.
"""  # noqa: E501

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from math import isclose, isfinite
from pathlib import Path
from typing import Any

from costada.values.usage import MILLION, Price, Usage

PROPOSAL, GUIDE = "proposal", "guide"
SURVIVORS_ONLY = "evox"
"""Method whose recordings may hold no failures."""

GZIP_START = b"\x1f\x8b"
MAX_BYTES = 512 * 2**20
"""Bytes of a file, unpacked."""

SCORE_DECIMALS = 4
"""Decimals of scores that are compared: so many are printed in prompts."""


@dataclass(frozen=True, slots=True)
class Bill:
    """What one recorded call was billed for."""

    usage: Usage
    dollars: Decimal


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """A recorded answer and what its prompt showed.

    Attributes:
        text: The raw answer.
        parent_score: Score of the program to change, of a guide the best score.
        context_score: Best score of the other programs shown, -inf where there were none.
        is_guided: Whether the prompt held a tactic.
        code: The program that was made of it; empty where it is not known.
        bill: What the call cost.
    """

    text: str
    parent_score: float
    context_score: float
    is_guided: bool
    code: str
    bill: Bill


@dataclass(frozen=True, slots=True)
class RecordedTactic:
    """The tactic of a guided prompt, and the score of the program that it was for."""

    idea: str
    how: str
    score: float


@dataclass(frozen=True, slots=True)
class AnswerFile:
    """The answers of a file.

    Attributes:
        path: The file as it was named.
        digest: The first digits of the SHA-256 of its bytes.
        proposals: Answers that were to change a program.
        guides: Answers with tactics.
        tactics: The different tactics of guided proposals.
        guide_bills: What guides cost whose answers are not recorded.
        rates: Rates at which no answer costs less than it did.
    """

    path: str
    digest: str
    proposals: tuple[RecordedAnswer, ...]
    guides: tuple[RecordedAnswer, ...]
    tactics: tuple[RecordedTactic, ...]
    guide_bills: tuple[Bill, ...]
    rates: Price


def read_answers(path: str) -> AnswerFile:
    """Read a file of answers, packed by gzip or not.

    Raises:
        ValueError: The file cannot be read, a line is not as expected, or it holds no usable
            answer. The text names file, line and field.
    """
    try:
        packed = Path(path).expanduser().read_bytes()
        data = _unpacked(packed) if packed.startswith(GZIP_START) else packed
        text = data.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as recorded answers ({error})") from None
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path}: got more than {MAX_BYTES:,} bytes, expected fewer")
    rows = list(_rows(path, text))
    survivors = _survivor_runs(rows)
    taken = [each for each in rows if each.get("run") not in survivors]
    proposals = [each for each in taken if each.get("kind") == PROPOSAL]
    answers = tuple(each.answer() for each in proposals)
    if not answers:
        raise ValueError(
            f"{path}: got no line of kind {PROPOSAL!r} with response and parent_score that can be"
            " used, expected at least one"
        )
    guides = tuple(each.answer() for each in taken if each.get("kind") == GUIDE)
    bills = tuple(bill for each in proposals if (bill := each.guide_bill()) is not None)
    tactics = {(found.idea, found.how): found for each in proposals if (found := each.tactic())}
    return AnswerFile(
        path,
        sha256(packed).hexdigest()[:8],
        answers,
        guides,
        tuple(tactics.values()),
        bills,
        _rates([each.bill for each in (*answers, *guides)] + [*bills]),
    )


def _unpacked(packed: bytes) -> bytes:
    # One byte more than is allowed, so that a small file cannot fill the memory.
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    data = decompressor.decompress(packed, MAX_BYTES + 1)
    if not decompressor.eof and len(data) <= MAX_BYTES:
        raise EOFError("it is cut short")
    return data


class _Row:
    """A line of a file: its fields, checked when they are read."""

    def __init__(self, fields: Mapping[str, Any], place: str) -> None:
        self._fields, self._place = fields, place

    def get(self, name: str) -> Any:
        """A field as it is, None where it is missing."""
        return self._fields.get(name)

    @property
    def is_usable(self) -> bool:
        """Whether its prompt is one that a search here could send, and its answer is known."""
        return (
            self.get("kind") in (PROPOSAL, GUIDE)
            and self.get("response") is not None
            and self.get("parent_score") is not None
            and not self.get("parent_failed")
            and self.get("regime") != "capped"
            and self.get("guide_state") in (None, "none", "guided")
        )

    def answer(self) -> RecordedAnswer:
        """The answer; raises `ValueError` if a field is not as expected."""
        shown = self.get("best_context_score")
        return RecordedAnswer(
            text=self._text("response"),
            parent_score=self._number("parent_score"),
            context_score=-float("inf") if shown is None else self._number("best_context_score"),
            is_guided=self._truth("guided"),
            code="" if self.get("code") is None else self._text("code"),
            bill=Bill(
                Usage(self._count("prompt_tokens"), self._count("completion_tokens")),
                self._dollars("cost"),
            ),
        )

    def tactic(self) -> RecordedTactic | None:
        """The tactic of its prompt, None where it is not recorded."""
        found = self.get("guide_text")
        if found is None:
            return None
        known = found if isinstance(found, dict) else {}
        idea, how = known.get("idea"), known.get("how")
        if not (isinstance(idea, str) and idea.strip() and isinstance(how, str) and how.strip()):
            raise self._error("guide_text", "an object with the strings idea and how")
        return RecordedTactic(idea, how, self._number("parent_score"))

    def guide_bill(self) -> Bill | None:
        """What the guide of its iteration cost, None where that is not known."""
        if self.get("iteration_calls") != 2 or self.get("role") != "generation":
            return None
        if not self._truth("guided"):
            return None
        sent = self._count("iteration_input_tokens") - self._count("prompt_tokens")
        received = self._count("iteration_output_tokens") - self._count("completion_tokens")
        dollars = self._dollars("iteration_cost") - self._dollars("cost")
        if sent < 0 or received < 0 or dollars < 0:
            raise self._error("iteration_cost", "sums of at least what this call has")
        return Bill(Usage(sent, received), dollars)

    def _text(self, name: str) -> str:
        value = self.get(name)
        if not isinstance(value, str):
            raise self._error(name, "a string")
        return value

    def _truth(self, name: str) -> bool:
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._error(name, "true or false")
        return bool(value)

    def _number(self, name: str) -> float:
        value = self.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not isfinite(value):
            raise self._error(name, "a finite number")
        return round(float(value), SCORE_DECIMALS)

    def _dollars(self, name: str) -> Decimal:
        value = self.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not isfinite(value) or value < 0:
            raise self._error(name, "dollars of at least 0")
        return Decimal(str(value))

    def _count(self, name: str) -> int:
        value = self.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._error(name, "an integer of at least 0")
        return value

    def _error(self, name: str, expected: str) -> ValueError:
        shown = json.dumps(self.get(name))[:60]
        return ValueError(f"{self._place}: {name}: got {shown}, expected {expected}")


def _rows(path: str, text: str) -> Iterator[_Row]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{place}: got no JSON, expected an object ({error})") from None
        if not isinstance(fields, dict):
            raise ValueError(f"{place}: got {line[:40]!r}, expected a JSON object")
        if not isinstance(fields.get("kind"), str):
            shown = json.dumps(fields.get("kind"))[:60]
            raise ValueError(f"{place}: kind: got {shown}, expected {PROPOSAL} or {GUIDE}, say")
        row = _Row(fields, place)
        if row.is_usable:
            yield row


def _survivor_runs(rows: Iterable[_Row]) -> set[object]:
    """The runs of EvoX that kept no failure."""
    kept = [each for each in rows if each.get("method") == SURVIVORS_ONLY]
    failed = {each.get("run") for each in kept if each.get("valid") is False}
    return {each.get("run") for each in kept} - failed


def _rates(bills: Sequence[Bill]) -> Price:
    """Rates at which no call costs less than it did: those it was charged at, if all agree.

    Two rates that explain every cost are those of the model. Where none do, as with several
    models, both rates are the highest dollars per token of any call.
    """
    rows = [
        (each.usage.input_tokens, each.usage.output_tokens, float(each.dollars)) for each in bills
    ]
    ii, io, oo = (sum(r[a] * r[b] for r in rows) for a, b in ((0, 0), (0, 1), (1, 1)))
    ci, co = (sum(r[2] * r[a] for r in rows) for a in (0, 1))
    determinant = ii * oo - io * io
    if determinant:
        rates = (ci * oo - co * io) / determinant, (co * ii - ci * io) / determinant
        per_million = [round(rate * float(MILLION), 6) for rate in rates]
        costs = (sum(r[k] * per_million[k] for k in (0, 1)) / float(MILLION) for r in rows)
        if min(per_million) >= 0 and all(
            isclose(cost, r[2], rel_tol=1e-6, abs_tol=1e-9)
            for cost, r in zip(costs, rows, strict=True)
        ):
            return Price(*per_million)
    highest = max((r[2] / max(1, r[0] + r[1]) for r in rows), default=0.0)
    return Price(highest * float(MILLION), highest * float(MILLION))
