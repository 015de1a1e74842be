"""A problem as a folder: task, initial program and evaluator, each in a file of its own.

The folder holds `problem.md` (or a `config.yaml` whose `prompt` has a `system_message`),
`initial_program.py` and `evaluator.py`. There are two kinds of `evaluator.py`:

- The native one defines `score(output)`. Candidates run in the sandbox, where the entry point that
  `problem.toml` names is called with `ARGUMENTS` (or once with each of `CALLS`, if the file has
  them); what it returns is judged here, in another process.
- The other one defines `evaluate(program_path)` and returns a dict with a number under
  "combined_score", as SkyDiscover and OpenEvolve expect it; an object with `metrics` and
  `artifacts` will do too. It runs in the sandbox, in the same process as the candidate.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costada.evaluators.folder_score import is_native, read_trusted
from costada.evaluators.folder_settings import SETTINGS_FILE, FolderSettings, read_settings
from costada.evaluators.folder_texts import read_task, read_text
from costada.evaluators.folder_verdict import faulty, sort_values, text_of, verdict
from costada.evaluators.problem import Problem
from costada.evaluators.sandbox.result import CandidateResult
from costada.evaluators.sandbox.run import run_evaluator
from costada.evaluators.sandboxed import Confined
from costada.evaluators.shown_files import EVALUATOR_FILE, shown_files
from costada.values.evaluation import NO_VERDICT, SANDBOX_FAULT, Evaluation, failed

UNSEEN = ("FileNotFoundError", "PermissionError")
UNSEEN_HINT = (
    "\nAn evaluator sees the files of its folder that its code imports or names; declare others as"
    f" files in {SETTINGS_FILE}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderEvaluator(Confined):
    """Judges candidates by the `evaluate` of a folder, run in the sandbox.

    Attributes:
        folder: Where `evaluator.py` lies; its neighbours can be imported from it.
        settings: The folder's settings.
    """

    folder: Path
    settings: FolderSettings

    def decided_by(self) -> tuple[object, ...]:
        """Return what the verdicts depend on besides the limits: every file of the folder."""
        return (self.folder,)

    def __call__(self, code: str) -> Evaluation:
        """Return the verdict on a program; raises as `SandboxedEvaluator` does."""
        files = self.settings.files
        run = run_evaluator(code, self.folder, self.limits, self.layer, self.preload, files)
        return judge(run, self.settings)


def load_folder(path: str | Path) -> Problem:
    """Return the problem that a folder describes.

    Raises:
        ValueError: Naming the file that is missing, empty or malformed.
    """
    folder = Path(path).resolve()
    if not folder.is_dir():
        raise ValueError(f"{path} is not a folder; expected one with problem.md")
    texts: dict[str, Any] = {
        "task": read_task(folder),
        "initial_program": read_text(folder / "initial_program.py"),
        "evaluator_source": read_text(folder / EVALUATOR_FILE),
    }
    settings = read_settings(folder / SETTINGS_FILE)
    judging = _judging(folder, texts["evaluator_source"], settings)
    try:
        return Problem(**texts, **judging, **_fields(folder, settings))
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def _fields(folder: Path, settings: FolderSettings) -> dict[str, Any]:
    """Return the fields of a problem that its settings say as they are."""
    names = ("entry_point", "limits", "sandbox", "preload", "direction", "reference", "human")
    plain = {name: getattr(settings, name) for name in (*names, "allow_invalid_start")}
    return {**plain, "name": settings.name or folder.name, "source": settings.source}


def _judging(folder: Path, source: str, settings: FolderSettings) -> dict[str, Any]:
    """Return the fields of a problem that say how it judges candidates."""
    if not is_native(source):
        shown_files(folder, settings.files)
        return {"evaluate": FolderEvaluator(folder=folder, settings=settings)}
    if settings.entry_point is None:
        raise ValueError(
            f"{folder / SETTINGS_FILE}: entry_point is missing; needed where {EVALUATOR_FILE}"
            " defines score(output)"
        )
    trusted = read_trusted(folder / EVALUATOR_FILE, settings)
    return {"score": trusted.score, "arguments": trusted.arguments, "calls": trusted.calls}


def judge(run: CandidateResult, settings: FolderSettings) -> Evaluation:
    """Return the verdict that the answer of an `evaluate(program_path)` amounts to.

    Numbers become metrics; texts, None and numbers that are not finite become artifacts.
    """
    log = {"log": run.log} if run.log else {}
    if run.error is not None and run.is_own_fault:
        mark = SANDBOX_FAULT if run.is_sandbox_fault else NO_VERDICT
        artifacts = log | {mark: run.error}
        return failed(run.error, artifacts=artifacts, seconds=run.seconds)
    if run.error is not None:
        hint = UNSEEN_HINT if run.error.startswith(UNSEEN) else ""
        return faulty(f"evaluator.py failed: {run.error}{hint}", {}, log, run.seconds)
    match run.output:
        case {"metrics": dict(values), "artifacts": dict(texts)}:
            metrics, others = sort_values(values)
            artifacts = log | others | {name: text_of(text) for name, text in texts.items()}
            return verdict(metrics, artifacts, settings, run.seconds)
    return verdict({}, log, settings, run.seconds)
