"""Keeps an error raised by foreign code, so that it becomes part of a result."""

from types import TracebackType
from typing import Self


class Caught:
    """Keeps the error of the code under `with`: any `Exception`, and the kinds named."""

    def __init__(
        self,
        also: tuple[type[BaseException], ...] = (),
        but: tuple[type[BaseException], ...] = (),
    ) -> None:
        """Keep errors of the kinds in `also` too; let those in `but` propagate."""
        self.error: BaseException | None = None
        self._kept: tuple[type[BaseException], ...] = (Exception, *also)
        self._passed = but

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if isinstance(error, self._kept) and not isinstance(error, self._passed):
            self.error = error
        return self.error is not None
