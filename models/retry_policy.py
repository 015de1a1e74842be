"""How long a run waits for its providers; loads no model."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from costada.values.provider_error import YEAR
from costada.values.setting import MODELS, Setting

WaitSeconds = Annotated[FiniteFloat, Field(gt=0, le=YEAR)]


class RetryPolicy(BaseModel):
    """How long a run waits for its providers, in seconds.

    Raises `pydantic.ValidationError` naming the field, the value and what was expected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    call_timeout: Annotated[
        WaitSeconds, Setting("costada.models.asking:ask", MODELS, "SECONDS")
    ] = 600.0
    """Total time of one model call, including its retries."""

    retry_wait: Annotated[
        WaitSeconds, Setting("costada.models.retries:with_visible_requests", MODELS, "SECONDS")
    ] = 5.0
    """First wait after a failed request; it doubles each time."""

    longest_wait: Annotated[
        WaitSeconds, Setting("costada.models.retries:with_visible_requests", MODELS, "SECONDS")
    ] = 300.0
    """Longest wait between two requests; a provider that asks for more stops the run."""

    longest_pause: Annotated[
        WaitSeconds, Setting("costada.nodes.calls.outage:Pause", MODELS, "SECONDS")
    ] = 3600.0
    """How long a run waits for an unavailable provider before it stops."""
