"""Which names of numbers stand for a failure, so that no score is made of them."""

import re

FAILURES = ("error", "errors", "exception", "failed", "failure", "failures")
"""Names under which an evaluator reports that a candidate failed; as texts, the first counts."""

_WORD = re.compile(
    r"(?<![a-z])(errors?|exceptions?|fail(s|ed|ures?)?|crash(es|ed)?|timeouts?|timed_out)(?![a-z])"
)
_NEGATED = re.compile(r"(?<![a-z])(neg|negative|minus|inverse|no|non)(?![a-z])")


def names_failure(name: str) -> bool:
    """Whether a number of this name is higher where more went wrong, as far as the name says."""
    words = name.lower()
    return _WORD.search(words) is not None and _NEGATED.search(words) is None
