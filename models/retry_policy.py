"""How long a run waits for its providers; loads no model."""

from dataclasses import dataclass, fields

from costada.values.provider_error import YEAR


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a run waits for its providers, in seconds; all are > 0 and at most a year.

    Attributes:
        call_timeout: Total time of one call, its retries and the waits between them included.
        retry_wait: First wait after a failed request. It doubles from failure to failure, up to
            `longest_wait`, and up to a fifth of it is added at random.
        longest_wait: Longest wait between two requests. A provider that asks for a longer one
            (Retry-After) stops the run.
        longest_pause: Time that a run waits for a provider that does not answer.
    """

    call_timeout: float = 600.0
    retry_wait: float = 5.0
    longest_wait: float = 300.0
    longest_pause: float = 3600.0

    def __post_init__(self) -> None:
        """Raise `ValueError` for a time that cannot be waited for, by its name."""
        for each in fields(self):
            seconds = getattr(self, each.name)
            if not 0 < seconds <= YEAR:
                raise ValueError(
                    f"{each.name}: got {seconds}, expected seconds > 0 and at most a year"
                )
