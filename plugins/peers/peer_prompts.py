"""The words of the peers: what goes above a parent, and the meta-calls of ShinkaEvolve."""

from collections.abc import Sequence

from costada.plugins.peers.peer_search import Choice
from costada.plugins.peers.shinkaevolve import NUM_RECOMMENDATIONS
from costada.prompts.render import Prompt, fill, templates
from costada.prompts.requests import ProgramView, PromptData
from costada.values.program_form import ProgramForm


def render(template: str, **values: object) -> str:
    """A template of this plug-in filled with values."""
    return fill(templates("costada.plugins.peers"), template, values)


def advice_text(choice: Choice) -> str:
    """The words above the code of a chosen parent; empty if there is nothing to say."""
    return render("advice.txt", mode=choice.mode, advice=choice.advice).strip()


def summary_prompt(task: str, program: ProgramView, form: ProgramForm) -> Prompt:
    """The messages that ask for a summary of one program."""
    return _notes_prompt("summary.txt", task=task, program=program, form=form)


def insights_prompt(
    task: str, summaries: Sequence[str], earlier: str, best: ProgramView, form: ProgramForm
) -> Prompt:
    """The messages that ask what the summed-up programs show, with the earlier insights."""
    return _notes_prompt(
        "insights.txt", task=task, summaries=summaries, earlier=earlier, program=best, form=form
    )


def recommendations_prompt(
    task: str, insights: str, earlier: Sequence[str], best: ProgramView, form: ProgramForm
) -> Prompt:
    """The messages that ask what to try next."""
    return _notes_prompt(
        "recommendations.txt",
        task=task,
        insights=insights,
        earlier=earlier,
        program=best,
        form=form,
        count=NUM_RECOMMENDATIONS,
    )


def _notes_prompt(template: str, **values: object) -> Prompt:
    return Prompt(render("notes_system.txt"), render(template, **values), PromptData("insight"))
