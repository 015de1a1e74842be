"""Improves one function each of three packages, with their own tests as the gate.

    python bench/repositories.py [--before COMMIT] [--package NAME]

The source distributions are downloaded by pip, and a benchmark of ours is added to each. A scripted
model answers with changes that break a test, are not Python, or change nothing, and with one that
is known to be good. For each package the script prints the tokens of the first prompt, with those
at an earlier commit if one is given, the functions in focus, the score of the start and of the
result in benchmark runs per second, and whether the package's tests pass in a clean checkout after
`git apply` of what `costada diff` prints.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from costada import discover
from costada.evaluators.focus import with_focus
from costada.evaluators.folders import load_folder
from costada.models.reply_content import estimated_usage
from costada.nodes.attempts import first_prompt
from costada.nodes.calls.bounds import prompt_tokens

ROOT = Path(__file__).resolve().parent.parent
TIMED = """

best = None
for _ in range(7):
    begun = time.perf_counter()
    run()
    spent = time.perf_counter() - begun
    best = spent if best is None else min(best, spent)
print("score:", 1 / best)
"""
PROMPT = """
import json, sys
sys.meta_path[:] = [each for each in sys.meta_path if "editable" not in str(each)]
sys.path.insert(0, sys.argv[1])
from costada.evaluators.folders import load_folder
from costada.nodes.attempts import first_prompt
prompt = first_prompt(load_folder(sys.argv[2]))
print(json.dumps([prompt.system, prompt.user]))
"""


@dataclass(frozen=True)
class Package:
    """A package, what is timed of it, and a good change.

    Attributes:
        name: Name and version for pip.
        edited: Pattern of the files that candidates may change.
        bench: Defines `run`, which is timed.
        test: The command that runs its tests.
        function: What is changed, as `path::name`.
        good: A faster text of that function.
        bad: A wrong text, which the tests or the benchmark refuse.
    """

    name: str
    edited: str
    bench: str
    test: str
    function: str
    good: str
    bad: str


PACKAGES = (
    Package(
        name="boltons==26.2.0",
        edited="boltons/*.py",
        bench="""
import time
from boltons.iterutils import remap

ROWS = {f"a{i}": [{"x": j, "y": (j, str(j))} for j in range(20)] for i in range(30)}


def run():
    remap(ROWS)
""",
        test="python -m pytest -q -p no:cacheprovider tests/test_iterutils.py",
        function="boltons/iterutils.py::default_enter",
        good='''
def default_enter(path, key, value):
    """Look at exact types first, which takes no abstract classes."""
    kind = type(value)
    if kind is int or kind is str or kind is float or kind is bytes:
        return value, False
    if kind is dict:
        return {}, value.items()
    if kind is list or kind is tuple:
        return kind(), enumerate(value)
    if isinstance(value, (str, bytes)):
        return value, False
    if isinstance(value, Mapping):
        return value.__class__(), ItemsView(value)
    if isinstance(value, (Sequence, Set)):
        return value.__class__(), enumerate(value)
    return value, False
''',
        bad="\ndef default_enter(path, key, value):\n    return value, False\n",
    ),
    Package(
        name="sortedcontainers==2.4.0",
        edited="sortedcontainers/*.py",
        bench="""
import time
from sortedcontainers import SortedList

NUMBERS = SortedList(range(100_000))
if NUMBERS.copy() != NUMBERS:
    raise SystemExit("a copy differs")


def run():
    NUMBERS.copy()
""",
        test="python -m pytest -q -p no:cacheprovider --doctest-modules sortedcontainers",
        function="sortedcontainers/sortedlist.py::SortedList.copy",
        good='''
def copy(self):
    """Copy the sublists as they are, without sorting their values again."""
    made = self.__class__()
    made._lists = [values.copy() for values in self._lists]
    made._maxes = self._maxes.copy()
    made._len, made._load = self._len, self._load
    return made
''',
        bad="\ndef copy(self):\n    return self.__class__()\n",
    ),
    Package(
        name="toolz==1.2.0",
        edited="toolz/*.py",
        bench="""
import time
from toolz.itertoolz import frequencies

WORDS = [f"word{number % 97}" for number in range(50_000)]


def run():
    frequencies(WORDS)
""",
        test="python -m pytest -q -p no:cacheprovider toolz/tests/test_itertoolz.py",
        function="toolz/itertoolz.py::frequencies",
        good='''
def frequencies(seq):
    """Count with `collections.Counter`, whose loop is in C."""
    return dict(collections.Counter(seq))
''',
        bad="\ndef frequencies(seq):\n    return dict.fromkeys(seq, 1)\n",
    ),
)


class ScriptedModel(BaseChatModel):
    """Answers with the bad changes, then with the good one, again and again."""

    answers: list[str]
    num_asked: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _get_ls_params(self, stop: Any = None, **kwargs: Any) -> Any:
        return {"ls_provider": "bench", "ls_model_name": "scripted", "ls_model_type": "chat"}

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        text = self.answers[self.num_asked % len(self.answers)]
        self.num_asked += 1
        size = sum(len(str(each.content)) for each in messages) // 3
        usage = {"input_tokens": size, "output_tokens": 500, "total_tokens": size + 500}
        message = AIMessage(content=text, usage_metadata=usage)  # type: ignore[arg-type]
        return ChatResult(generations=[ChatGeneration(message=message)])


def main() -> None:
    """Print a row for each package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", default="", help="commit whose prompts are compared")
    parser.add_argument("--package", default="", help="the only one to improve")
    given = parser.parse_args()
    print("| Package | Function | In focus | Tokens before | Tokens | Start | Result | Tests |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        before = _checkout(given.before, place) if given.before else None
        try:
            for package in (each for each in PACKAGES if given.package in each.name):
                print(_row(package, place, before), flush=True)
        finally:
            if before:
                _git(ROOT, "worktree", "remove", "--force", str(before))


def _row(package: Package, place: Path, before: Path | None) -> str:
    name = package.name.partition("==")[0]
    root = _unpacked(package.name, place)
    (root / "bench_function.py").write_text(f"{package.bench.lstrip()}{TIMED}")
    _git(root, "init", "--quiet")
    _git(root, "add", "--all")
    _git(root, "-c", "user.name=b", "-c", "user.email=b@example.org", "commit", "-qm", "All")
    settings = (
        f'repository = "{root}"\nprogram = ["{package.edited}"]\n'
        'command = "python bench_function.py"\n'
    )
    plain, folder = place / f"{name}-before", place / f"{name}-search"
    for each, more in ((plain, ""), (folder, f'test = "{package.test}"\n')):
        each.mkdir()
        (each / "problem.toml").write_text(settings + more)
        (each / "problem.md").write_text(f"Make {package.function} faster.\n")
    problem = with_focus(load_folder(folder))
    model = ScriptedModel(answers=_answers(package))
    found = discover(
        folder,
        model,
        budget=1.0,
        max_iterations=len(model.answers),
        price="1,5",
        guides="never",
        out=place / f"{name}-run",
    )
    patch = _run([sys.executable, "-m", "costada", "diff", str(place / f"{name}-run")], place)
    _git(root, "apply", "--check", "-", given=patch)
    _git(root, "apply", "-", given=patch)
    tested = _run([sys.executable, *package.test.split()[1:]], root).strip().splitlines()[-1]
    earlier = "-"
    if before is not None:
        texts = json.loads(_run([sys.executable, "-c", PROMPT, before / ".types", plain], place))
        earlier = f"{estimated_usage(texts, '').input_tokens:,}"
    return " | ".join(
        [
            f"| {package.name}",
            f"`{package.function.partition('::')[2]}`",
            ", ".join(f"`{each.partition('::')[2]}`" for each in problem.shown.functions),
            earlier,
            f"{prompt_tokens(first_prompt(problem)):,}",
            f"{problem.evaluate(problem.start).score:.1f}",
            f"{found.best_score:.1f}",
            f"{tested.strip('= ')} |",
        ]
    )


def _answers(package: Package) -> list[str]:
    """Three bad answers, and the good one between them."""
    head = f"FILE: {package.function}\n```python"
    return [
        f"{head}{package.bad}```\n",
        f"{head}{package.good.rstrip()}]\n```\n",
        f"{head}{package.good}```\n",
        "I would leave it as it is.",
    ]


def _unpacked(name: str, place: Path) -> Path:
    """The folder of a source distribution."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    _run([*pip, "--dest", str(place), name], place)
    (archive,) = place.glob(f"{name.partition('==')[0]}-*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(place, filter="data")
    return archive.with_name(archive.name.removesuffix(".tar.gz"))


def _checkout(commit: str, place: Path) -> Path:
    """The folder of an earlier commit, whose package is found below `.types`."""
    tree = place / "before"
    _git(ROOT, "worktree", "add", "--quiet", "--detach", str(tree), commit)
    (tree / ".types").mkdir()
    (tree / ".types" / "costada").symlink_to("..")
    return tree


def _git(folder: Path, *words: str, given: str = "") -> None:
    git = which("git") or "git"
    subprocess.run([git, "-C", folder, *words], check=True, input=given, text=True)


def _run(words: list[Any], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        list(map(str, words)), cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{words} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
