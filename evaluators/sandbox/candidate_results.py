"""The result of each call of a candidate, or the reason why there is none."""

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
from costada.evaluators.sandbox.inside.orders import CHILD_FAULT

SLOT_LOST = (
    "the sandbox process ended while the program ran: the program may have killed it, or the"
    " machine is out of memory"
)
UNREPORTED = (
    "the program failed and could not report its error: it closed the pipe for its answer, replaced"
    " functions that report errors, or left no memory for them"
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
            loading or building the program, and the last the time until its process ended.
        is_own_fault: Whether a failure came from the candidate's code; False only if an
            evaluator failed outside of it.
        outage: Seconds that the provider of a model asks to wait, if the evaluator failed because
            it is unavailable.
        is_sandbox_fault: Whether the sandbox itself was lost on the way, so that another try
            may end differently.
        is_unbuilt: Whether the program could not be built, so that no call was made.
    """

    output: Value
    error: str | None
    log: str
    seconds: float
    is_own_fault: bool = True
    outage: float | None = None
    is_sandbox_fault: bool = False
    is_unbuilt: bool = False


def results_of(execution: Execution) -> list[CandidateResult]:
    """The result of each call, up to the first that exceeded its time limit.

    The calls that a program does not answer, because it cannot be loaded, ends or is stopped,
    share one reason. The last answer of a program that is stopped after it does not count: time and
    limits hold until the process ends.

    Raises:
        RuntimeError: If the program never began.
    """
    messages = execution.answers.messages()
    if not messages and execution.stopped is None and not execution.is_slot_lost:
        raise RuntimeError(f"sandbox: could not begin a program: {log_of(execution)[-1000:]}")
    num_calls = len(execution.request.calls)
    if execution.answers.has_too_many:
        # Several processes of a program may answer, as their starts fail beyond a limit.
        return _failures(execution, 0, num_calls, execution.exceeded or TOO_MANY_FRAMES)
    if execution.answers.has_rest and execution.exceeded is None and execution.stopped is None:
        reason = f"malformed answer: it is incomplete; {reason_of(execution)}"
        return _failures(execution, 0, num_calls, reason)
    if any(messages[1:NUM_OPENING_FRAMES]):
        result = _read(execution, messages[1], execution.ended - execution.started)
        return [result, *[replace(result, seconds=0.0)] * (num_calls - 1)]
    answers = messages[NUM_OPENING_FRAMES:]
    num_answered, num_missing = len(answers), num_calls - len(answers)
    if execution.num_in_time is not None:
        num_answered, num_missing = execution.num_in_time, 1
    elif num_missing == 0 and (execution.stopped or execution.exceeded):
        # It was written before a limit was exceeded, perhaps to go on computing after it.
        num_answered, num_missing = num_calls - 1, 1
    # Each call lasts from the end of the one before until its answer, the last until the end.
    moments = [execution.started, *execution.answers.arrivals[NUM_OPENING_FRAMES:]]
    num_over = min(len(moments), num_calls) - 1
    ends = [*moments[1 : num_over + 1], *[execution.ended] * num_calls]
    results = [
        _read(execution, answer, ends[call] - moments[call])
        for call, answer in enumerate(answers[:num_answered])
    ]
    return results + _failures(execution, num_answered, num_missing, reason_of(execution))


def _read(execution: Execution, message: memoryview, seconds: float) -> CandidateResult:
    """The result in one answer."""
    log = log_of(execution)
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
        case {"error": str(error), "is_own_fault": bool(is_own), **rest} if error:
            text = readable(error[:ERROR_BYTES])
            match rest:
                case {"outage": float(outage), **more} if not (more or is_own):
                    return CandidateResult(
                        None, text, log, seconds, is_own_fault=False, outage=outage
                    )
            if not rest:
                return CandidateResult(None, text, log, seconds, is_own_fault=is_own)
    text = "malformed answer: it is neither an output nor an error"
    return CandidateResult(None, text, log, seconds)


def _failures(execution: Execution, first: int, count: int, reason: str) -> list[CandidateResult]:
    """The results of calls that share one reason; the first of them took all the time."""
    begun = [execution.started, *execution.answers.arrivals[NUM_OPENING_FRAMES:]][first]
    log, is_lost = log_of(execution), execution.is_slot_lost
    return [
        CandidateResult(None, reason, log, seconds, is_sandbox_fault=is_lost)
        for seconds in [execution.ended - begun, *[0.0] * (count - 1)][:count]
    ]


def reason_of(execution: Execution) -> str:
    """Why a program ended before it answered."""
    if execution.stopped is not None:
        return execution.stopped
    status = execution.status
    if status is None:
        return SLOT_LOST
    if execution.exceeded:
        return execution.exceeded
    if status == CHILD_FAULT:
        return UNREPORTED
    if status >= 0:
        return f"the program ended its process (exit status {status}) before it returned"
    name = signal_name(-status)
    hint = "; a crash in compiled code or too deep recursion" if name == "SIGSEGV" else ""
    return f"the program was killed by {name} before it returned{hint}"


def signal_name(number: int) -> str:
    """Name of a signal; its number for a real-time signal, most of which have no name."""
    return signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"


def log_of(execution: Execution) -> str:
    """What was printed, in which the working folder has no name."""
    text = execution.log.kept.decode("utf-8", "replace")
    return readable(text.replace(f"{execution.slot.scratch}{os.sep}", ""))


def readable(text: str) -> str:
    """The text without what could steer the terminal that shows it."""
    return text.translate(WITHOUT_CONTROLS)
