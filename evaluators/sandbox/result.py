"""What comes back from a candidate."""

from dataclasses import dataclass

from costada.evaluators.sandbox.wire import Value


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """What came of one call.

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
