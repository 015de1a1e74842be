"""Landlock's rules for the processes of an evaluator that run its candidate."""

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

from costada.evaluators.sandbox.inside.kernel import landlock, landlock_rule, landlock_ruleset
from costada.evaluators.sandbox.inside.system_call_filter import Filter


class ChildAccess(NamedTuple):
    """What the rules are made of: sets of accesses, as bits."""

    handled: bytes  # what is denied but for the rules
    list: int
    read: int
    write: int
    of_file: int  # those that a rule for a file may have
    readable: tuple[str, ...]  # paths outside of the working folder
    listable: tuple[str, ...] = ()  # folders around some of these
    filters: tuple[Filter, ...] = ()  # beside that of the evaluator

    def ruleset(self, wanted: Mapping[str, int]) -> int:
        """The descriptor of rules that allow the accesses wanted, by path."""
        return landlock_ruleset(self.handled, self._rules(wanted))

    def _rules(self, wanted: Mapping[str, int]) -> Iterator[bytes]:
        """A rule for each path that exists, valid until the next one is taken.

        There may be more paths than files that can be open at once.
        """
        for path, allowed in wanted.items():
            try:
                path_fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            except (FileNotFoundError, PermissionError):  # gone, or another user's
                continue
            try:
                mode = os.fstat(path_fd).st_mode
                kept = allowed if stat.S_ISDIR(mode) else allowed & self.of_file
                if not stat.S_ISLNK(mode):
                    yield landlock_rule(path_fd, kept)
            finally:
                os.close(path_fd)

    def restrict(self, rules_fd: int) -> None:
        """Have this process keep to the rules, for good."""
        landlock(rules_fd)
        for each in self.filters:
            each.enforce()

    def plain(self) -> dict[str, Any]:
        """The same as JSON can hold it."""
        filters = [each.program.hex() for each in self.filters]
        return self._asdict() | {"handled": self.handled.hex(), "filters": filters}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Make it of what `plain` returned."""
        filters = tuple(Filter(bytes.fromhex(each)) for each in plain["filters"])
        return cls(**{**plain, "handled": bytes.fromhex(plain["handled"]), "filters": filters})
