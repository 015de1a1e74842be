"""Reads the text of a shell, as far as it shows which commands run."""

import os
import re
import shlex
from collections.abc import Sequence

WRAPPERS = {
    **dict.fromkeys((".", "builtin", "command", "eval", "nohup", "prlimit", "setsid"), ()),
    "env": ("-u", "--unset"),
    "exec": ("-a",),
    "nice": ("-n", "--adjustment"),
    "source": (),
    "stdbuf": ("-i", "-o", "-e", "--input", "--output", "--error"),
    "taskset": (),
    "time": ("-f", "-o", "--format", "--output"),
    "timeout": ("-k", "-s", "--kill-after", "--signal"),
    "xargs": ("-a", "-d", "-E", "-I", "-L", "-n", "-P", "-s"),
}
"""Commands that run the command behind them, with their options whose value is the next word."""

WITH_ARGUMENT = ("taskset", "timeout")
"""Those with one more word in front of that command: cores, or a time."""

KEYWORDS = frozenset(("if", "then", "elif", "else", "while", "until", "do", "!", "{"))
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
SEPARATORS = ";&|()<>\n"
READ = "<"
COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
UNKNOWN = re.compile(r"[$`*?\[]")
"""Signs in a word that a shell replaces."""


def unwrapped(words: Sequence[str]) -> list[str]:
    """The words of a command without what only sets it up."""
    rest = list(words)
    while rest and (rest[0] in KEYWORDS or ASSIGNMENT.fullmatch(rest[0])):
        rest.pop(0)
    while rest and (name := os.path.basename(rest[0])) in WRAPPERS:
        del rest[0]
        while rest and (rest[0][:1] == "-" or ASSIGNMENT.fullmatch(rest[0])):
            has_value = rest[0] in WRAPPERS[name]
            del rest[: 1 + has_value]
        del rest[: name in WITH_ARGUMENT]
    return rest


def commands_in(text: str) -> list[list[str]] | None:
    """The words of each command in the text of a shell, and the files that it reads by `<`.

    None if they cannot be told.
    """
    if "`" in text or "$(" in text or "<<" in text:
        return None
    plain = COMMENT.sub("", text.replace("\\\n", " "))
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=SEPARATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    commands: list[list[str]] = [[]]
    is_target = False
    try:
        for token in lexer:
            if not set(token) <= set(SEPARATORS):
                if not is_target:
                    commands[-1].append(token)
                is_target = False
            elif token != READ:
                is_target = token[-1] != "(" and (token[0] in "<>" or token[-1] in "<>")
                commands += [] if is_target else [[]]
    except ValueError:
        return None
    return [words for words in commands if words]
