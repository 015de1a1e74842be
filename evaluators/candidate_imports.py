"""Tells whether an evaluator may run its candidate in its own process, by reading its sources.

The names in its code decide. A wrong guess asks the user once more, so what may do it counts.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path, PurePosixPath

from costada.evaluators.folder_files import referred_names
from costada.evaluators.import_paths import imported_modules
from costada.evaluators.sandbox.inside.command_words import CODE_VARIABLES, RUNNERS
from costada.values.program_form import language_of
from costada.values.python_syntax import parsed_module

IMPORTING = frozenset(
    (
        *("importlib", "runpy", "import_module", "run_path", "run_module", "__import__"),
        *("spec_from_file_location", "module_from_spec", "SourceFileLoader", "imp", "load_module"),
        *("exec", "execfile", "builtins", "__builtins__", "run_shinka_eval", "multiprocessing"),
        *("pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"),
        *("read_pickle", "unsafe_load", "unsafe_load_all", "UnsafeLoader"),
        *("ctypes", "ctypeslib", "cffi", "cppyy", "cpp_extension"),
        *("load_library", "addsitedir", "pkgutil", "zipimport"),
        *("pytest", "TestLoader", "defaultTestLoader", "importfile", "InteractiveInterpreter"),
        *("InteractiveConsole", "cProfile", "runctx", "pdb", "doctest"),
        *("sympify", "parse_expr", "lambdify"),
    )
)
"""Names by which an evaluator may run its candidate in its own process, or in a fork of that.

Data in some formats is code, and the candidate may have written it; so are libraries.
"""

BUILTINS = frozenset(("compile", "eval"))
"""The same by themselves, but not as methods: `re.compile` and `model.eval` run no text."""

ADMITTING = re.compile(
    rf"\b({'|'.join(CODE_VARIABLES)})\b"
    r"|\bsys\.path\b(?!.*__file__)|\ballow_pickle\b(?!\s*=\s*False)|\bweights_only\s*=\s*False"
)
"""Texts by which `import`, or loading data, may do the same."""

TIMERS = frozenset(("timeit.timeit", "timeit.repeat", "timeit.Timer"))
LOADERS = TIMERS | {
    *("yaml.load", "yaml.load_all", "torch.load", "torch.serialization.load", "torch.jit.load"),
    *("keras.models.load_model", "keras.saving.load_model", "logging.config.fileConfig"),
    *("tensorflow.keras.models.load_model", "tensorflow.keras.saving.load_model"),
}
"""Functions that run code in what they load, unless an argument says otherwise."""

READERS = frozenset(
    ("jinja2.Template", "mako.template.Template", "numexpr.evaluate", "pandas.eval", "sympy.S")
)
"""Functions that run code in the text that they are given."""

READING_METHODS = {"eval": "pandas", "from_string": "jinja2", "query": "pandas"}
"""Names of methods that do, and the package that a source with such objects imports."""

TIMED = (None, "stmt", "setup")
"""Keywords of timers that may hold code; `**` may hold each of them."""

WEIGHTS_ONLY = "weights_only"
SAFE_LOADERS = ("yaml.SafeLoader", "yaml.CSafeLoader")
RUNNER = f"({'|'.join(sorted(RUNNERS))})"
RUNNER_PATH = re.compile(rf"(\S*/)?{RUNNER}")
RUNNER_COMMAND = re.compile(
    rf"(^|[;&|(])\s*(\S*/)?{RUNNER}\s+(run|test|bench|build|exec|start|x|\./|-)", re.MULTILINE
)
"""A tool that builds what lies in a folder and runs it, in one step."""

MODULE_SUFFIX, PACKAGE_FILE = ".py", "__init__"

SCRIPTED = ("JavaScript", "TypeScript", "Ruby", "Perl", "PHP", "Lua", "R", "Julia")
"""Languages whose programs may load the file that they are given."""

FOREIGN_PROGRAM = re.compile(rb"\x7fELF|#!(?!.*\b(python[\d.]*|(ba|da|z|k)?sh)\b)")
MAX_LINE_BYTES = 4096


def may_import_candidate(sources: Iterable[str]) -> bool:
    """Whether an evaluator of these sources may run its candidate in its own process."""
    texts = [*sources]
    if any(referred_names(text) is None for text in texts):
        return True
    trees = [[*ast.walk(parsed_module(text))] for text in texts]
    functions = {node.name for tree in trees for node in tree if isinstance(node, ast.FunctionDef)}
    if any(_may_run_what_it_reads(text, functions) for text in texts):
        return True
    return _may_import_what_it_writes(texts)


def may_load_candidate(path: Path) -> bool:
    """Whether a file of an evaluator is a program that may load the candidate, and is not read.

    Python is read by `may_import_candidate`, and a shell only starts processes. A file that this
    user cannot read is not copied for the evaluator.
    """
    try:
        with path.open("rb") as file:
            first = file.readline(MAX_LINE_BYTES)
    except PermissionError:
        return False
    return language_of(path.name).name in SCRIPTED or bool(FOREIGN_PROGRAM.match(first))


def _may_run_what_it_reads(source: str, functions: Set[str]) -> bool:
    """Whether a source may run code that it finds, beside the functions of all sources."""
    names = referred_names(source)
    if names is None or names & IMPORTING or ADMITTING.search(source):
        return True
    nodes = [*ast.walk(parsed_module(source))]
    if any(map(_starts_runner, nodes)):
        return True
    known = dict(_imported_names(nodes))
    if any(isinstance(node, ast.Name) and node.id in BUILTINS & names - {*known} for node in nodes):
        return True
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    texts = {*_own_texts(nodes)}
    packages = {name.partition(".")[0] for name in names}
    if any(_runs_text(call, known, packages, texts) or _unpickles(call, known) for call in calls):
        return True
    functions = functions - {*_set_names(nodes)}
    safe = {
        id(call.func)
        for call in calls
        if _loads_data(call, known) or _times_own(call, known, functions)
    }
    return any(_called(node, known) in LOADERS and id(node) not in safe for node in nodes)


def _starts_runner(node: ast.AST) -> bool:
    """Whether a node is a command by which a tool runs what it has built."""
    match node:
        case (
            ast.List(elts=[ast.Constant(value=str(word)), *_])
            | ast.Tuple(elts=[ast.Constant(value=str(word)), *_])
        ):
            return RUNNER_PATH.fullmatch(word) is not None
        case ast.Constant(value=str(text)):
            return RUNNER_COMMAND.search(text) is not None
    return False


def _imported_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """What each imported name stands for."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for each in node.names:
                name = each.asname or each.name.partition(".")[0]
                yield name, each.name if each.asname else name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                yield each.asname or each.name, f"{node.module}.{each.name}"


def _set_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names of parameters and variables, which may stand for anything."""
    for node in nodes:
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name


def _called(node: ast.AST, known: dict[str, str]) -> str:
    """The function or module that an expression names; empty if it is another expression."""
    match node:
        case ast.Name(id=name):
            return known.get(name, "")
        case ast.Attribute(value=owner, attr=name):
            return f"{_called(owner, known)}.{name}"
    return ""


def _own_texts(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The variables that are set once, to a literal of the source."""
    times_set = Counter(_set_names(nodes))
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant()):
                if times_set[name] == 1:
                    yield name


def _runs_text(
    call: ast.Call, known: dict[str, str], packages: Set[str], own_texts: Set[str]
) -> bool:
    """Whether a function runs code that is not a string literal of the source."""
    is_method = isinstance(call.func, ast.Attribute) and (
        READING_METHODS.get(call.func.attr) in packages
    )
    if not is_method and _called(call.func, known) not in READERS:
        return False
    given = call.args[:1] or [each.value for each in call.keywords]
    return not all(
        isinstance(each, ast.Constant) or (isinstance(each, ast.Name) and each.id in own_texts)
        for each in given
    )


def _unpickles(call: ast.Call, known: dict[str, str]) -> bool:
    """Whether the third argument of `numpy.load`, `allow_pickle`, may be true."""
    if _called(call.func, known) != "numpy.load":
        return False
    match call.args:
        case [_, _, ast.Constant(value=False), *_]:
            return False
    return len(call.args) > 2 or any(isinstance(each, ast.Starred) for each in call.args)


def _loads_data(call: ast.Call, known: dict[str, str]) -> bool:
    """Whether the arguments of a loader say that it runs no code."""
    options = {each.arg: each.value for each in call.keywords}
    if isinstance(weights := options.get(WEIGHTS_ONLY), ast.Constant) and weights.value is True:
        return True
    return any(_called(each, known) in SAFE_LOADERS for each in [*call.args, *options.values()])


def _times_own(call: ast.Call, known: dict[str, str], functions: Set[str]) -> bool:
    """Whether a timer is given only code that the evaluator itself has in its text."""
    given = [*call.args, *(each.value for each in call.keywords if each.arg in TIMED)]
    is_own = all(
        isinstance(each, ast.Lambda | ast.Constant)
        or (isinstance(each, ast.Name) and known.get(each.id, each.id).split(".")[-1] in functions)
        for each in given
    )
    return is_own and _called(call.func, known) in TIMERS


def _may_import_what_it_writes(sources: Iterable[str]) -> bool:
    """Whether a module is also named as a file, which may be a copy of the candidate by then."""
    imported, files = set[str](), list[str]()
    for source in sources:
        imported |= {name.rpartition(".")[2] for name in imported_modules(source)}
        for node in ast.walk(parsed_module(source)):
            match node:
                case ast.Constant(value=str(text)):
                    files.append(text)
                case ast.JoinedStr(values=[*_, ast.Constant(value=str(text))]):
                    files.append(text)
    paths = (PurePosixPath(text) for text in files if text.endswith(MODULE_SUFFIX))
    return any(
        (path.parent.name if path.stem == PACKAGE_FILE else path.stem) in imported for path in paths
    )
