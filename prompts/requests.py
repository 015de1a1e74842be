"""What a prompt is made of: records for the templates, and the plain data beside its text."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from costada.prompts.tactics import Tactic, TriedTactic
from costada.values.candidate import Program
from costada.values.evaluation import FEEDBACK
from costada.values.numbering import Iteration
from costada.values.program_form import ProgramForm

Source = str | Mapping[str, str]
"""A program as plain data: its text, or the text of each file by path."""

KEY = "costada"
"""Key of the data in the `additional_kwargs` of a message, which are not sent to providers."""


@dataclass(frozen=True, slots=True)
class PromptData:
    """What a prompt asks for, for models that compute their answers instead of reading English.

    Attributes:
        kind: `generation`, `guide`, `labels`, `insight` or `strategy`.
        program: What to change: the parent, a guide's incumbent, or the parent strategy.
        score: The score of `program`.
        others: The inspirations.
        other_scores: Their scores.
        action: `exploration`, `exploitation` or `balanced`, also where a label asks for it.
        mode: `breakthrough` or `refinement`, of the tactic or of the tactics asked for; `user` for
            a tactic that a user gave; else "".
        approach: Approach type of the tactic; "" without one.
        idea: The tactic's idea and description.
        has_failure: Whether an attempt just before has failed.
        failed: Approach types of the tactics that have failed.
        facts: What is known of the population, by name.
        standings: One sentence on each strategy shown.
        language: Fence word of the language of a program of one text.
    """

    kind: str
    program: Source = ""
    score: float = 0.0
    others: Sequence[Source] = ()
    other_scores: Sequence[float] = ()
    action: str = "balanced"
    mode: str = ""
    approach: str = ""
    idea: str = ""
    has_failure: bool = False
    failed: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    standings: Sequence[str] = ()
    language: str = "python"

    @property
    def kwargs(self) -> dict[str, object]:
        """The `additional_kwargs` of a message."""
        return {KEY: asdict(self)}


@dataclass(frozen=True, slots=True)
class TrialData:
    """The candidate that a tool evaluated: what its answer was made of."""

    candidate: str
    score: float

    @property
    def kwargs(self) -> dict[str, object]:
        """The `additional_kwargs` of a tool's message."""
        return {KEY: asdict(self)}


def prompt_data(kwargs: Mapping[str, object]) -> PromptData | None:
    """Data in the `additional_kwargs` of a message; None if there are none."""
    found = kwargs.get(KEY)
    return PromptData(**found) if isinstance(found, dict) and "kind" in found else None


def trial_data(kwargs: Mapping[str, object]) -> TrialData | None:
    """Data in the `additional_kwargs` of a tool's message; None if there are none."""
    found = kwargs.get(KEY)
    return TrialData(**found) if isinstance(found, dict) and "candidate" in found else None


PYTHON_TEXT = ProgramForm()
"""The form of a program that is one Python text."""

ACTIONS = ("exploration", "exploitation", "balanced")
MODES = ("breakthrough", "refinement")

USER = "user"
"""Mode of a tactic that a user gave."""

DEAD_BAND = 1e-3
"""Score differences up to this size count as no change."""

LABEL_ACTIONS = {"diverge": "exploration", "refine": "exploitation"}
"""What the labels of a search strategy ask for."""

MAX_SIBLINGS = 5
MAX_PREVIOUS = 3


MAX_WORST_EXAMPLES = 3
"""Examples that are shown of a program that was judged on a data set."""


@dataclass(frozen=True, slots=True)
class ExampleView:
    """An example on which a program did badly, as a model gets to see it.

    Attributes:
        text: The example.
        score: That of the program, in [0, 1].
        feedback: What the evaluator says of it; may be empty.
    """

    text: str
    score: float
    feedback: str


@dataclass(frozen=True, slots=True)
class ProgramView:
    """A program as a model gets to see it.

    Attributes:
        code: Full source text, or all files.
        score: Normalised score, higher is better.
        metrics: Further numbers from the evaluator, by name.
        artifacts: Texts from the evaluator, by name; `feedback` is shown apart from the rest.
        error: Why the evaluator refused the program, if it did.
        worst_examples: Those of a data set on which it did worst, the worst first.
    """

    code: str | Program
    score: float
    metrics: Mapping[str, float]
    artifacts: Mapping[str, str]
    error: str | None = None
    worst_examples: tuple[ExampleView, ...] = ()

    @property
    def text(self) -> str:
        """The program as one text."""
        return Program.of(self.code).text

    @property
    def data(self) -> Source:
        """The program as plain data."""
        return self.code if isinstance(self.code, str) else dict(self.code)

    @property
    def feedback(self) -> str | None:
        """The evaluator's comment on the program, if there is one."""
        return self.artifacts.get(FEEDBACK)

    @property
    def notes(self) -> dict[str, str]:
        """All artifacts but the feedback."""
        return {name: text for name, text in self.artifacts.items() if name != FEEDBACK}


@dataclass(frozen=True, slots=True)
class SiblingOutcome:
    """How one child of the current program did: its score, against the parent's, in a word."""

    score: float
    difference: float
    label: str


@dataclass(frozen=True, slots=True)
class Siblings:
    """Scores of the current program and its children, oldest first; the latest five are shown."""

    parent_score: float
    child_scores: tuple[float, ...]

    @property
    def outcomes(self) -> tuple[SiblingOutcome, ...]:
        """The latest children, oldest first."""
        outcomes = []
        for score in self.child_scores[-MAX_SIBLINGS:]:
            difference = score - self.parent_score
            label = "improved" if difference > 0 else "regressed"
            label = "unchanged" if abs(difference) <= DEAD_BAND else label
            outcomes.append(SiblingOutcome(score, difference, label))
        return tuple(outcomes)

    def count(self, label: str) -> int:
        """How many of the shown children are `improved`, `regressed` or `unchanged`."""
        return sum(outcome.label == label for outcome in self.outcomes)


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An earlier attempt of the iteration that failed.

    Attributes:
        error: Why it failed.
        code: Its program, if there was one.
        metrics: Numbers that the evaluator reported of the program, by name.
        artifacts: Texts that the evaluator reported of the program, by name.
    """

    error: str
    code: str | Program | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreviousAttempt:
    """An earlier candidate of the run; `changes` holds one line per edit."""

    iteration: Iteration
    score: float
    parent_score: float
    changes: str
    metrics: Mapping[str, float]

    @property
    def outcome(self) -> str:
        """How its score compares with its parent's: `improved`, `regressed` or `unchanged`."""
        if self.score == self.parent_score:
            return "unchanged"
        return "improved" if self.score > self.parent_score else "regressed"


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What the prompt for one attempt says.

    Attributes:
        task: Problem text of the benchmark; becomes the system message unchanged.
        current: The parent, which the model is to change.
        action: `exploration`, `exploitation` or `balanced`; how the parent was drawn.
        others: Inspirations.
        timeout: Seconds a program may run.
        entry_point: Name of the function the evaluator calls; None if it does not say.
        tactic: The idea to carry out, if the step is guided.
        tactic_mode: `breakthrough`, `refinement` or `user`; given exactly when there is a tactic.
        siblings: Earlier children of the parent, if any.
        failure: The failed attempt that this one repairs, if any.
        label: Words shown above the parent's code, if any.
        label_name: Which label they are for: `diverge` or `refine`.
        form: What the files of a program may be.
        previous: Earlier candidates of the run, the best first; at most three.
        earlier_failures: All failed attempts of the iteration, oldest first, where they are shown
            together; `failure` is None then.
        edited_file: Name of the file of a program of one text that a command edits in place, or "."
            for several files; empty if the answer is a text.

    Raises:
        ValueError: If `action` is unknown, `tactic_mode` does not fit `tactic`, there are more
            than three previous attempts, or failures are given in both ways.
    """

    task: str
    current: ProgramView
    action: str
    others: tuple[ProgramView, ...]
    timeout: float
    entry_point: str | None
    tactic: Tactic | None = None
    tactic_mode: str | None = None
    siblings: Siblings | None = None
    failure: FailedAttempt | None = None
    label: str = ""
    previous: tuple[PreviousAttempt, ...] = ()
    earlier_failures: tuple[FailedAttempt, ...] = ()
    label_name: str = ""
    form: ProgramForm = PYTHON_TEXT
    edited_file: str = ""

    def __post_init__(self) -> None:
        """Refuse values the templates have no words for."""
        _check_choice("action", self.action, ACTIONS)
        if len(self.previous) > MAX_PREVIOUS:
            raise ValueError(
                f"previous has {len(self.previous)} attempts; expected at most {MAX_PREVIOUS}"
            )
        if self.failure is not None and self.earlier_failures:
            raise ValueError("failure is given; expected None where there are earlier_failures")
        if self.tactic is not None:
            _check_choice("tactic_mode", self.tactic_mode, (*MODES, USER))
        elif self.tactic_mode is not None:
            raise ValueError(
                f"tactic_mode is {self.tactic_mode!r}; expected None where there is no tactic"
            )

    @property
    def data(self) -> PromptData:
        """What goes beside the text."""
        tactic = self.tactic
        return PromptData(
            kind="generation",
            program=self.current.data,
            score=self.current.score,
            others=tuple(program.data for program in self.others),
            other_scores=tuple(program.score for program in self.others),
            action=LABEL_ACTIONS.get(self.label_name, self.action) if self.label else self.action,
            mode=self.tactic_mode or "",
            approach=tactic.approach_type if tactic else "",
            idea=f"{tactic.idea} {tactic.description}" if tactic else "",
            has_failure=self.failure is not None or bool(self.earlier_failures),
            language=self.form.language.fence,
        )


@dataclass(frozen=True, slots=True)
class GuideRequest:
    """What the prompt for one guide call says.

    Attributes:
        task: Problem text of the benchmark.
        evaluator_source: Full source text of the evaluator.
        best: The incumbent.
        mode: `breakthrough` or `refinement`.
        tried: Tactics tried before, oldest first.
        timeout: Seconds a program may run.
        count: Number of tactics asked for.
        form: What the files of a program may be.

    Raises:
        ValueError: If `mode` is unknown or `count` is below 1.
    """

    task: str
    evaluator_source: str
    best: ProgramView
    mode: str
    tried: tuple[TriedTactic, ...]
    timeout: float
    count: int
    form: ProgramForm = PYTHON_TEXT

    def __post_init__(self) -> None:
        """Refuse values the templates have no words for."""
        _check_choice("mode", self.mode, MODES)
        if self.count < 1:
            raise ValueError(f"count is {self.count}; expected at least 1")

    @property
    def data(self) -> PromptData:
        """What goes beside the text."""
        failed = (each.tactic.approach_type for each in self.tried if not each.is_success)
        return PromptData(
            "guide",
            self.best.data,
            self.best.score,
            mode=self.mode,
            failed=tuple(failed),
            language=self.form.language.fence,
        )


def _check_choice(field: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{field} is {value!r}; expected one of {', '.join(choices)}")
