"""Arithmetic in dollars that does not depend on the caller's `decimal` context."""

from collections.abc import Callable
from decimal import Context, localcontext
from functools import wraps
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

DOLLARS = Context(prec=28)
"""Python's standard context, with more digits than any sum of costs has."""


def exactly(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function whose sums are not rounded to the digits that the caller's context allows."""

    @wraps(function)
    def computed(*values: Arguments.args, **named: Arguments.kwargs) -> Result:
        with localcontext(DOLLARS):
            return function(*values, **named)

    return computed
