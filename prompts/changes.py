"""A generator's reply in, a changed program out, whatever its files and languages."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import unified_diff

from costada.prompts.file_changes import (
    Deletion,
    FileChange,
    FileEdit,
    ReadChanges,
    WholeFile,
    read_changes,
)
from costada.prompts.function_edits import (
    FILE_SIGN,
    FunctionPlace,
    function_place,
    replace_function,
)
from costada.prompts.reply_parts import (
    find_edits,
    mismatch,
    rewrite_summary,
    with_markers_on_own_lines,
)
from costada.prompts.whole_texts import (
    ANY_MARKS,
    MAX_PROGRAM_CHARACTERS,
    MIN_SHARED,
    Rejection,
    are_related,
    defines,
    edit_text,
    find_whole_text,
    has_whole_block,
    invalid_text_reason,
    required_names,
    shared_ratio,
    whole_text,
)
from costada.values.candidate import Program
from costada.values.program_form import (
    PYTHON,
    TEXT,
    Language,
    ProgramForm,
    find_language,
    invalid_files_reason,
    invalid_path_reason,
    matches,
)

MAX_CHARACTERS = 10 * MAX_PROGRAM_CHARACTERS
"""Programs of several files with more characters are refused."""

GROWTH = 10_000
"""Characters by which an answer may enlarge files beyond the limits: those of a repository may be
there from the start."""

MAX_DIFF = 20_000
"""Lines of two texts together that are compared."""

CRLF = "\r\n"
MAX_LISTED = 20
"""Paths that a refusal lists."""


@dataclass(frozen=True, slots=True)
class Change:
    """A changed program read from a reply; whether it runs is not known yet.

    Attributes:
        program: The program; it differs from its parent.
        changes: What was changed, one line per edit.
    """

    program: Program
    changes: str


def read_change(reply: str, parent: Program, form: ProgramForm) -> Change | Rejection:
    """The program that a reply makes of its parent, or why there is none.

    A program never has a file that the form does not allow. Its lines end as those of its parent,
    whichever line ends the reply has.
    """
    text = with_markers_on_own_lines(reply.replace(CRLF, "\n"))
    if not text.strip():
        return Rejection("The answer is empty.")
    if not parent.is_one_text:
        return _read_files(text, parent, form)
    return _read_text(text, parent.text, form)


def read_edited_files(
    files: Mapping[str, str], parent: Program, form: ProgramForm
) -> Change | Rejection:
    """The program that edits in place have made of its parent, or why there is none.

    Args:
        files: The text of each file after the edits, by path; of a program of one text the only
            one.
        parent: The program before them.
        form: What the files may be.
    """
    if parent.is_one_text:
        (text,), before = files.values(), parent.text
        changed = Program.of(text)
        required = required_names(before, form.entry_point) if form.language == PYTHON else ()
        if missing := [name for name in sorted(required) if not defines(text, name)]:
            names = ", ".join(f"`{name}`" for name in missing)
            return Rejection(f"The program no longer defines {names} at the top level.")
        reason = invalid_text_reason(text, before)
        reason = reason and f"The program {reason}."
    else:
        changed = Program.of(files)
        reason = invalid_program_reason(dict(files), parent, form)
        deleted = sorted(parent.keys() - files.keys())
        if deleted and not form.patterns:
            reason = _not_deletable(deleted[0])
    if changed == parent:
        return Rejection("The files were left as they are.")
    return Rejection(reason) if reason else Change(changed, _unified_diff(parent, changed))


def _unified_diff(parent: Program, changed: Program) -> str:
    """What was changed, as `diff -u` prints it."""
    found: list[str] = []
    for path in sorted({*parent, *changed}):
        if parent.get(path) == changed.get(path):
            continue
        old, new = (each.get(path, "").splitlines() for each in (parent, changed))
        if len(old) + len(new) > MAX_DIFF:
            found.append(f"{path}: {rewrite_summary(changed.get(path, ''))}".removeprefix(": "))
            continue
        before, after = (path if path in each else "/dev/null" for each in (parent, changed))
        lines = [*unified_diff(old, new, before, after, n=1, lineterm="")]
        # the only file of a program of one text has no path
        found += lines[0 if path else 2 :]
    return "\n".join(found)


def _read_text(reply: str, parent: str, form: ProgramForm) -> Change | Rejection:
    """Apply the SEARCH/REPLACE blocks; if they change nothing, look for the whole text."""
    before, language = parent.replace(CRLF, "\n"), form.language
    edits = find_edits(reply)
    text, changes, unmatched = edit_text(before, edits.complete)
    is_edited = text.strip() != before.strip()
    if not is_edited:
        found = find_whole_text(edits.rest, unmatched, before, language, form.entry_point)
        if isinstance(found, Rejection):
            if not parent and edits.complete:
                return Rejection("There is no program yet that SEARCH/REPLACE blocks could change.")
            if unmatched:
                reasons = [mismatch(edit, before) for edit in unmatched]
                lines = ["No SEARCH text occurs in the current program:", *reasons]
                return Rejection("\n".join(lines))
            if edits.complete:
                return Rejection("The SEARCH/REPLACE blocks leave the program as it is.")
            return found
        text, changes = found, rewrite_summary(found)
    # Edited text in other languages is whole already; only Python must keep its required names.
    if language == PYTHON or not is_edited:
        whole = whole_text(text, before, language, form.entry_point)
        if whole is None:
            required = sorted(required_names(before, form.entry_point))
            names = ", ".join(f"`{name}`" for name in required)
            verb = "no longer defines" if parent else "does not define"
            return Rejection(f"The program {verb} {names} at the top level.")
        text = whole
    if text.strip() == before.strip():
        return Rejection("The answer repeats the current program without a change.")
    if reason := invalid_text_reason(text.rstrip("\n"), before):
        return Rejection(f"The program {reason}.")
    return Change(Program.of(text.replace("\n", CRLF) if CRLF in parent else text), changes)


def _read_files(text: str, parent: Program, form: ProgramForm) -> Change | Rejection:
    if "\0" in text:
        return Rejection("The answer holds a NUL character, which no file can have.")
    read = read_changes(text, parent)
    draft = _Draft(parent, form)
    for change in read.changes:
        refusal = draft.apply(change)
        if refusal is not None:
            return Rejection(refusal)
    if draft.files == dict(parent):
        return Rejection(draft.why_unchanged(read))
    reason = invalid_program_reason(draft.files, parent, form)
    return Rejection(reason) if reason else Change(Program.of(draft.files), draft.summary())


class _Draft:
    """The files of a program while the changes of a reply are applied to them, in order."""

    def __init__(self, parent: Program, form: ProgramForm) -> None:
        self.files = dict(parent)
        self._parent, self._form = parent, form
        self._lines: list[str] = []
        self._reasons: list[str] = []
        self._fences_without_path = 0

    def apply(self, change: FileChange) -> str | None:
        """Apply one change; why the reply is refused, if it is."""
        match change:
            case FileEdit():
                return self._edit(change)
            case WholeFile():
                place = function_place(change.path or "")
                return self._replace(place, change) if place else self._write(change)
            case Deletion():
                path = self._resolve(change.path)
                if place := function_place(path):
                    return (
                        f"`{path}` is a function, not a file; expected a SEARCH/REPLACE block in"
                        f" `{place.path}` that removes it."
                    )
                if path not in self.files:
                    return _unknown(path, self._form, self.files)
                if not self._form.patterns:
                    return _not_deletable(path)
                del self.files[path]
                self._lines.append(f"{path}: deleted")
        return None

    def _resolve(self, path: str) -> str:
        """The path, or the one known path that ends with it where it is not allowed itself."""
        path = path.removeprefix("./")
        if path in self.files or invalid_path_reason(path) is not None or self._form.allows(path):
            return path
        # Models leave out leading folders of a path, or add some from above the program.
        ends = [known for known in self.files if f"/{known}".endswith(f"/{path}")]
        ends += [known for known in self.files if f"/{path}".endswith(f"/{known}")]
        return ends[0] if len(ends) == 1 else path

    def _edit(self, change: FileEdit) -> str | None:
        path, edit = change.path, change.edit
        if path is None:
            path = self._only_place(change)
        if path is None:
            self._reasons.append(
                f"- The one that begins with `{edit.search.strip().split(chr(10))[0]}`: no line"
                f" `{FILE_SIGN} path` above it, and its lines are in none or several of the files."
            )
            return None
        place = function_place(path)
        path = self._resolve(place.path if place else path)
        if expected := invalid_path_reason(path):
            return _not_allowed(path, expected)
        if path not in self.files:
            if edit.search.strip() or not self._form.allows(path):
                return _unknown(path, self._form, self.files)
            # An empty SEARCH text in a file that does not exist adds the file.
            return self._write(WholeFile(path, edit.replacement, "", True, True))
        text, changes, unmatched = edit_text(self.files[path], (edit,))
        # With both marks the new block says itself where it belongs, whatever the SEARCH text.
        if unmatched and has_whole_block(edit.replacement, ANY_MARKS):
            return self._write(WholeFile(path, edit.replacement, "", True, True))
        if unmatched:
            self._reasons.append(f"{mismatch(edit, self.files[path])} ({path})")
            return None
        self.files[path] = text
        self._lines.append(f"{path}: {changes}")
        return None

    def _only_place(self, change: FileEdit) -> str | None:
        """The file that a block without a path fits, if it is the only one."""
        wanted = {line.strip() for line in change.edit.search.split("\n")}
        fitting = [
            path
            for path, text in self.files.items()
            if all(line in text for line in wanted) and not edit_text(text, (change.edit,))[2]
        ]
        return fitting[0] if len(fitting) == 1 else None

    def _write(self, change: WholeFile) -> str | None:
        path, form = change.path, self._form
        if path is None and len(self.files) == 1:
            path = next(iter(self.files))
        if path is None:
            self._fences_without_path += 1
            return None
        path = self._resolve(path)
        old, language = self.files.get(path), form.language_at(path)
        before = None if old is None else old.replace(CRLF, "\n")
        is_similar = shared_ratio(change.text, before or "") >= MIN_SHARED
        # A sentence that mentions a file stands above its new text or above an example of its use.
        is_example = change.is_mentioned and bool(before) and not is_similar
        if not _is_of_language(change, language):
            is_example = not (change.is_headed and is_similar)
        if is_example:
            return None
        if expected := invalid_path_reason(path):
            return _not_allowed(path, expected)
        if before is None and not form.allows(path):
            return _unknown(path, form, self.files)
        if not change.is_closed and not has_whole_block(change.text, ANY_MARKS):
            return f"The answer ends before `{path}` is complete."
        text = whole_text(
            change.text, before or "", language, _required_name(path, before or "", form)
        )
        if text is None and old != self._parent.get(path):
            return None  # a part of a file that the blocks above have changed
        if text is None:
            return f"`{path}` no longer defines what is used of it at the top level."
        text = text if text.strip() else ""
        if before is None:
            count = len(text.splitlines())
            self._lines.append(f"{path}: added, {count} line{'' if count == 1 else 's'}")
        elif before.strip() != text.strip():
            self._lines.append(f"{path}: {rewrite_summary(text)}")
        else:
            return None
        self.files[path] = text.replace("\n", CRLF) if old and CRLF in old else text
        return None

    def _replace(self, place: FunctionPlace, change: WholeFile) -> str | None:
        """Put a new text in the place of a function."""
        path = self._resolve(place.path)
        if path not in self.files:
            return _unknown(path, self._form, self.files)
        if not change.is_closed:
            return f"The answer ends before `{path}::{place.name}` is complete."
        old = self.files[path]
        before = old.replace(CRLF, "\n")
        replaced = replace_function(before, FunctionPlace(path, place.name), change.text)
        if isinstance(replaced, str):
            return replaced
        name = _required_name(path, before, self._form)
        if name and not defines(replaced.text, name):
            return f"`{path}` no longer defines `{name}` at the top level."
        if replaced.text != before:
            self._lines.append(f"{path}: {rewrite_summary(change.text)}")
            text = replaced.text
            self.files[path] = text.replace("\n", CRLF) if CRLF in old else text
        return None

    def summary(self) -> str:
        """What was changed, one line per change, and how many changes found no place."""
        count = len(self._reasons)
        return "\n".join([*self._lines, *([f"edits without a place: {count}"] if count else [])])

    def why_unchanged(self, read: ReadChanges) -> str:
        """Why the reply left the program unchanged."""
        reasons = list(self._reasons)
        if self._fences_without_path:
            reasons.append(f"- A fence has no line `{FILE_SIGN} path` above it.")
        if reasons:
            return "\n".join(["No change has a place in the current program:", *reasons])
        if read.changes:
            return "The answer leaves the program as it is."
        if read.is_unfinished:
            return "The answer ends before its first SEARCH/REPLACE block is complete."
        return (
            f"The answer holds no change of a file: a line `{FILE_SIGN} path`, and below it a"
            " SEARCH/REPLACE block or a fence with the complete file. The files are"
            f" {_list_text(self.files)}."
        )


def _is_of_language(change: WholeFile, language: Language) -> bool:
    """Whether a fence may hold a file in a language, by the word behind its backticks."""
    found = find_language(change.language) if change.language else TEXT
    return found is None or TEXT in (found, language) or are_related(found, language)


def _entry_paths(form: ProgramForm) -> tuple[str, ...]:
    """The paths that the module of the entry point may have; none if it names no module."""
    module, colon, _ = (form.entry_point or "").partition(":")
    path = module.replace(".", "/")
    return (f"{path}.py", f"{path}/__init__.py") if colon else ()


def _required_name(path: str, before: str, form: ProgramForm) -> str | None:
    """The function that a file must define: that of the entry point, if it did before."""
    name = (form.entry_point or "").partition(":")[2]
    return name if path in _entry_paths(form) and defines(before, name) else None


def invalid_program_reason(files: dict[str, str], parent: Program, form: ProgramForm) -> str | None:
    """Why files cannot be those of a candidate; None if they can."""
    if reason := invalid_files_reason(files):
        return f"The program has {reason}."
    for path, text in files.items():
        if parent.get(path) != text and not form.allows(path):
            return _unknown(path, form, parent)
        reason = invalid_text_reason(text, parent.get(path, ""), GROWTH)
        if parent.get(path) != text and reason:
            return f"`{path}` {reason}."
    total, before = (sum(map(len, each.values())) for each in (files, parent))
    if total > (limit := max(MAX_CHARACTERS, before + GROWTH)):
        return f"The files have {total} characters; at most {limit} are allowed."
    entries = [path for path in _entry_paths(form) if path in files]
    if _entry_paths(form) and not entries:
        return f"The entry point `{form.entry_point}` needs `{_entry_paths(form)[0]}`."
    for path in entries:
        name = _required_name(path, parent.get(path, ""), form)
        if name and not defines(files[path], name):
            return f"`{path}` no longer defines `{name}` at the top level."
    return None


def _not_allowed(path: str, expected: str) -> str:
    return f"`{path}` cannot be the path of a file; expected {expected}."


def _not_deletable(path: str) -> str:
    return f"`{path}` cannot be deleted: a program has the files of the start."


def _unknown(path: str, form: ProgramForm, files: Iterable[str]) -> str:
    """Why a path is not one of the program, and which paths are."""
    if any(matches(path, pattern) for pattern in form.reserved):
        return f"`{path}` belongs to the task, and cannot be a file of the program."
    reason = f"There is no file `{path}`. The files are {_list_text(files)}."
    if not form.patterns:
        return reason
    return f"{reason} Files may be added where {_list_text(form.patterns)} matches."


def _list_text(names: Iterable[str]) -> str:
    each = [f"`{name}`" for name in names]
    more = len(each) - MAX_LISTED
    return ", ".join([*each[:MAX_LISTED], *([f"and {more} more"] if more > 0 else [])])
