"""The hosts and variables that a `problem.toml` may name: a user reads them before confirming."""

import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, Field

from costada.evaluators.problem_fields import Expected
from costada.evaluators.sandbox.inside.command_words import CODE_VARIABLES

HOSTS = "a host name or an address, with a port or without"
LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
ADDRESS = "[0-9A-Fa-f:.]+"
HOST = re.compile(
    rf"(?P<name>{LABEL}(\.{LABEL})*\.?)(:(?P<port>[0-9]+))?"
    rf"|\[(?P<in_brackets>{ADDRESS})\](:(?P<its_port>[0-9]+))?|(?P<alone>{ADDRESS})"
)
MAX_HOST_CHARS, MAX_PORT = 253, 65_535

VARIABLES = "the name of an environment variable"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LOADING = re.compile("LD_|DYLD_|PYTHON|BASH_|GCONV_|GIT_|COSTADA_")
"""Begins the names of variables that decide what programs load or start."""

OF_SANDBOX = frozenset(
    (
        *CODE_VARIABLES,
        *("PATH", "HOME", "TMPDIR", "PWD", "ENV", "IFS", "SHELL", "SHELLOPTS"),
        *("NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"),
    )
)
"""Variables that are no secrets: the sandbox sets them, or they have programs load others."""


def _host(text: str) -> str:
    found = HOST.fullmatch(text) if len(text) <= MAX_HOST_CHARS else None
    if found is None:
        raise ValueError(f"expected {HOSTS}")
    name, port = found["name"], found["port"] or found["its_port"]
    # A name whose last part is a number is read as an address.
    is_name = name is not None and not name.rstrip(".").rpartition(".")[2].isdigit()
    is_host = is_name or _is_address(name or found["in_brackets"] or found["alone"])
    if not is_host or (port is not None and not 0 < int(port) <= MAX_PORT):
        raise ValueError(f"expected {HOSTS}")
    return text


def _is_address(text: str) -> bool:
    try:
        return bool(ip_address(text))
    except ValueError:
        return False


def _variable(name: str) -> str:
    if not VARIABLE.fullmatch(name):
        raise ValueError(f"expected {VARIABLES}")
    if LOADING.match(name) or name in OF_SANDBOX:
        raise ValueError(
            f"expected {VARIABLES} with a secret; this one decides what programs load or start"
        )
    return name


def _distinct(names: Sequence[str]) -> Sequence[str]:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"expected no name twice, found {twice!r}")
    return names


Host = Annotated[str, AfterValidator(_host), Expected(HOSTS)]
Variable = Annotated[str, AfterValidator(_variable), Expected(VARIABLES)]
Hosts = Annotated[tuple[Host, ...], Field(strict=False), AfterValidator(_distinct)]
Variables = Annotated[tuple[Variable, ...], Field(strict=False), AfterValidator(_distinct)]
