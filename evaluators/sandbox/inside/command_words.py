"""Tells which commands run no foreign code, and which file an interpreter runs."""

import os
import re
from collections.abc import Sequence

from costada.evaluators.sandbox.inside.evaluator_scripts import MAKEFILES, SHELL

INTERPRETER = re.compile(
    r"(python|pypy|ruby|perl|lua|php)[\d.]*|node(js)?|deno|bun|julia|R(script)?|(ba|da|z|k)?sh"
    r"|sqlite3?|duckdb|psql|mysql|gdb|[gm]?awk|bc|octave(-cli)?|gnuplot|ghci|ocaml|scala|groovy"
)
"""Programs that carry out what they read, perhaps from a pipe."""

MODULE_OPTION = "-m"
FLAG = re.compile(
    r"-([bBdEfiIOPqsSuvwx]+|[WX].+)"
    r"|--(?!.*(eval|exec|require|import|load|print|command))[\w-]+(=.*)?"
)
"""Options that run no code, of Python above all; others may."""

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

TOOLS = COMPILERS | SYSTEM_TOOLS | SHELL_WORDS


def is_tool(words: Sequence[str]) -> bool:
    """Whether a command runs no code that it finds, beyond what its words name."""
    name = os.path.basename(words[0])
    if name in BUILDERS:
        return RUNNING.isdisjoint(words)
    return name in TOOLS or COMPILER.fullmatch(name) is not None


def files_run(words: Sequence[str]) -> list[str]:
    """The files that an interpreter may run by its words; none if it is given code, or a pipe."""
    name = os.path.basename(words[0])
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
