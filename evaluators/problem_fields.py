"""The fields of a problem: name, type, range, default and meaning, declared once.

`problem.toml` has the keys of `ProblemSettings`, and `Problem` has all fields of `ProblemFields`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol, cast, get_args

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from costada.evaluators.data_set import Example
from costada.evaluators.sandbox.candidate_results import CandidateResult
from costada.evaluators.sandbox.commands import Commands
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot_kind import PRELOAD
from costada.values.candidate import Program
from costada.values.evaluation import Direction, Evaluation, is_storable
from costada.values.program_form import (
    NO_FOCUS,
    PYTHON,
    TEXT,
    Focus,
    ProgramForm,
    file_ending,
    find_language,
)

Evaluator = Callable[[Any], Evaluation]
"""Program in, evaluation out (F, Sec. 3). Deterministic, never a model.

It is given the source text of a program of one text, else the text of each file by path.
"""

Score = Callable[[Any], Evaluation]
"""Evaluates the plain data that a candidate returned."""

ScoreExample = Callable[[Any, Example], object]
"""Evaluates what a candidate makes of one example: a number in [0, 1], a dict with such a
`combined_score`, or an `Evaluation`."""


class HeldOutScore(Protocol):
    """Evaluates the results of the calls that were drawn from a seed."""

    def __call__(
        self, results: Sequence[CandidateResult], /, *, seed: int, published: Evaluation
    ) -> Evaluation:
        """Evaluation of the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdout:
    """Inputs drawn for each program, to detect programs that remember published answers.

    The score of a program stays the one on the published inputs. A program whose score on inputs
    of the same kind is lower by more than the margin is rejected.

    Attributes:
        calls: Draws the keyword arguments of each call from a seed.
        score: Evaluates the results of those calls, given the same `seed` and the `published`
            evaluation by name. It must count calls that fail, or a program could answer the easy
            ones only.
        margin: How far the score may fall, in units of the score.
    """

    calls: Callable[[int], Sequence[Mapping[str, object]]]
    score: HeldOutScore
    margin: float


CHARACTERS_PER_TOKEN = 3
MAX_REPEATS = 1_000
REPEATS = f"an integer of at least 1 and at most {MAX_REPEATS:,}"
GPUS = "an integer, or a fraction of one GPU"
WEIGHT = "a positive number (an objective that is minimised is subtracted)"
MAX_MODEL_NAME = 120
MODEL_NAMES = f"names of 1 to {MAX_MODEL_NAME} printable characters without spaces and commas"
SURROGATE = "surrogate"
"""Type of the error of a string that cannot be stored."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a refusal says that a field must be, beside the range that pydantic checks."""

    words: str


def _one_of(names: Sequence[str]) -> Expected:
    return Expected(f"one of {', '.join(map(repr, names))}")


def _choices(kinds: type[StrEnum]) -> Expected:
    return _one_of([kind.value for kind in kinds])


def _encodable(text: str) -> str:
    if not is_storable(text):
        raise PydanticCustomError(SURROGATE, "expected no half of a surrogate pair")
    return text


def _not_blank(text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise ValueError("expected a non-empty string")
    return text


def _whole_or_part(gpus: float) -> float:
    if gpus > 1 and gpus % 1:
        raise ValueError(f"expected {GPUS}")
    return gpus


def _nameable(models: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in models:
        if not (name.isprintable() and 0 < len(name) <= MAX_MODEL_NAME) or {" ", ","} & set(name):
            raise ValueError(f"expected {MODEL_NAMES}, got {name!r}")
    return models


def _positive_weight(weight: float) -> float:
    if weight <= 0:
        raise ValueError(f"expected {WEIGHT}")
    return weight


String = Annotated[str, AfterValidator(_encodable), Expected("a string")]
NonEmptyString = Annotated[
    str, AfterValidator(_encodable), AfterValidator(_not_blank), Expected("a non-empty string")
]
Flag = Annotated[bool, Expected("True or False")]
Command = Annotated[str | None, AfterValidator(_not_blank), Expected("a command, or None")]
Count = Annotated[int, Field(ge=1), Expected("an integer of at least 1")]
OptionalCount = Annotated[int | None, Field(ge=1), Expected("an integer of at least 1, or None")]
Repeats = Annotated[int, Field(ge=1, le=MAX_REPEATS), Expected(REPEATS)]
Error = Annotated[float, Field(ge=0, lt=1), Expected("a number of at least 0 and below 1")]
Gpus = Annotated[float, Field(ge=0), AfterValidator(_whole_or_part), Expected(GPUS)]
FiniteNumber = Annotated[float | None, Expected("a finite number")]
PositiveNumber = Annotated[float | None, Field(gt=0), Expected("a positive number")]
Weight = Annotated[float, AfterValidator(_positive_weight), Expected(WEIGHT)]
Weights = Annotated[Mapping[str, Weight], Expected("a number for each of some objectives")]
Models = Annotated[
    Mapping[str, Any],
    AfterValidator(_nameable),
    Expected(f"a model for each name; {MODEL_NAMES}"),
]
"""Models by the name that requests give."""

Aggregate = Literal["median", "mean", "min", "max"]


@dataclass(frozen=True, kw_only=True)
class ProblemSettings:
    """The fields of a problem that are keys of `problem.toml` too."""

    entry_point: Annotated[str | None, Expected("a function name")] = None
    """Function that every candidate in Python defines, and whose result `score` evaluates; with
    several files, `module:function`. Required beside a `score`."""
    build: Command = None
    """Command that builds a candidate in the sandbox; `{program}`, `{binary}` and `{folder}` stand
    for paths."""
    run: Command = None
    """Command that runs a candidate in the sandbox, once for each call, with the same names of
    paths."""
    readable: Annotated[Sequence[str], AfterValidator(tuple), Expected("a list of paths")] = ()
    """Absolute paths and patterns of files and folders, beside the system's, that what runs in the
    sandbox may read; `~` is the home folder. Programs are found in the folders, and in `bin` there.
    What is in a home folder or private is opened once you have confirmed that."""
    focus: Annotated[Sequence[str], AfterValidator(tuple), Expected("a list of functions")] = ()
    """Functions of several files in Python that prompts show in full, as `path::name` or
    `module.name`; of a repository, those that take most of the time of its `command` if absent."""
    prompt_tokens: OptionalCount = None
    """Tokens of several files that a prompt shows, at three characters each; 8000 where functions
    are in focus and 20000 elsewhere if absent."""
    direction: Annotated[Direction, Field(strict=False), _choices(Direction)] = Direction.MAXIMIZE
    """Which way `combined_score` improves; `minimize` needs a reference."""
    reference: PositiveNumber = None
    """The `combined_score` of score 1; without it, `combined_score` is the score."""
    cpus: Count = 1
    """Cores of a worker that one evaluation needs, for `--evaluate-on`."""
    gpus: Gpus = 0.0
    """GPUs that one evaluation needs, a fraction to share one. An `evaluate(program_path)`, and the
    command of a `repository`, get their device nodes, once you have confirmed that; other programs
    get none, and only what runs outside of the sandbox, such as `score`, can use one."""
    preload: Annotated[Sequence[str], AfterValidator(tuple), Expected("a list of module names")] = (
        PRELOAD
    )
    """Modules loaded before a candidate starts, so that importing them is free; SciPy's before the
    first that names it. Under `landlock`, none of an environment that `costada prepare` made."""
    sandbox: Annotated[Layer, Field(strict=False), _choices(Layer)] = Layer.AUTO
    """What confines the candidate's process."""
    allow_invalid_start: Flag = False
    """Whether a run may start although the initial program is rejected."""
    timing_metrics: Annotated[
        Sequence[str], AfterValidator(tuple), Expected("a list of metric names")
    ] = ()
    """Metrics that hold wall-clock time, beside `eval_time` and those that are named like
    `execution_time_mean` or `elapsed_seconds` and are not objectives. They are recorded, and no
    model sees them, so that prompts repeat."""
    repeats: Repeats = 1
    """Measurements of each program, at most 1,000; with several, a new best is measured again."""
    aggregate: Annotated[Aggregate, _one_of(get_args(Aggregate))] = "median"
    """How the measurements of a program are aggregated."""
    objectives: Annotated[
        Sequence[str], AfterValidator(tuple), Expected("a list of strings such as 'speed:max'")
    ] = ()
    """Metrics of which the best trade-offs are kept, each as `name:max` or `name:min`."""
    weights: Weights = field(default_factory=dict)
    """Weights of the objectives, by metric: `combined_score` is their weighted sum, those to
    minimise subtracted. Absent if the evaluator returns it."""
    racing_error: Error = 0.1
    """Largest probability of rejecting, after some of the `examples`, a candidate as good as its
    parent on all of them; 0 evaluates every candidate on every example."""
    batch: Count = 8
    """Examples that are evaluated at the same time; a race may end after each batch."""
    models: Models = field(default_factory=dict)
    """Models that the evaluator asks, by the name that its requests give: `provider:name`, a table
    with the keys of a model in `models.toml` such as `price = "IN,OUT"` (dollars per million
    tokens), or in Python a chat model. Their calls are on the ledger of the run."""
    candidate_models: Models = field(default_factory=dict)
    """Models that programs under test ask, likewise; a name may be in both tables."""
    evaluation_dollars: PositiveNumber = None
    """Most dollars that the models of one evaluation may cost, with all examples of a data set and
    its validation; the budget of the run if absent."""
    human: FiniteNumber = None
    """Best `combined_score` known from people, for reports."""
    seed_objective: FiniteNumber = None
    """`combined_score` of the initial program as recorded, for lists."""
    source: String = ""
    """Where the problem is from."""


SETTINGS_OF_PROBLEM = tuple(each.name for each in fields(ProblemSettings))


@dataclass(frozen=True, kw_only=True)
class ProblemFields(ProblemSettings):
    """All that a problem is made of, and what follows from it without a check."""

    name: NonEmptyString
    """Short name, used in reports and file names."""
    task: NonEmptyString
    """The problem in words, as shown to the model."""
    initial_program: str | Mapping[str, str] | None
    """The seed program: its text, or the text of each file by relative path. None if the first
    attempts write it from the task, as one text: until one is valid, the score is 0."""
    editable: Sequence[str] = ()
    """Patterns of the paths that candidates of several files may add, change or delete; empty if
    they have the files of the initial program and no others."""
    reserved: Sequence[str] = ()
    """Patterns of paths that no candidate has, whatever `editable` says: those of a problem
    folder's own files."""
    shown: Focus = NO_FOCUS
    """What prompts show first, as measured; see `evaluators/focus.py`."""
    language: str = PYTHON.name
    """Language of a candidate of one text, such as `Python` or `C++`."""
    file_name: str = ""
    """Name of the file of a candidate of one text that a command runs; by its language if empty."""
    interpreter: Annotated[str | None, Expected("the path of a Python, or None")] = None
    """Python interpreter that runs candidates; None for this one."""
    evaluate: Evaluator = field(default=cast(Evaluator, None))
    """The evaluator: a program in, an evaluation out. Made from `score` if that is given."""
    score: Score | None = None
    """Evaluates what the entry point returned; a `ValueError` rejects it with its message."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    """Keyword arguments of the call: numbers, strings, arrays, lists and dicts. A command takes
    `stdin`, a string, and `arguments`, a list of strings."""
    calls: Sequence[Mapping[str, object]] | None = None
    """The keyword arguments of each of several calls; `score` then gets the list of their
    `CandidateResult`s, failed ones among them."""
    holdout: Holdout | None = None
    """Held-out inputs for each valid program, with `score` and `calls`."""
    score_example: ScoreExample | None = None
    """In place of `score`, with `examples`: evaluates what a candidate makes of one example, given
    its output and the example; a `ValueError` fails it there."""
    examples: Sequence[Example] = ()
    """The examples that candidates are judged on, as plain data. Where candidates are called or
    run, `inputs` of an example are the keyword arguments of the call."""
    validation: Sequence[Example] = ()
    """Examples that no model sees; the result of a run is the best of its incumbents on them."""
    limits: Limits = field(default_factory=Limits)
    """What one evaluation may take; with `examples`, the call of each."""
    evaluations_at_once: OptionalCount = None
    """How many programs are evaluated at once; None for as many as this process may use cores, and
    for one where `repeats` says that scores are noisy. With 1, `score` and `evaluate` are never
    called by two threads at once. Evaluations by a backend are limited only by a number given here,
    and each worker by its own cores."""
    seed_evaluation: Evaluation | None = None
    """Evaluation of the initial program; a run that has it does not run it again."""
    evaluator_source: String = ""
    """The evaluator's text, shown to the guide; read from the function if empty."""
    notes: Sequence[str] = ()
    """What a reader should know of the settings, one line each; for lists and commands."""

    @property
    def scorer(self) -> Callable[..., object] | None:
        """The function that evaluates outputs of candidates; None beside an `evaluate`."""
        return self.score or self.score_example

    @property
    def start(self) -> Program:
        """The initial program; an empty text if there is none."""
        return Program.of(self.initial_program or "")

    @property
    def form(self) -> ProgramForm:
        """What the files of candidates may be."""
        start = self.start
        return ProgramForm(
            paths=() if start.is_one_text else tuple(start),
            patterns=tuple(self.editable),
            reserved=tuple(self.reserved),
            language=find_language(self.language) or TEXT,
            entry_point=self.entry_point,
            build=self.build,
            run=self.run,
            focus=replace(self.shown, functions=self.shown.functions or tuple(self.focus)),
            max_characters=self.prompt_tokens and CHARACTERS_PER_TOKEN * self.prompt_tokens,
        )

    @property
    def candidate_name(self) -> str:
        """Name of the file of a candidate of one text."""
        return self.file_name or f"candidate{file_ending('', self.language)}"

    @property
    def commands(self) -> Commands | None:
        """The commands that build and run candidates; None if these are not run by commands."""
        if self.run is None:
            return None
        return Commands(run=self.run, build=self.build, file_name=self.candidate_name)
