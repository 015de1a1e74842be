"""Every recorded answer of a real model goes through the parser.

The recorded runs also edited programs that were no programs: cut off, or without their entry
point. Such a parent cannot occur here, where what fails never enters an archive, and no answer to
it can be judged; their share is printed and not asserted.
"""

import gzip
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from costada.prompts.parse import Proposal, Rejection, parse_program

SHARED = Path(__file__).parents[2].parent / "shared"
RECORDINGS = SHARED / "recordings" / "circle_packing.jsonl.gz"
ENTRY_POINT = "run_packing"
TOKEN_CAPS = {"full": {16384}, "capped": {512, 1024, 2048}}


@dataclass(frozen=True)
class Answer:
    record: dict
    parent_code: str
    result: Proposal | Rejection

    @property
    def is_complete(self) -> bool:
        return isinstance(self.result, Proposal) and is_program(self.result.code)

    @property
    def equals_record(self) -> bool:
        code = self.record["code"].strip()
        return isinstance(self.result, Proposal) and self.result.code.strip() == code

    @property
    def leaves_record_unchanged(self) -> bool:
        return self.record["code"].strip() == self.parent_code.strip()


def is_program(code: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            compile(code, "<recorded>", "exec")
        except (SyntaxError, ValueError):
            return False
    return re.search(rf"^def {ENTRY_POINT}\b", code, re.MULTILINE) is not None


def is_cut_off(record: dict) -> bool:
    """Whether the token cap ended the answer, judged from the record and not by the parser."""
    reply, regime = record["response"], record["regime"]
    if record["tokens"] == "recorded" and record["completion_tokens"] in TOKEN_CAPS[regime]:
        return True
    if ">>>>>>> REPLACE" not in reply[reply.rfind("<<<<<<< SEARCH") :]:
        if "<<<<<<< SEARCH" in reply:
            return True
        if regime == "capped" and "```" not in reply:
            return True
    fences = re.findall(r"^```(\w*)$", reply, re.MULTILINE)
    return bool(fences) and fences[-1] != ""


def parents(records: dict[str, dict], record: dict) -> Iterator[str]:
    """The code of the parent, through its copies; nothing if it lies outside the set."""
    found = records.get(record["parent_id"])
    while found is not None and found["kind"] == "migrant":
        found = records.get(found["copy_of"])
    if found is not None:
        yield found["code"]


@pytest.fixture(scope="module")
def answers() -> list[Answer]:
    if not RECORDINGS.exists():
        pytest.skip(f"the recorded answers are not there: {RECORDINGS}")
    with gzip.open(RECORDINGS, "rt", encoding="utf-8") as lines:
        records = {record["id"]: record for record in map(json.loads, lines)}
    proposals = [
        record
        for record in records.values()
        if record["kind"] == "proposal" and record.get("response")
    ]
    found = [
        Answer(record, parent, parse_program(record["response"], parent, ENTRY_POINT))
        for record in proposals
        for parent in parents(records, record)
    ]
    print(f"\n{len(proposals)} answers, {len(proposals) - len(found)} without their parent")
    return found


def report(title: str, chosen: list[Answer]) -> float:
    complete = sum(answer.is_complete for answer in chosen)
    print(f"{title}: {complete} of {len(chosen)} give a complete program")
    return complete / len(chosen)


def test_nearly_every_answer_that_is_not_cut_off_gives_a_complete_program(answers):
    whole = [answer for answer in answers if not is_cut_off(answer.record)]
    sound = [answer for answer in whole if is_program(answer.parent_code)]
    report("cut off", [answer for answer in answers if is_cut_off(answer.record)])
    report("not cut off, parent is no program", [a for a in whole if a not in sound])
    for regime in TOKEN_CAPS:
        report(f"not cut off, {regime}", [a for a in sound if a.record["regime"] == regime])
    assert len(sound) > 600
    assert report("not cut off", sound) >= 0.98


def test_answers_that_once_lost_the_entry_point_now_keep_it(answers):
    lost = [
        answer
        for answer in answers
        if answer.record["failure"] == "entry_point_missing" and is_program(answer.parent_code)
    ]
    assert len(lost) > 80
    assert report("entry point lost in the recording", lost) >= 0.95


def test_valid_recorded_programs_are_reproduced(answers):
    valid = [answer for answer in answers if answer.record["valid"]]
    stale = [a for a in valid if a.leaves_record_unchanged and not a.equals_record]
    changed = [a for a in valid if not a.leaves_record_unchanged]
    equal = Counter(answer.equals_record for answer in changed)
    print(f"\nvalid and changed: {equal[True]} equal, {equal[False]} different")
    print(f"valid and unchanged, because no edit had matched: {len(stale)}")
    assert equal[True] / len(changed) >= 0.99
    assert len(stale) < 30
