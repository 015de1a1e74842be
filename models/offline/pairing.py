"""An expression of two rows of an array, rewritten for all pairs of rows at once."""

import ast

from costada.models.offline.source import called_name

_ELEMENTWISE = frozenset(("sqrt", "abs", "square", "power", "maximum", "minimum", "log", "exp"))
REDUCING = frozenset(("sum", "norm", "max", "min"))
"""Functions that make one number of a row."""


def vectorised(value: ast.expr, rows: tuple[str, str]) -> str | None:
    """Return the value for all pairs of rows as one expression, or None where it has none."""
    rewriter = _PairRewriter(rows)
    try:
        table = ast.unparse(rewriter.visit(ast.parse(ast.unparse(value), mode="eval").body))
    except (RecursionError, SyntaxError, ValueError):
        return None
    is_complete = rewriter.seen == set(rows) and len(rewriter.arrays) == 1
    return table if is_complete and not rewriter.is_foreign and "axis=-1" in table else None


class _PairRewriter(ast.NodeTransformer):
    """Turns `array[i]` and `array[j]` into the two axes of a table."""

    def __init__(self, rows: tuple[str, str]) -> None:
        """Remember the names of the two loop variables."""
        self.rows = rows
        self.seen: set[str] = set()
        self.arrays: set[str] = set()
        self.is_foreign = False

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Replace a row by all rows along its axis."""
        index = node.slice.id if isinstance(node.slice, ast.Name) else ""
        if index not in self.rows or not isinstance(node.value, ast.Name):
            self.is_foreign = True
            return node
        self.seen.add(index)
        self.arrays.add(node.value.id)
        axes = "[:, None]" if index == self.rows[0] else "[None, :]"
        return ast.parse(node.value.id + axes, mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Reduce over the last axis only; leave what works entry by entry."""
        name = called_name(node)
        is_library = isinstance(node.func, ast.Attribute) and not node.keywords
        if not is_library or name not in _ELEMENTWISE | REDUCING:
            self.is_foreign = True
            return node
        node.func = ast.parse(f"np.{'linalg.' * (name == 'norm')}{name}", mode="eval").body
        node.args = [self.visit(each) for each in node.args]
        if name in REDUCING:
            node.keywords = [ast.keyword("axis", ast.parse("-1", mode="eval").body)]
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Refuse every other name, for it may change from turn to turn."""
        self.is_foreign = True
        return node
