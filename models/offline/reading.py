"""What the offline model reads in a prompt: programs, a tactic, a failure, or what is asked for."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

_HEADING = re.compile(r"(?P<level>#{1,2}) (?P<title>\S.*?)\s*")
_FENCE = re.compile(r"(?P<ticks>`{3,})(?P<language>[\w+#.-]*)\s*")
_TACTIC_LINE = re.compile(r"(Idea|How|Target|Cautions|Approach):\s*(.*)")
_FACT = re.compile(r"^- ([^:\n]+): (.+)$", re.MULTILINE)
_TRIED = re.compile(r"- (?P<outcome>\w+): (?P<approach>\S+) - ")

_BOLD_WORDS = ("unlike", "diversity", "different algorithm")


@dataclass(slots=True)
class _Section:
    """Text below a heading without what is fenced, and the fenced programs in order."""

    level: int
    title: str
    lines: list[str] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True, slots=True)
class SeenTactic:
    """The tactic a prompt asks to carry out."""

    idea: str
    how: str
    approach: str


@dataclass(frozen=True, slots=True)
class GenerationView:
    """A prompt that asks for a changed program.

    Attributes:
        program: Text of the current program.
        others: Texts of the other programs.
        tactic: The idea to carry out, if any.
        has_failure: Whether an attempt has failed just before.
        is_bold: Whether the prompt asks for something unlike the current program.
        takes_blocks: Whether SEARCH/REPLACE blocks are asked for rather than a whole program.
    """

    program: str
    others: tuple[str, ...]
    tactic: SeenTactic | None
    has_failure: bool
    is_bold: bool
    takes_blocks: bool


@dataclass(frozen=True, slots=True)
class GuideView:
    """A prompt that asks for ideas.

    Attributes:
        program: Text of the best program.
        keeps_algorithm: Whether the ideas are to refine it rather than to replace its method.
        failures: How often each approach failed before.
    """

    program: str
    keeps_algorithm: bool
    failures: Counter[str]


@dataclass(frozen=True, slots=True)
class LabelView:
    """A prompt that asks for the advice behind two labels."""


@dataclass(frozen=True, slots=True)
class InsightView:
    """A prompt that asks what the history of a search tells.

    Attributes:
        facts: What is known of the population, by name.
        standings: One line on each strategy shown.
    """

    facts: Mapping[str, str]
    standings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StrategyView:
    """A prompt that asks for a search strategy.

    Attributes:
        program: Text of the strategy to improve on.
        has_failure: Whether an attempt has failed just before.
    """

    program: str
    has_failure: bool


View = GenerationView | GuideView | LabelView | InsightView | StrategyView


def read_prompt(text: str) -> View | None:
    """Return what a prompt asks for, or None where it asks for nothing known."""
    sections = _sections(text)
    if _first_program(sections, "Current program") is not None:
        return _generation_view(sections)
    if _first_program(sections, "Best program") is not None and _find(sections, "Output"):
        return _guide_view(sections)
    if _find(sections, "New strategy"):
        return _strategy_view(sections)
    if _find(sections, "Population") and _find(sections, "Insight"):
        return _insight_view(sections)
    return LabelView() if _find(sections, "Labels") and _find(sections, "Output") else None


def _generation_view(sections: list[_Section]) -> GenerationView:
    current = _texts(sections, "Current program")
    task = _texts(sections, "Task")
    return GenerationView(
        program=_first_program(sections, "Current program") or "",
        others=tuple(_programs(sections, "Other programs")),
        tactic=_tactic(sections),
        has_failure=_find(sections, "Failed attempt") or _find(sections, "Failed attempts"),
        is_bold=any(word in current for word in _BOLD_WORDS),
        takes_blocks="SEARCH" in task or not task,
    )


def _guide_view(sections: list[_Section]) -> GuideView:
    tried = _TRIED.finditer(_texts(sections, "Ideas tried before"))
    return GuideView(
        program=_first_program(sections, "Best program") or "",
        keeps_algorithm="keep the algorithm" in _texts(sections, "Technique guidance"),
        failures=Counter(each["approach"] for each in tried if each["outcome"] == "FAILED"),
    )


def _strategy_view(sections: list[_Section]) -> StrategyView:
    return StrategyView(
        program=_first_program(sections, "Parent strategy") or "",
        has_failure=_find(sections, "Failed attempt"),
    )


def _insight_view(sections: list[_Section]) -> InsightView:
    shown = [each for each in sections if each.level == 1 and each.title.startswith("Strategy ")]
    lines = [next((line for line in each.lines if line), "") for each in shown]
    return InsightView(dict(_FACT.findall(_texts(sections, "Population"))), tuple(lines))


def _tactic(sections: list[_Section]) -> SeenTactic | None:
    if not _find(sections, "Tactic"):
        return None
    lines = dict(_TACTIC_LINE.findall(_texts(sections, "Tactic")))
    return SeenTactic(lines.get("Idea", ""), lines.get("How", ""), lines.get("Approach", ""))


def _sections(text: str) -> list[_Section]:
    """Return the parts of a prompt; a line inside a fence is never a heading."""
    sections = [_Section(1, "")]
    ticks, is_python = "", False
    for line in text.split("\n"):
        opening = _FENCE.fullmatch(line)
        if ticks:
            if line.rstrip() == ticks:
                ticks = ""
            elif is_python:
                sections[-1].programs[-1] += line + "\n"
        elif opening:
            ticks, is_python = opening["ticks"], opening["language"] == "python"
            sections[-1].programs += [""] * is_python
        elif heading := _HEADING.fullmatch(line):
            sections.append(_Section(len(heading["level"]), heading["title"]))
        else:
            sections[-1].lines.append(line)
    return sections


def _within(sections: list[_Section], title: str) -> list[_Section]:
    """Return the section of that title with the smaller ones inside it."""
    start = next((k for k, each in enumerate(sections) if each.title == title), None)
    if start is None:
        return []
    level = sections[start].level
    end = start + 1
    while end < len(sections) and sections[end].level > level:
        end += 1
    return sections[start:end]


def _find(sections: list[_Section], title: str) -> bool:
    return bool(_within(sections, title))


def _texts(sections: list[_Section], title: str) -> str:
    return "\n".join(each.text for each in _within(sections, title))


def _programs(sections: list[_Section], title: str) -> list[str]:
    return [program for each in _within(sections, title) for program in each.programs]


def _first_program(sections: list[_Section], title: str) -> str | None:
    return next(iter(_programs(sections, title)), None)
