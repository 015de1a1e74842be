"""What a caller may set about a run besides problem, models and budget."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt, field_validator

from costada.controller.constants import Constants
from costada.controller.ledger import Price
from costada.controller.methods import DEFAULT_METHOD, METHODS

DEFAULT_MAX_FAILURES = 20
"""Attempts in a row without a usable program after which something must be wrong."""


class Settings(BaseModel):
    """The settings of a run, checked on creation.

    `constants` are the controller's. `method` says who decides, by its name in `METHODS`. `seed`
    starts the run's randomness when the input gives none. `price` is the price of the generating
    model, `guide_price` that of a separate guide model, and `other_prices` those of further models
    by name (fallbacks, for instance); where they say nothing, the packaged prices hold.
    `on_missing_usage` decides about an answer without token counts: `"raise"` ends the run,
    `"estimate"` charges an estimate and marks it. `lost_calls` says whether a call whose outcome is
    unknown counts against the budget at its upper bound. `budget_policy` `"crossing"` lets the step
    that crosses the budget complete, `"hard"` lets no call begin that could cross it.
    `max_failures` attempts in a row without a usable program stop the run. `on_exhausted`
    `"interrupt"` asks the caller for more budget instead of ending the run.

    Raises `pydantic.ValidationError` naming the field, the value and what was expected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    constants: Constants = Constants()
    method: str = DEFAULT_METHOD
    seed: int = 0
    price: Price | None = None
    guide_price: Price | None = None
    other_prices: Mapping[str, Price] = {}
    on_missing_usage: Literal["raise", "estimate"] = "raise"
    lost_calls: Literal["count", "ignore"] = "count"
    budget_policy: Literal["crossing", "hard"] = "crossing"
    max_failures: PositiveInt = DEFAULT_MAX_FAILURES
    on_exhausted: Literal["stop", "interrupt"] = "stop"

    @field_validator("method")
    @classmethod
    def _check_method(cls, method: str) -> str:
        if method not in METHODS:
            raise ValueError(f"expected one of {', '.join(METHODS)}")
        return method
