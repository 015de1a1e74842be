"""What a model with tools may do in a repository: look at files, and run tests, in the sandbox."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from costada.evaluators import repository_view
from costada.evaluators.repository import BUILD, TEST, RepositoryEvaluator, readable
from costada.evaluators.sandbox.candidate_results import CandidateResult
from costada.values.candidate import Program

VIEW_SECONDS = 30.0
"""Longest that looking at files may take: an expression may need much longer than a search."""

MAX_CHARS = 16_000


@dataclass(frozen=True, slots=True)
class RepositoryTools:
    """Tools for the files of a program in a copy of its repository.

    None has the network or the keys that the score command may have, as a model reads its output.
    Each runs in the sandbox, in a copy of its own, with the files of the program in place. All
    methods raise as `run_in_copy` does. What fails otherwise is part of the text.

    Attributes:
        evaluator: Evaluates the programs.
    """

    evaluator: RepositoryEvaluator

    @property
    def has_tests(self) -> bool:
        """Whether the problem names a command that tests."""
        return TEST in self.evaluator.commands

    def look(self, program: Program, tool: str, arguments: Sequence[str]) -> str:
        """What `tool`, a function of `repository_view`, prints."""
        source = Path(repository_view.__file__).read_text("utf-8")
        limits = self.evaluator.limits
        limits = replace(limits, wall_seconds=min(limits.wall_seconds, VIEW_SECONDS))
        # Isolated: no module of the repository takes the place of one that the tool imports.
        words = ["python", "-I", "-c", source, tool, *arguments]
        return self._text(replace(self.evaluator, limits=limits), program, {tool: words})

    def run_tests(self, program: Program, names: Sequence[str] = ()) -> str:
        """How the problem's tests end, and what they print last.

        With `names`, those take the place of the files and folders that the command names.
        """
        commands = self.evaluator.commands
        words = commands[TEST]
        if names:
            base = self.evaluator.base
            known = base.paths | base.folders | program.keys()
            others = [word for word in words[1:] if _path(word) not in known]
            words = [words[0], *others, *names]
        build = {BUILD: commands[BUILD]} if BUILD in commands else {}
        return self._text(self.evaluator, program, {**build, TEST: words})

    def _text(
        self,
        evaluator: RepositoryEvaluator,
        program: Program,
        commands: dict[str, list[str]],
    ) -> str:
        for path in program:
            if fault := evaluator.base.conflict(path):
                return f"The program has a file where none can be: {fault}"
        run = evaluator.run(program, commands, has_needs=False)
        text = readable(_printed(run))
        if len(text) <= MAX_CHARS:
            return text
        is_test = TEST in commands  # which tells most at its end
        return f"...\n{text[-MAX_CHARS:]}" if is_test else f"{text[:MAX_CHARS]}\n..."


def _printed(run: CandidateResult) -> str:
    """What the last command that ran has printed, after its status if it is not one that looks."""
    match run.output:
        case {"name": str(name), "status": status, "stdout": str(out), "stderr": str(errors)}:
            printed = "\n".join(filter(None, [out.strip(), errors.strip()]))
            is_look = name not in (BUILD, TEST)
            return printed if is_look else f"{name}: exit status {status}\n{printed}"
    return f"failed: {run.error}"


def _path(word: str) -> str:
    """The path that a word of a command may be."""
    return word.partition("::")[0].removeprefix("./").rstrip("/")
