"""Evaluators whose candidates run in the sandbox, after a check of their syntax."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from traceback import walk_tb

from costada.evaluators.feedback import RENAMED, collecting_feedback, with_feedback
from costada.evaluators.granted_models import FunctionCall, FunctionCaller
from costada.evaluators.problem_fields import Holdout, Score
from costada.evaluators.sandbox.candidate_results import CandidateResult
from costada.evaluators.sandbox.candidate_runs import find_syntax_faults, named_files, run_calls
from costada.evaluators.sandbox.codec import Value
from costada.evaluators.sandbox.commands import Commands, run_commands
from costada.evaluators.sandbox.inside.error_reports import outage_seconds
from costada.evaluators.sandbox.inside.foreign_code import capture_exception
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.model_channel import Connect
from costada.evaluators.sandbox.slot_kind import PRELOAD
from costada.values.candidate import Program
from costada.values.evaluation import (
    COMBINED_SCORE,
    EVAL_TIME,
    EVALUATOR_FAULT,
    LOG,
    NOT_SCORED,
    REJECTED_AT,
    SANDBOX_FAULT,
    Evaluation,
    InvalidEvaluation,
    failed,
    failed_evaluator,
)
from costada.values.program_form import PYTHON, ProgramForm, language_of

CHECK_SECONDS = 10.0
"""Wall-clock limit of a check; one that takes longer finds nothing."""

LIBRARIES = ("Python", "JSON", "TOML", "YAML")
"""Languages that need no further package."""

GRAMMARS = {
    "C++": "tree_sitter_cpp.language",
    "C": "tree_sitter_c.language",
    "Rust": "tree_sitter_rust.language",
    "Go": "tree_sitter_go.language",
    "Java": "tree_sitter_java.language",
    "JavaScript": "tree_sitter_javascript.language",
    "TypeScript": "tree_sitter_typescript.language_typescript",
    "shell": "tree_sitter_bash.language",
    "Julia": "tree_sitter_julia.language",
    "Ruby": "tree_sitter_ruby.language",
}
"""Tree-sitter's grammars by language, of the packages that the extra `syntax` installs."""


def new_key() -> str:
    """A fresh secret that decides which inputs programs are given."""
    return token_hex(16)


def holdout_seed(key: str, code: str) -> int:
    """Seed of a program's held-out inputs: a hash keyed by a secret that no program can read."""
    text = code.encode("utf-8", "replace")
    return int.from_bytes(blake2b(text, key=key.encode(), digest_size=8).digest())


PACKAGE = __name__.partition(".")[0]
BENCHMARKS_PACKAGE = f"{__package__}.benchmarks."
PROCESS_KEY = new_key()
"""The secret that decides the held-out inputs of evaluations outside of runs."""


def checker_of(language: str) -> str | None:
    """What checks a language here: its library, its grammar, or nothing."""
    if language in LIBRARIES:
        return language
    grammar = GRAMMARS.get(language, "")
    module = grammar.rpartition(".")[0]
    is_there = module and find_spec("tree_sitter") and find_spec(module)
    return grammar if is_there else None


@dataclass(frozen=True, slots=True)
class SyntaxCheck:
    """Finds the first syntax error of a candidate.

    Python files are not checked where an entry point is called: loading them does that. Nor is a
    language in which the start has errors: its grammar does not know all that the compiler takes.

    Attributes:
        start: The initial program.
        form: What the files of a candidate may be.
        file_name: Name of a candidate of one text in errors.
    """

    start: Program
    form: ProgramForm
    file_name: str

    def fault(self, source: str | Program, limits: Limits, layer: Layer) -> str | None:
        """The first error with its file and line; None if there is none, or no check.

        Raises:
            InterruptedError: If the evaluation was cancelled.
            OSError: If the scratch folder cannot be made.
            RuntimeError: If the sandbox itself does not work.
        """
        languages = self.languages_of(Program.of(source))
        if not languages:
            return None
        limits = replace(limits, wall_seconds=min(limits.wall_seconds, CHECK_SECONDS))
        unchecked = _start_faults(self, limits, layer)
        for path, fault in _faults(source, self.file_name, languages, limits, layer).items():
            if languages[path] not in unchecked:
                return fault
        return None

    def languages_of(self, program: Program) -> dict[str, str]:
        """What checks each file that can be checked, by path."""
        if program.is_one_text:
            languages = {self.file_name: self.form.language}
        else:
            languages = {path: language_of(path) for path in program}
        checkers = {
            path: checker_of(language.name)
            for path, language in languages.items()
            if language != PYTHON or self.form.entry_point is None
        }
        return {path: checker for path, checker in checkers.items() if checker}


@lru_cache(maxsize=64)
def _start_faults(check: SyntaxCheck, limits: Limits, layer: Layer) -> frozenset[str]:
    """What finds errors in the initial program."""
    languages = check.languages_of(check.start)
    found = _faults(check.start.source, check.file_name, languages, limits, layer)
    return frozenset(languages[path] for path in found)


def _faults(
    source: str | Program,
    file_name: str,
    languages: Mapping[str, str],
    limits: Limits,
    layer: Layer,
) -> dict[str, str]:
    program = named_files(source, file_name)
    return {} if program.fault(limits) else find_syntax_faults(program, languages, limits, layer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confined:
    """What confines the candidates of an evaluator; a problem's own limits replace these.

    Attributes:
        connect: Serves each connection to models that a candidate opens; None if it has none.
        lacks_models: Whether the problem asks models that nobody has granted.
    """

    limits: Limits = field(default_factory=Limits)
    layer: Layer = Layer.AUTO
    preload: tuple[str, ...] = PRELOAD
    interpreter: str | None = None
    readable: tuple[str, ...] = ()
    connect: Connect | None = None
    lacks_models: bool = False

    def check_granted(self) -> None:
        """Refuse to evaluate a problem without the models that it asks.

        Raises:
            ValueError: It lacks them.
        """
        if self.lacks_models:
            raise ValueError(
                "evaluate: called for a problem with models or candidate_models, which only a run"
                " grants; expected costada evaluate or costada check for a single evaluation"
            )

    def check_confirmed(self, layer: Layer) -> None:
        """Refuse to open what the user has not confirmed, or not for this layer; AUTO: any.

        Raises:
            ValueError: The evaluator declares it, and it is not confirmed.
        """

    def check_sendable(self) -> None:
        """Refuse an evaluation in a worker, which opens nothing to the evaluator.

        Raises:
            ValueError: The evaluator declares that it needs something.
        """

    def hint(self, error: str, log: str) -> str:
        """What may help where the evaluator fails for where it runs; empty if nothing is known."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRunner(Confined, ABC):
    """Runs a candidate in the sandbox.

    Attributes:
        entry_point: The function to call; None if there is none.
        commands: The commands that build and run a candidate; if there are neither these nor an
            entry point, the output is the candidate's text.
        syntax: Finds syntax errors before anything is built or run; None for no check.
        call: Calls the functions of the problem in another process; None to call them in this one.
    """

    entry_point: str | None = None
    commands: Commands | None = None
    syntax: SyntaxCheck | None = None
    call: FunctionCaller | None = None

    @abstractmethod
    def call_here(self, called: FunctionCall, output: object) -> Evaluation:
        """What a function of the problem, called here, says of an output, or how it failed."""

    def call_function(self, called: FunctionCall, output: object) -> Evaluation:
        """What a function of the problem says of an output, or how it failed."""
        return (self.call or self.call_here)(called, output)

    def syntax_fault(self, source: str | Program) -> str | None:
        """The first syntax error of a program; raises as `SyntaxCheck.fault` does."""
        return self.syntax.fault(source, self.limits, self.layer) if self.syntax else None

    def results(
        self, source: str | Program, calls: Sequence[Mapping[str, object]]
    ) -> list[CandidateResult]:
        """What a program makes of these calls; its text where nothing runs.

        Raises:
            InterruptedError: If the evaluation was asked to stop.
            OSError: If the scratch folder cannot be made.
            RuntimeError: If the sandbox itself does not work.
            ValueError: If this machine does not offer the layer, or the models are not granted.
        """
        self.check_granted()
        if self.commands is not None:
            return run_commands(
                source,
                self.commands,
                calls,
                self.limits,
                self.layer,
                self.readable,
                self.interpreter,
                connect=self.connect,
            )
        if self.entry_point is None:
            fault = named_files(source).fault(self.limits)
            text: Value = source if isinstance(source, str) else dict(source)
            return [CandidateResult(None if fault else text, fault, "", 0.0)] * len(calls)
        return run_calls(
            source,
            self.entry_point,
            calls,
            self.limits,
            self.layer,
            self.preload,
            interpreter=self.interpreter,
            connect=self.connect,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxedEvaluator(CandidateRunner):
    """Runs a candidate in the sandbox and passes what it returns to a trusted score function.

    Attributes:
        score: Evaluates the output of the call, or the list of results if there are several calls.
        calls: Keyword arguments of each call.
        is_single: Whether `score` takes the output of the one call.
        holdout: Held-out inputs for each valid program; None for none.
    """

    score: Score
    calls: tuple[Mapping[str, object], ...]
    is_single: bool
    holdout: Holdout | None = None

    def __call__(self, source: str | Program, key: str = PROCESS_KEY) -> Evaluation:
        """Evaluate a program; `key` is the secret that decides its held-out inputs.

        The metrics hold `combined_score` and `eval_time` (seconds) beside what the score function
        reports, the artifacts what the program printed.

        Raises:
            InterruptedError: If the evaluation was asked to stop.
            OSError: If the scratch folder cannot be made.
            RuntimeError: If the sandbox itself does not work.
            ValueError: If this machine does not offer the layer.
        """
        published = self._look(source, self.calls, FunctionCall("score"))
        if self.holdout is None or not published.is_valid:
            return published
        code = source if isinstance(source, str) else source.text
        holdout, seed = self.holdout, holdout_seed(key, code)
        held_out = FunctionCall("holdout", {"seed": seed, "published": published})
        second = self._look(source, holdout.calls(seed), held_out)
        seconds = published.seconds + second.seconds
        if {EVALUATOR_FAULT, SANDBOX_FAULT} & second.artifacts.keys():
            return replace(second, seconds=seconds)
        if published.score - second.score <= holdout.margin:
            return replace(published, seconds=seconds)
        reason = (
            f"the program scores {published.score:.4g} on the published inputs and"
            f" {second.score:.4g} on others of the same kind; expected at most"
            f" {holdout.margin:g} less: compute each output from its input"
        )
        if second.error is not None:
            reason += f" ({second.error})"
        return failed(
            reason, metrics=published.metrics, artifacts=published.artifacts, seconds=seconds
        )

    def call_here(self, called: FunctionCall, output: object) -> Evaluation:
        """What a score function, called here, says of an output, or how it failed."""
        if called.name == "holdout" and self.holdout is not None:
            return score_output(partial(self.holdout.score, **called.known), output)
        return score_output(self.score, output)

    def _look(
        self, source: str | Program, calls: Sequence[Mapping[str, object]], called: FunctionCall
    ) -> Evaluation:
        """Evaluation of what a program returns for these calls."""
        score = partial(self.call_function, called)
        if (fault := self.syntax_fault(source)) is not None:
            unbuilt = CandidateResult(None, fault, "", 0.0, is_unbuilt=True)
            return evaluation_of([unbuilt] * len(calls), score, self.is_single)
        return evaluation_of(self.results(source, calls), score, self.is_single)


def evaluation_of(
    results: list[CandidateResult], score: Callable[[object], Evaluation], is_single: bool
) -> Evaluation:
    """Evaluation of the results of calls.

    Args:
        results: At least one.
        score: Evaluates them; raises only if it was asked to stop.
        is_single: Whether `score` takes the output of the one call, not the list of results.
    """
    if results[0].error is not None and (is_single or results[0].is_unbuilt):
        evaluation = failed(results[0].error)
    else:
        evaluation = score(results[0].output if is_single else results)
    log = "\n".join(dict.fromkeys(result.log for result in results if result.log))
    printed = {LOG: log} if log else {}
    own = {
        f"{RENAMED}{name}" if name in printed else name: text
        for name, text in evaluation.artifacts.items()
    }
    artifacts = {**printed, **own, **_marks(evaluation, results)}
    seconds = sum(result.seconds for result in results)
    metrics = {**evaluation.metrics, COMBINED_SCORE: evaluation.score, EVAL_TIME: seconds}
    return replace(evaluation, metrics=metrics, artifacts=artifacts, seconds=seconds)


def _marks(evaluation: Evaluation, results: list[CandidateResult]) -> dict[str, str]:
    """Marks of the evaluation of a program of which no call returned, or whose sandbox failed."""
    errors = [result.error for result in results if result.error is not None]
    broken = [result.error for result in results if result.is_sandbox_fault]
    marks = {}
    if len(errors) == len(results) and not evaluation.is_valid:
        marks[NOT_SCORED] = errors[0]
    if broken:
        marks[SANDBOX_FAULT] = broken[0] or "the sandbox broke down"
    return marks


def score_output(score: Callable[[object], object], output: object) -> Evaluation:
    """What a score function says, or what went wrong in it, with the feedback that it logs."""
    with collecting_feedback() as lines:
        evaluation = _called(score, output)
    return with_feedback(evaluation, lines)


def _called(score: Callable[[object], object], output: object) -> Evaluation:
    answer: object = None
    # No data of a candidate may end the search, not even by an exit.
    with capture_exception(also=(SystemExit,), but=(InterruptedError,)) as scoring:
        answer = score(output)
    error = scoring.error
    outage = None if error is None else outage_seconds(error)
    if isinstance(error, InvalidEvaluation):
        fault = str(error)
    elif isinstance(error, ValueError) and outage is None:
        reason = str(error) or "rejected without a reason"
        return failed(reason, artifacts={REJECTED_AT: _describe(error)})
    elif error is not None:
        fault = f"the score function failed: {_describe(error)}"
    elif not isinstance(answer, Evaluation):
        given = type(answer).__name__
        fault = f"the score function returned {given}; expected an Evaluation"
    else:
        return answer
    return failed_evaluator(fault, outage)


def _describe(error: BaseException) -> str:
    """An error with its place in the score function, not in a library or in what calls it."""
    lines = [
        (Path(frame.f_code.co_filename), number)
        for frame, number in walk_tb(error.__traceback__)
        if not _is_ours(str(frame.f_globals.get("__name__")))
    ]
    last = [each for each in lines if "site-packages" not in each[0].parts] or lines
    place = f" ({last[-1][0].name}, line {last[-1][1]})" if last else ""
    return f"{type(error).__name__}: {error}{place}"


def _is_ours(module: str) -> bool:
    """Whether a module is of this package, and not of a benchmark's evaluator."""
    return module.startswith(f"{PACKAGE}.") and not module.startswith(BENCHMARKS_PACKAGE)
