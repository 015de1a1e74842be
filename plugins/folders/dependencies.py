"""What a problem folder needs that is not installed, found before anything of it runs.

Python files are parsed, never imported, and `requirements.txt` is read line by line. A package has
one name to import it by and another one to install it by; where nothing says the second, none is
guessed: anyone may register a package under any free name.
"""

import ast
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import distributions
from itertools import product
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from costada.evaluators.environment import environment_folder
from costada.evaluators.folder_files import MAX_LEVELS
from costada.evaluators.folder_layout import IN_RUN, Layout, MissingDependencies
from costada.evaluators.folder_settings import FolderSettings
from costada.evaluators.folders import ProblemFolder
from costada.evaluators.import_paths import import_folders, module_files
from costada.evaluators.initial_program import InitialProgram
from costada.evaluators.sandbox.interpreter import (
    Interpreter,
    interpreter_at,
    own_interpreter,
)
from costada.plugins.folders.compat_modules import PACKAGES
from costada.plugins.folders.requirements_file import (
    REQUIREMENTS_FILE,
    RequirementLine,
    requirement_lines,
)
from costada.values.path_words import path_word
from costada.values.program_form import PYTHON
from costada.values.python_syntax import parsed_module

PREPARE = "costada prepare"
UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)

INSTALLED_AS = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "PIL": "pillow",
    "Stemmer": "pystemmer",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "git": "gitpython",
    "igraph": "python-igraph",
    "ot": "pot",
    "pysat": "python-sat",
    "pywt": "pywavelets",
    "rdkit": "rdkit",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "skopt": "scikit-optimize",
    "umap": "umap-learn",
    "yaml": "pyyaml",
}
"""Well-known packages that are installed by another name than they are imported by."""

WELL_KNOWN = """
aiohttp anthropic autograd bm25s botorch cma cvxopt cvxpy cython dask datasets deap diffrax
diskcache dspy einops equinox evosax flask flax gurobipy gymnasium h5py highspy httpx hypothesis
imageio jax jaxlib joblib lightgbm litellm llvmlite lxml matplotlib mip mlx mlx_lm mpmath msgpack
networkx nevergrad nltk numba numexpr numpy openai openpyxl optax optuna orjson ortools pandas
plotly polars psutil pulp pyarrow pydantic pygame pymoo pyomo pytest requests rich scipy seaborn
sentence_transformers shapely simpy sortedcontainers spacy statsmodels sympy tabulate tensorflow
tiktoken tokenizers toml torch torchaudio torchvision tqdm transformers trimesh triton ujson xgboost
z3
"""
"""Well-known packages that are installed by the name they are imported by."""


@dataclass(frozen=True, slots=True)
class MissingPackages:
    """What is missing for a folder's evaluator and initial program.

    Attributes:
        missing: Modules that are imported as soon as a file is loaded, and are not installed.
        later: Others that a function imports.
        unmet: Lines of `requirements.txt` that what is installed does not meet.
        requirements: The lines of all files of requirements.
        nearby: Missing modules that lie above the folder, each with its file and a hint.
    """

    missing: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    requirements: tuple[RequirementLine, ...] = ()
    nearby: Mapping[str, str] = field(default_factory=dict)

    @property
    def are_met(self) -> bool:
        """Whether nothing is missing, as far as that can be read without an installer."""
        return not (self.missing or self.later or self.unmet)

    def packages(self, modules: Sequence[str]) -> tuple[str, ...]:
        """What to install for some modules that no line of requirements names."""
        named = {canonicalize_name(_name(line)) for line in self.unmet}
        found = [installed_as(module) for module in modules if module not in self.nearby]
        return tuple(name for name in found if name and canonicalize_name(name) not in named)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Missing modules that no known package provides."""
        named = {canonicalize_name(_name(line)) for line in self.unmet}
        return tuple(
            module
            for module in self.missing
            if installed_as(module) is None
            and canonicalize_name(module) not in named
            and module not in self.nearby
        )

    def described(self, folder: Path) -> str:
        """What is missing and how to install it; empty if no required module is."""
        if not self.missing:
            return ""
        text = f"needs {_listed(self.missing)}"
        wanted = {canonicalize_name(installed_as(each) or each): each for each in self.missing}
        refused = {line.text for line in self.requirements if line.fault}
        unmet = [each for each in self.unmet if each not in refused]
        lines = [each for each in unmet if canonicalize_name(_name(each)) in wanted]
        packages = [*lines, *self.packages(self.missing)]
        if packages:
            text += f": pip install {shlex.join(packages)}, or {PREPARE} {path_word(folder)}"
        if self.unknown:
            named = _listed(self.unknown)
            text += (
                f"; no known package provides {named}: {PREPARE} {path_word(folder)} --with PACKAGE"
            )
        return "; ".join([text, *self.nearby.values()])


def missing_dependencies(found: ProblemFolder) -> MissingDependencies:
    """What the Python that evaluates a folder lacks, in words."""
    interpreter, folder = found.interpreter, found.layout.folder
    python = interpreter_at(interpreter) if interpreter else own_interpreter()
    needs = needs_of(found.layout, found.settings, found.program, python)
    lacking = [*needs.missing, *(f"{name} (in a function)" for name in needs.later)]
    place = str(environment_folder(folder)) if interpreter else "installed here"
    facts = {"needs": f"lacks {', '.join(lacking)}" if lacking else f"nothing more ({place})"}
    if needs.unmet:
        facts["not installed"] = f"{', '.join(needs.unmet)} (in requirements.txt)"
    if options := [line.refusal for line in needs.requirements if line.fault and line.is_option]:
        facts["not followed"] = "; ".join(options)
    return MissingDependencies(needs.described(folder), facts)


def needs_of(
    layout: Layout, settings: FolderSettings, program: InitialProgram, python: Interpreter
) -> MissingPackages:
    """What the evaluator and the initial program of a folder need and an interpreter lacks.

    An evaluator that runs in this process has been loaded here, so it lacks nothing.

    Raises:
        ValueError: If the settings declare files that cannot be shown.
    """
    source = program.source or ""
    files = {"program.py": source} if isinstance(source, str) else source
    is_native = layout.contract in IN_RUN
    # Where score evaluates the text itself, nothing of the program runs.
    is_run = not is_native or settings.entry_point is not None or settings.run is not None
    is_python = is_run and program.language == PYTHON.name
    sources = [text for path, text in files.items() if path.endswith(".py") and is_python]
    folders = [layout.folder, layout.evaluator.parent]
    if not is_native:
        shown = layout.evaluator_file(settings).shown()
        loaded = _loaded(layout.evaluator, shown)
        sources += loaded.values()
        folders += [path.parent for path in loaded]
        folders += [each for path, text in loaded.items() for each in import_folders(text, path)]
    own = [part.removesuffix(".py") for path in files for part in path.split("/")]
    found = find_needs(sources, list(dict.fromkeys(folders)), python, [*PACKAGES, "costada", *own])
    if is_native:
        return found
    return replace(found, nearby=_nearby(found.missing, layout))


def _nearby(modules: Iterable[str], layout: Layout) -> dict[str, str]:
    """The modules found in folders above a problem folder, each with its file and a hint."""
    found: dict[str, str] = {}
    for module, place in product(modules, layout.folder.parents[:MAX_LEVELS]):
        files = module_files(module, place)
        if module in found or not files:
            continue
        level = layout.evaluator.parents.index(place)
        found[module] = (
            f"{module} is {files[0]}, whose folder no code adds to the import path: copy it into"
            f" {layout.folder}, or begin {layout.evaluator.name} with"
            f" sys.path.insert(0, str(Path(__file__).resolve().parents[{level}]))"
        )
    return found


def _loaded(evaluator: Path, shown: Collection[Path]) -> dict[Path, str]:
    """Texts of an evaluator and of those files shown to it that it imports when loaded."""
    places = {str(path.with_suffix("")).removesuffix("/__init__"): path for path in shown}
    texts: dict[Path, str] = {}
    waiting = [evaluator]
    while waiting:
        path = waiting.pop()
        if path in texts:
            continue
        texts[path] = path.read_text("utf-8", "replace")
        for module in (name for name, is_certain in _imports(texts[path]) if is_certain):
            tail = f"/{module.replace('.', '/')}"
            waiting += [found for place, found in places.items() if place.endswith(tail)]
    return texts


def find_needs(
    sources: Iterable[str],
    folders: Sequence[Path],
    python: Interpreter,
    provided: Iterable[str] = (),
) -> MissingPackages:
    """What Python files and the requirements in their folders need and an interpreter lacks.

    Args:
        sources: Texts of the Python files; a file that cannot be parsed needs nothing.
        folders: Where the files import each other from.
        python: The interpreter that will run them.
        provided: Further modules that are there.
    """
    at_once: set[str] = set()
    later: set[str] = set()
    for source in sources:
        for module, is_certain in _imports(source):
            (at_once if is_certain else later).add(module.partition(".")[0])
    own = {*provided, *(name for folder in folders for name in _own_modules(folder))}
    lacking = [
        name for name in sorted(at_once | later) if name not in own and not python.has_module(name)
    ]
    files = tuple(folder / REQUIREMENTS_FILE for folder in folders)
    present = [file for file in dict.fromkeys(files) if os.path.lexists(file)]
    lines = tuple(line for file in present for line in requirement_lines(file))
    return MissingPackages(
        missing=tuple(name for name in lacking if name in at_once),
        later=tuple(name for name in lacking if name not in at_once),
        unmet=tuple(dict.fromkeys(_unmet(lines, python))),
        requirements=lines,
    )


def installed_as(module: str) -> str | None:
    """The package to install for a well-known module; None for others."""
    if module in WELL_KNOWN.split():
        return str(canonicalize_name(module))
    return INSTALLED_AS.get(module)


def _imports(source: str) -> Iterator[tuple[str, bool]]:
    """Modules that a program imports, and whether that happens when it is loaded.

    Imports under `try` and `if` are optional and do not count.
    """
    try:
        waiting: list[tuple[ast.AST, bool]] = [(parsed_module(source), True)]
    except UNPARSABLE:
        return
    while waiting:
        node, is_certain = waiting.pop()
        match node:
            case ast.Import(names=imported):
                yield from ((each.name, is_certain) for each in imported)
            case ast.ImportFrom(module=str(module), names=imported, level=0):
                yield module, is_certain
                yield from ((f"{module}.{each.name}", is_certain) for each in imported)
            case ast.Try() | ast.If():
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                is_certain = False
        waiting += [(child, is_certain) for child in ast.iter_child_nodes(node)]


def _own_modules(folder: Path) -> Iterator[str]:
    """Names of the modules and packages in a folder."""
    if folder.is_dir():
        for path in folder.iterdir():
            if path.suffix == ".py" or (path.is_dir() and path.name.isidentifier()):
                yield path.stem


def _unmet(lines: Iterable[RequirementLine], python: Interpreter) -> Iterator[str]:
    """The text of each line that no installed package meets."""
    for line in lines:
        wanted = line.requirement
        if wanted is None:
            if not line.is_option:
                yield line.text
            continue
        found = next(iter(distributions(name=wanted.name, path=[*python.libraries])), None)
        if found is None or not wanted.specifier.contains(found.version, prereleases=True):
            yield line.text


def _name(line: str) -> str:
    """The name of the package in a line of requirements."""
    try:
        return Requirement(line).name
    except InvalidRequirement:
        return line


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
