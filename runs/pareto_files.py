"""The folder `pareto` of a run with several objectives: the programs of its Pareto front."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path, PurePath

from costada.evaluators.problem import Problem
from costada.store.files import remove_unfinished, replace_folder
from costada.store.run_store import RunStore
from costada.values.candidate import Candidate
from costada.values.evaluation import objective_values, read_objectives
from costada.values.program_form import invalid_path_reason

INDEX = "front.json"
LAST = 2**62
"""A number of changes of the archives that no run reaches."""


class ParetoFolder:
    """Keeps the folder `pareto` of a run as the store has its front."""

    def __init__(self, path: Path, problem: Problem, store: RunStore) -> None:
        self._path, self._problem, self._store = path, problem, store
        self._written: list[str] = []
        remove_unfinished(self._path)

    def update(self, run_id: str) -> None:
        """Replace the folder if the front has changed; a run of one objective has none.

        Raises:
            OSError: It cannot be written.
        """
        if not self._problem.objectives:
            return
        front = self._store.candidates.front(run_id, LAST)
        names = [each.id for each in front]
        if names != self._written:
            replace_folder(self._path, front_files(front, self._problem))
            self._written = names


def front_files(front: Sequence[Candidate], problem: Problem) -> dict[str, str]:
    """The texts of the folder by path: the programs by candidate, and what each one is worth.

    The index lists them by score, the best first; a program of several files is a folder.

    Raises:
        ValueError: A run file from elsewhere names a candidate or a file outside of the folder.
    """
    objectives, files = read_objectives(problem.objectives), dict[str, str]()
    listed = []
    for each in sorted(front, key=lambda each: -each.score):
        ending = PurePath(problem.candidate_name).suffix if each.program.is_one_text else ""
        name = f"{each.id}{ending}"
        for path, text in each.program.items():
            files[name if each.program.is_one_text else f"{name}/{path}"] = text
        values = objective_values(objectives, each.metrics)
        listed.append({"program": name, "score": each.score, "objectives": values})
    for path in files:
        if fault := invalid_path_reason(path):
            raise ValueError(f"the Pareto front has a file {path!r}; expected {fault}")
    files[INDEX] = json.dumps(listed, indent=2) + "\n"
    return files
