"""The graph as Mermaid text, which GitHub and many editors draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costada.reports.graph_drawing import headline, shade_of
from costada.reports.node_spending import RunSpending

if TYPE_CHECKING:
    from langchain_core.runnables.graph import Graph


OUTLINE = "#2166ac"


def mermaid(graph: Graph, spending: RunSpending | None = None) -> str:
    """Return a compiled graph as Mermaid text, given its `get_graph()`.

    Args:
        graph: What to draw.
        spending: What a run has spent: dollars fill the nodes with blue, numbers stand below the
            names, and the sum above the picture.
    """
    if spending is None:
        return graph.draw_mermaid()
    text = graph.draw_mermaid(frontmatter_config={"title": headline(spending)})
    styles = []
    for name in graph.nodes:
        if name.startswith("__"):
            continue
        shade = shade_of(name, spending)
        plain, told = f"\t{name}({name})\n", f'\t{name}("{name}<br/>{_escaped(shade.caption)}")\n'
        text = text.replace(plain, told)
        styles.append(f"\tstyle {name} fill:{shade.fill},color:{shade.ink},stroke:{OUTLINE}\n")
    return text + "".join(styles)


def _escaped(caption: str) -> str:
    return caption.replace("<", "#60;")
