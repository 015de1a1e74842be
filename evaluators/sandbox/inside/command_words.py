"""Tells which commands run no foreign code, and which file an interpreter runs."""

import os
import re
from collections.abc import Sequence

from costada.evaluators.sandbox.inside.evaluator_scripts import MAKE, MAKEFILES, SHELL

INTERPRETER = re.compile(
    r"(python|pypy|ruby|perl|lua|php)[\d.]*|node(js)?|deno|bun|julia|R(script)?|(ba|da|z|k)?sh"
    r"|[gm]?awk|octave(-cli)?|gnuplot|ocaml|scala|groovy"
)
"""Programs that carry out what they read: a file, or else a pipe."""

CONSOLES = frozenset(("sqlite", "sqlite3", "duckdb", "psql", "mysql", "gdb", "bc", "ghci"))
"""Programs that carry out words and a pipe even if they are given a file."""

MODULE_OPTION = "-m"
FLAG = re.compile(
    r"-([bBdfOPqsuvwx]+|[WX].+)"
    r"|--(?!.*(eval|exec|require|import|load|print|command))[\w-]+(=.*)?"
)
"""Options that run no code, of Python above all; others may.

Not `-i`, which runs a pipe too, nor those by which Python leaves out what confines its children.
"""

SHELL_FLAG = re.compile("-[efuvxl]+|--(login|norc|noprofile|posix)")
WITH_ARGUMENT = ("-W", "-X", "-t")
RUN = ("deno", "bun")
"""Interpreters whose first argument may be `run`, before the file."""

COMPILER = re.compile(
    r"([\w.]+-)*(gcc|g\+\+|cc|c\+\+|cpp|clang|clang\+\+|gfortran|flang|ifort|ifx|icx|icpx)(-[\d.]+)?"
)
COMPILERS = frozenset(
    (
        *("rustc", "javac", "kotlinc", "scalac", "swiftc", "nvcc", "hipcc", "ghc", "tsc", "fpc"),
        *("mpicc", "mpicxx", "mpic++", "mpif90", "mpifort", "ocamlopt", "nasm", "cython", "f2py"),
        *("ld", "ar", "as", "nm", "ranlib", "strip", "objdump", "ldd"),
    )
)
BUILD_FILES = {
    "make": MAKEFILES,
    "cmake": ("CMakeLists.txt",),
    "ninja": ("build.ninja",),
    "meson": ("meson.build",),
    "cargo": ("Cargo.toml",),
    "go": ("go.mod",),
    "npm": ("package.json",),
}
"""Of tools that read the files beside the code that starts them: what lies there then."""

BUILDERS = frozenset(("cargo", "go", "cmake", "ninja", "meson"))
FILE_TOOLS = frozenset(("cp", "mv", "rm"))
RUNNERS = frozenset(
    (
        *("cargo", "go", "npm", "npx", "yarn", "pnpm", "bazel", "dotnet", "mvn", "gradle", "cabal"),
        *("stack", "mix", "swift", "zig", "sbt", "uv", "uvx", "poetry", "pixi", "conda", "hatch"),
        "tox",
    )
)
"""Tools that can build what lies in a folder and run it, in one step."""

RUNNING = frozenset(("run", "test", "bench", "generate", "tool", "install", "-P", "-E"))
"""Words by which a builder also runs what it has built, or a script."""

SYSTEM_TOOLS = frozenset(
    (
        *("cat", "cp", "mv", "rm", "ln", "ls", "mkdir", "rmdir", "touch", "chmod", "head", "tail"),
        *("sort", "uniq", "wc", "tr", "cut", "tee", "grep", "diff", "cmp", "sed", "jq", "xxd"),
        *("echo", "printf", "true", "false", "test", "[", "sleep", "date", "pwd", "which", "file"),
        *("uname", "nproc", "free", "lscpu", "basename", "dirname", "md5sum", "sha1sum"),
        *("sha256sum", "sha512sum", "gzip", "gunzip", "tar", "zip", "unzip", "curl", "wget"),
        *("docker", "podman", "nvidia-smi", "rocm-smi"),
    )
)
SHELL_WORDS = frozenset(
    (
        *(":", "case", "cd", "done", "esac", "exit", "export", "fi", "for", "local", "read"),
        *("return", "set", "shift", "ulimit", "umask", "unset", "wait", "}"),
    )
)
CODE_VARIABLES = (
    *("PYTHONPATH", "PYTHONSTARTUP", "NODE_PATH", "PERL5LIB", "RUBYLIB", "CLASSPATH"),
    *("LD_PRELOAD", "LD_LIBRARY_PATH"),
)
SEARCHED = re.compile(r".*(PATH|LIB|PRELOAD|OPTIONS|OPT|STARTUP|ENV)")
"""Names of variables by which programs find modules, libraries and other programs."""


def is_tool(words: Sequence[str]) -> bool:
    """Whether a command runs no code that it finds, beyond what its words name."""
    name = os.path.basename(words[0])
    if name in BUILDERS:
        return RUNNING.isdisjoint(words)
    return name in SYSTEM_TOOLS | SHELL_WORDS or is_compiler(words)


def is_builder(words: Sequence[str]) -> bool:
    """Whether a command makes, replaces or removes files under names that only it knows."""
    name = os.path.basename(words[0])
    return name in BUILDERS or name in MAKE or name in FILE_TOOLS or is_compiler(words)


def is_compiler(words: Sequence[str]) -> bool:
    """Whether a command may read code from a pipe, which includes files of its choice."""
    name = os.path.basename(words[0])
    return name in COMPILERS or COMPILER.fullmatch(name) is not None


def is_interpreter(words: Sequence[str]) -> bool:
    """Whether a command carries out what it reads."""
    name = os.path.basename(words[0])
    return name in CONSOLES or INTERPRETER.fullmatch(name) is not None


def files_run(words: Sequence[str]) -> list[str]:
    """The files that an interpreter may run by its words; none if it is given code, or a pipe."""
    name = os.path.basename(words[0])
    if name in CONSOLES:
        return []
    flag = SHELL_FLAG if SHELL.fullmatch(name) else FLAG
    rest = iter(words[2:] if name in RUN and words[1:2] == ["run"] else words[1:])
    for word in rest:
        if word == MODULE_OPTION:
            place = os.path.join(*next(rest, "").split("."))
            return [f"{place}.py", os.path.join(place, "__main__.py")]
        if word in WITH_ARGUMENT:
            next(rest, "")
        elif word[:1] != "-":
            return [word]
        elif not flag.fullmatch(word):
            return []
    return []
