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
    own_filter: Filter | None = None  # without the network that the evaluator has

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
        if self.own_filter is not None:
            self.own_filter.enforce()

    def plain(self) -> dict[str, Any]:
        """The same as JSON can hold it."""
        own = self.own_filter
        texts = {"handled": self.handled.hex(), "own_filter": own and own.program.hex()}
        return self._replace(own_filter=None, handled=b"")._asdict() | texts

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Make it of what `plain` returned."""
        told = {**plain, "handled": bytes.fromhex(plain["handled"])}
        if told["own_filter"]:
            told["own_filter"] = Filter(bytes.fromhex(told["own_filter"]))
        return cls(**told)
