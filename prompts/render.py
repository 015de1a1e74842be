"""Values in, messages out: how programs are shown, and what the templates may use."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from costada.prompts.file_changes import DELETE_SIGN
from costada.prompts.focused_view import focused_files
from costada.prompts.function_edits import FILE_SIGN, changed_parts
from costada.prompts.reply_parts import fenced
from costada.prompts.requests import (
    FailedAttempt,
    GenerationRequest,
    GuideRequest,
    PromptData,
)
from costada.prompts.whole_texts import BLOCK_START
from costada.values.candidate import Program, changed_files
from costada.values.evaluation import FEEDBACK, LOG
from costada.values.program_form import PYTHON, Language, ProgramForm
from costada.values.python_source import FUNCTION_SIGN

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from jinja2 import Environment

PromptOrder = Literal["constant-first", "paper"]
DEFAULT_ORDER: PromptOrder = "constant-first"

CACHE_ENDS = (
    *("\n# Other programs\n", "\n## Program 2\n", "\n## Program 3\n"),
    *("\n# Best program\n", "\n# Parent strategy\n", "\n# Population\n"),
)
"""Headings at which a prompt with constant text first may differ from the prompt before it.

Of the recorded prompts, as `bench/prompt_cache.py` builds them, the beginning up to the first
program was in one of the three prompts before in all cases, up to the second in 64 %, up to the
third in 45 % and up to the fourth in 22 %. A cache that costs a quarter more to write and a tenth
to read pays from 22 % on.
"""

OTHER_FILES_LIMIT = 20_000
"""Characters shown whole of the files of a program that is not the one to change."""

OUTLINE_LINES = 40
OUTLINE_WIDTH = 120

_DEFINING = (
    *("def ", "async def ", "class ", "fn ", "pub ", "func ", "function ", "struct ", "enum "),
    *("trait ", "impl ", "interface ", "type ", "namespace ", "module ", "template", "export "),
    *("public ", "private ", "protected ", "static ", "subroutine ", "CREATE ", "#"),
)

TEXT_LIMIT = 2000
"""Characters shown of an error, an artifact or a feedback text."""

EXAMPLE_LIMIT = 1000
"""Characters shown of an example of a data set, and of the feedback on it."""

SMALLEST_DECIMAL = 0.001
"""Numbers from here on are shown with four decimals."""

CODE_LIMIT = 1500
"""Characters shown of a program that failed."""

FAILED_FILES_LIMIT = 6000
"""Characters shown of the files of a program that failed."""

REPORT_LIMIT = 6000
"""Characters shown of all numbers and texts that an evaluator reports of a program that failed."""

MAX_METRICS, MAX_OUTPUTS = 50, 20
"""Numbers and texts of an evaluator that are shown of a program."""

NAME_LIMIT = 100
"""Maximum characters of a metric's or an artifact's name in a prompt."""

OUTPUTS_LIMIT = 12_000
"""Characters shown of all texts of an evaluator beside a program."""

STRATEGY_LIMIT = 6000
"""Characters shown of a search strategy that is not the one to improve on."""

INSIGHT_LIMIT = 6000
"""Characters shown of what a model said about the population."""

CHANGES_LIMIT = 200
"""Characters shown of what was changed in a program that is only listed."""

LONG_PROGRAM = 500
"""Characters from which on a program is asked to become simpler."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The two messages of one call, and what the second is made of."""

    system: str
    user: str
    data: PromptData | None = None


def generation_prompt(request: GenerationRequest, order: PromptOrder = DEFAULT_ORDER) -> Prompt:
    """The messages that ask for a changed program.

    In the order `constant-first` the text that every call repeats comes first, then what changes
    seldom: providers charge less for a beginning that they have read before. `paper` is the order
    of the paper's scaffold. The words are the same.
    """
    user = render("generate.txt", order=order, **fields_of(request))
    return Prompt(request.task, user, request.data)


def guide_prompt(request: GuideRequest, order: PromptOrder = DEFAULT_ORDER) -> Prompt:
    """The messages that ask for tactics, worded for the request's mode."""
    user = render("guide.txt", order=order, **fields_of(request))
    return Prompt(render("guide_system.txt"), user, request.data)


def cacheable_parts(user: str, count: int) -> tuple[str, ...]:
    """The text of a prompt in at most `count` pieces; each but the last ends where a cache may."""
    # -1 for a missing heading becomes 0, and is left out.
    found = (user.find(heading) + 1 for heading in CACHE_ENDS)
    ends = sorted({place for place in found if place})
    places = [0, *ends[: count - 1], len(user)]
    return tuple(user[first:last] for first, last in pairwise(places))


def main_language(form: ProgramForm) -> Language:
    """The language of a program of one text, or of most files that are not read as text."""
    if form.is_one_text:
        return form.language
    if form.entry_point is not None:
        return PYTHON
    languages = [form.language_at(path) for path in form.paths]
    executed = [each for each in languages if not each.is_document]
    return Counter(executed or languages).most_common(1)[0][0]


def is_python_text(form: ProgramForm) -> bool:
    """Whether a program is one Python text that no command runs."""
    return form.is_one_text and form.language == PYTHON and form.run is None


def is_document(form: ProgramForm) -> bool:
    """Whether a program is read, not executed, as far as its form says."""
    is_run = form.run or form.build or form.entry_point
    return not is_run and main_language(form).is_document


@dataclass(frozen=True, slots=True)
class ShownFiles:
    """The files of a program: those to show whole, and the paths of those to outline."""

    whole: Mapping[str, str]
    outlined: Mapping[str, str]


def choose_files(files: Mapping[str, str], form: ProgramForm, limit: int) -> ShownFiles:
    """The files that fit into a number of characters.

    First come the file of the entry point and those with marks around what is meant to change, then
    those near the command that scores, then the shortest.
    """
    start, near = _path_begin(form), form.focus.near

    def rank(path: str) -> tuple[bool, int, int, str]:
        is_wanted = BLOCK_START in files[path] or (start != "" and path.startswith(start))
        place = near.index(path) if path in near else len(near)
        return not is_wanted, place, len(files[path]), path

    room, chosen = limit, set()
    for path in sorted(files, key=rank):
        if len(files[path]) <= room:
            chosen.add(path)
            room -= len(files[path])
    return ShownFiles(
        {path: text for path, text in files.items() if path in chosen},
        {path: text for path, text in files.items() if path not in chosen},
    )


def _path_begin(form: ProgramForm) -> str:
    """How the path of the entry point's file begins; empty if there is none."""
    module, colon, _ = (form.entry_point or "").partition(":")
    return module.replace(".", "/") if colon else ""


def example_path(form: ProgramForm) -> str:
    """A path for an example of a change: of a function in focus, the entry point, or the first."""
    if form.focus.functions:
        return form.focus.functions[0].partition(FUNCTION_SIGN)[0]
    start = _path_begin(form)
    found = (path for path in form.paths if start and path.startswith(start))
    return next(found, form.paths[0])


def example_function(form: ProgramForm) -> str:
    """A function for an example of a change: the first in focus, or one that need not be there."""
    return next(iter(form.focus.functions), f"{example_path(form)}{FUNCTION_SIGN}Class.method")


def outline(text: str) -> str:
    """The lines of a text that look like headings or definitions, with their numbers."""
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip()
        is_outermost = line[:1].strip() != "" and bare.endswith(("{", ":", "("))
        if is_outermost or bare.startswith(_DEFINING):
            found.append(f"{number}: {line[:OUTLINE_WIDTH].rstrip()}")
    left_out = len(found) - OUTLINE_LINES
    more = [f"[{left_out} more]"] if left_out > 0 else []
    return "\n".join([*found[:OUTLINE_LINES], *more])


def program_block(
    code: str | Program,
    form: ProgramForm,
    base: str | Program | None = None,
    limit: int | None = None,
) -> str:
    """A program for a prompt.

    Args:
        code: Its text, or its files.
        form: What the files of a program may be.
        base: The program that a prompt shows beside it: of several files, those that are equal
            there are left out.
        limit: Characters of files shown whole; None as the form says.
    """
    program = Program.of(code)
    if program.is_one_text:
        return fenced(program.text, form.language.fence)
    is_whole = base is None and limit is None
    if is_whole and form.focus.functions and (focused := focused_files(program, form)):
        return focused
    limit = limit or form.shown_characters
    known = Program(()) if base is None else Program.of(base)
    files = changed_files(program, known)
    num_changed = len(files)
    if base is not None and form.focus.functions:
        files = _changed_functions(files, known)
    view = choose_files(files, form, limit)
    parts = []
    for place, text in view.whole.items():
        language = form.language_at(place.partition(FUNCTION_SIGN)[0])
        parts.append(f"{FILE_SIGN} {place}\n{fenced(text, language.fence)}")
    if view.outlined:
        parts.append(f"Files that do not fit into {limit} characters, by name and outline only:")
    for path, text in view.outlined.items():
        lines = f"\n{fenced(outline(text), 'text')}" if outline(text) else ""
        parts.append(f"- `{path}`, {len(text)} characters{lines}")
    if base is not None:
        gone = ", ".join(f"`{path}`" for path in known if path not in program)
        parts += [f"It does not have {gone}."] if gone else []
        same = len(program) - num_changed
        noun = "file is" if same == 1 else "files are"
        parts += [f"{same} {noun} as in the current program."] if same else []
    return "\n\n".join(parts)


def _changed_functions(files: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """The changed functions of files by `path::name`, and by its path what is not Python."""
    parts = (changed_parts(text, known.get(path, ""), path) for path, text in files.items())
    return {place: text for part in parts for place, text in part.items()}


def cut(text: str, limit: int) -> str:
    """At most `limit` characters of the text, with a note where more was dropped."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[the first {limit} of {len(text)} characters]"


def cut_middle(text: str, limit: int) -> str:
    """The beginning and the end of a text, with a note where more was dropped between them.

    Of a log or a traceback the end says most.
    """
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} of {len(text)} characters]\n{text[-half:]}"


def decimals(value: float) -> str:
    """A number with four decimals; of a smaller one four digits, so that it is not shown as 0."""
    return f"{value:.4f}" if value == 0 or abs(value) >= SMALLEST_DECIMAL else f"{value:.4g}"


def failed_program(code: str | Program, form: ProgramForm, current: str | Program) -> str:
    """Start of the failed program, or of each changed file."""
    program = Program.of(code)
    if program.is_one_text:
        return fenced(cut(program.text, CODE_LIMIT), form.language.fence)
    known = Program.of(current)
    changed = changed_files(program, known)
    if form.focus.functions:
        changed = _changed_functions(changed, known)
    begun = {path: cut(text, CODE_LIMIT) for path, text in changed.items()}
    return program_block(Program.of(begun), form, limit=FAILED_FILES_LIMIT)


def evaluator_report(failure: FailedAttempt) -> str:
    """What the evaluator reports of a failed program beside the error; empty if nothing.

    The feedback comes first and the log last. Texts that the error repeats are left out, and so is
    what does not fit into `REPORT_LIMIT` characters, which is said.
    """
    texts = most_useful_first(failure.artifacts)
    new = [each for each in texts if each[1].strip() and each[1].strip() not in failure.error]
    num_first = sum(name == FEEDBACK for name, _ in new)
    blocks = _output_blocks(new)[:MAX_OUTPUTS]
    numbers = _metric_lines(failure.metrics)[:MAX_METRICS]
    shown = [*blocks[:num_first], *(["\n"] if num_first else []), *numbers, *blocks[num_first:]]
    report, num_shown = "", 0
    for part in shown:
        if len(report) + len(part) <= REPORT_LIMIT:
            report += part
            num_shown += bool(part.strip())
    total = len(failure.metrics) + len(new)
    if num_shown < total:
        report += f"\n[{total - num_shown} more of its {total} numbers and texts]\n"
    return f"The evaluator reported:\n\n{report.strip()}\n\n" if report else ""


def most_useful_first(artifacts: Mapping[str, str]) -> list[tuple[str, str]]:
    """The texts of an evaluator in the order of prompts: the feedback first, what was printed last.

    Those that do not fit are the last ones.
    """
    ranks = {FEEDBACK: 0, LOG: 2, "stdout": 2}
    return sorted(artifacts.items(), key=lambda each: ranks.get(each[0], 1))


def metric_lines(metrics: Mapping[str, float]) -> str:
    """The first numbers that an evaluator reports of a program, and how many more there are."""
    lines = _metric_lines(metrics)
    if len(lines) > MAX_METRICS:
        more = f"[{len(lines) - MAX_METRICS} more of its {len(lines)} numbers]\n"
        lines = [*lines[:MAX_METRICS], more]
    return "".join(lines).removesuffix("\n")


def evaluator_outputs(outputs: Mapping[str, str]) -> str:
    """The texts of an evaluator beside a program, and how many more there are."""
    fitting = fitting_outputs(outputs)
    shown = _output_blocks(fitting.items())
    if len(fitting) < len(outputs):
        shown.append(f"\n[{len(outputs) - len(fitting)} more of its {len(outputs)} texts]\n")
    return "\n".join(block.removeprefix("\n") for block in shown)


def fitting_outputs(outputs: Mapping[str, str]) -> dict[str, str]:
    """The texts of an evaluator that are shown beside a program, in their order."""
    fitting, left = dict[str, str](), OUTPUTS_LIMIT
    for name, text in most_useful_first(outputs)[:MAX_OUTPUTS]:
        (block,) = _output_blocks([(name, text)])
        if len(block) <= left:
            fitting[name] = text
            left -= len(block)
    return fitting


def _metric_lines(metrics: Mapping[str, float]) -> list[str]:
    return [f"- {_short(name)}: {decimals(value)}\n" for name, value in metrics.items()]


def _output_blocks(outputs: Iterable[tuple[str, str]]) -> list[str]:
    return [
        f"\nEvaluator output `{_short(name)}`:\n\n{fenced(_bounded(name, text), 'text')}\n"
        for name, text in outputs
    ]


def _bounded(name: str, text: str) -> str:
    return cut(text, TEXT_LIMIT) if name == FEEDBACK else cut_middle(text, TEXT_LIMIT)


def _short(name: str) -> str:
    """A name in one line, with a note where more was dropped."""
    line = " ".join(name.split())
    return line if len(line) <= NAME_LIMIT else f"{line[:NAME_LIMIT]} [cut]"


def render(template: str, **values: object) -> str:
    """A template filled with values, ending in one newline."""
    return fill(templates(), template, values)


def fill(given: "Environment", template: str, values: Mapping[str, object]) -> str:
    """One of some templates filled with values, ending in one newline."""
    return given.get_template(template).render(values).strip() + "\n"


def fields_of(request: "DataclassInstance") -> dict[str, object]:
    """The fields of a record by name, as they are."""
    return {field.name: getattr(request, field.name) for field in fields(request)}


@cache
def templates(package: str = "costada.prompts") -> "Environment":
    """The templates in a package, which may include those of this room."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    packages = dict.fromkeys((package, "costada.prompts"))
    found = Environment(
        loader=ChoiceLoader([PackageLoader(each) for each in packages]),
        undefined=StrictUndefined,
        auto_reload=False,
        autoescape=False,  # noqa: S701  the messages are plain text, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= FILTERS
    found.globals |= GLOBALS
    return found


FILTERS = {
    "fence": fenced,
    "cut": cut,
    "cut_middle": cut_middle,
    "program": program_block,
    "failed_program": failed_program,
    "evaluator_report": evaluator_report,
    "evaluator_outputs": evaluator_outputs,
    "metric_lines": metric_lines,
    "in_code": "`{}`".format,
    "one_line": lambda text: " ".join(text.split()),
    "decimals": decimals,
    "long_decimals": "{:.6f}".format,
    "signed_decimals": "{:+.4f}".format,
    "signed_long_decimals": "{:+.6f}".format,
    "seconds": "{:g}".format,
}
GLOBALS = {
    "TEXT_LIMIT": TEXT_LIMIT,
    "CODE_LIMIT": CODE_LIMIT,
    "EXAMPLE_LIMIT": EXAMPLE_LIMIT,
    "STRATEGY_LIMIT": STRATEGY_LIMIT,
    "INSIGHT_LIMIT": INSIGHT_LIMIT,
    "CHANGES_LIMIT": CHANGES_LIMIT,
    "LONG_PROGRAM": LONG_PROGRAM,
    "EVOLVE_START": BLOCK_START,
    "FILE_SIGN": FILE_SIGN,
    "DELETE_SIGN": DELETE_SIGN,
    "OTHER_FILES_LIMIT": OTHER_FILES_LIMIT,
    "example_function": example_function,
    "example_path": example_path,
    "is_document": is_document,
    "is_python_text": is_python_text,
    "main_language": main_language,
}
