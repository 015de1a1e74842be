"""The results of a run's calls."""

import os
import signal
from dataclasses import dataclass, replace

from costada.evaluators.sandbox.codec import Value, decode
from costada.evaluators.sandbox.execution import (
    ERROR_BYTES,
    FRAME_BYTES,
    NUM_OPENING_FRAMES,
    TOO_MANY_FRAMES,
    Execution,
    too_long,
)
from costada.evaluators.sandbox.inside.fork_server import CHILD_FAULT

SLOT_LOST = (
    "the sandbox process ended while the program ran: the program may have killed it, or the"
    " machine is out of memory"
)
UNREPORTED = (
    "the program failed, and its error could not be told: it closed the way for its answer, changed"
    " what tells errors, or left no memory for that"
)
WITHOUT_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), "�")
WITHOUT_CONTROLS |= {ord("\t"): "\t", ord("\n"): "\n", ord("\r"): "\n"}


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """The result of one call.

    Attributes:
        output: What the entry point returned, as plain data; None if it failed.
        error: Why it failed; None if it returned.
        log: The beginning of what was printed, in all calls together.
        seconds: Wall-clock time of the call, from the end of the one before; the first includes
            loading the program, and the last the time until its process ended.
        is_own_fault: Whether a failure came from the candidate's code; False only if an
            evaluator failed outside of it.
        is_sandbox_fault: Whether the sandbox itself was lost on the way, so that another try
            may end differently.
    """

    output: Value
    error: str | None
    log: str
    seconds: float
    is_own_fault: bool = True
    is_sandbox_fault: bool = False


def results_of(execution: Execution) -> list[CandidateResult]:
    """The result of each call, up to the first that ran out of its own time.

    The calls that a program does not answer, because it cannot be loaded, ends or is stopped,
    share one reason. A program that is stopped after its last answer has not given that: its time
    and its limits count until its end.

    Raises:
        RuntimeError: If the program never began.
    """
    messages = execution.answers.messages()
    if not messages and execution.stopped is None and not execution.is_slot_lost:
        raise RuntimeError(f"sandbox: could not begin a program: {_log(execution)[-1000:]}")
    num_calls = len(execution.request.calls)
    if execution.answers.has_too_many:
        return _failures(execution, 0, num_calls, TOO_MANY_FRAMES)
    if execution.answers.has_rest and execution.passed is None and execution.stopped is None:
        reason = f"malformed answer: it is incomplete; {_reason(execution)}"
        return _failures(execution, 0, num_calls, reason)
    if any(messages[1:NUM_OPENING_FRAMES]):
        result = _read(execution, messages[1], execution.ended - execution.started)
        return [result, *[replace(result, seconds=0.0)] * (num_calls - 1)]
    answers = messages[NUM_OPENING_FRAMES:]
    num_answered, num_missing = len(answers), num_calls - len(answers)
    if execution.num_in_time is not None:
        num_answered, num_missing = execution.num_in_time, 1
    elif num_missing == 0 and (execution.stopped or execution.passed):
        num_answered, num_missing = num_calls - 1, 1
    # Each call lasts from the end of the one before until its answer, the last until the end.
    moments = [execution.started, *execution.answers.arrivals[NUM_OPENING_FRAMES:]]
    num_over = min(len(moments), num_calls) - 1
    ends = [*moments[1 : num_over + 1], *[execution.ended] * num_calls]
    results = [
        _read(execution, answer, ends[call] - moments[call])
        for call, answer in enumerate(answers[:num_answered])
    ]
    return results + _failures(execution, num_answered, num_missing, _reason(execution))


def _read(execution: Execution, message: memoryview, seconds: float) -> CandidateResult:
    """The result in one answer."""
    log = _log(execution)
    try:
        answer = decode(message)
    except ValueError as fault:
        return CandidateResult(None, f"malformed answer: {fault}", log, seconds)
    max_bytes = execution.limits.result_bytes
    match answer:
        case {"output": _, **rest} if not rest and len(message) > max_bytes + FRAME_BYTES:
            return CandidateResult(None, too_long(max_bytes), log, seconds)
        case {"output": output, **rest} if not rest:
            return CandidateResult(output, None, log, seconds)
        case {"error": str(error), "is_own_fault": bool(is_own), **rest} if error and not rest:
            text = _readable(error[:ERROR_BYTES])
            return CandidateResult(None, text, log, seconds, is_own_fault=is_own)
    text = "malformed answer: it is neither an output nor an error"
    return CandidateResult(None, text, log, seconds)


def _failures(execution: Execution, first: int, count: int, reason: str) -> list[CandidateResult]:
    """The results of calls that share one reason; the first of them took all the time."""
    begun = [execution.started, *execution.answers.arrivals[NUM_OPENING_FRAMES:]][first]
    log, is_lost = _log(execution), execution.is_slot_lost
    return [
        CandidateResult(None, reason, log, seconds, is_sandbox_fault=is_lost)
        for seconds in [execution.ended - begun, *[0.0] * (count - 1)][:count]
    ]


def _reason(execution: Execution) -> str:
    if execution.stopped is not None:
        return execution.stopped
    status = execution.status
    if status is None:
        return SLOT_LOST
    if execution.passed:
        return execution.passed
    if status == CHILD_FAULT:
        return UNREPORTED
    if status >= 0:
        return f"the program ended its process (exit status {status}) before it returned"
    name = signal.Signals(-status).name if -status in list(signal.Signals) else str(-status)
    hint = "; a crash in compiled code or too deep recursion" if name == "SIGSEGV" else ""
    return f"the program was killed by {name} before it returned{hint}"


def _log(execution: Execution) -> str:
    text = execution.log.kept.decode("utf-8", "replace")
    return _readable(text.replace(f"{execution.slot.scratch}{os.sep}", ""))


def _readable(text: str) -> str:
    """The text without what could steer the terminal that shows it."""
    return text.translate(WITHOUT_CONTROLS)
