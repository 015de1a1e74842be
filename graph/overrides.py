"""What a caller chooses for one run of a graph, within the limits of its builder."""

import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from pydantic import BaseModel
from typing_extensions import TypedDict

if TYPE_CHECKING:
    from costada.nodes.context import RunContext

Overrides = Mapping[str, object]
"""What was chosen, by name: plain values that a checkpoint can keep."""

BUDGET, SEED = "budget", "seed"
MAX_BUILT = 64
"""Searches of different choices that stay in memory."""


class SearchContext(TypedDict, total=False):
    """What the caller of a run chooses, for type checkers; `Choices` says which keys a graph takes.

    `budget` is in dollars, `problem` and `models` are names, `parallel` is the number of steps in
    flight, and `settings` holds further settings by name.
    """

    seed: int
    budget: float
    problem: str
    models: Sequence[str]
    parallel: int
    settings: Mapping[str, object]


class RunOverrides:
    """Reads the `context` of a run, and puts the search that it chooses together once.

    Attributes:
        schema: What may be chosen, as the context schema of the graph.
        defaults: The values of a run that chooses none, by the same names.
        max_parallel: Most steps that a run may have in flight.
        methods: The methods that a run may use, beside that of the graph.
    """

    def __init__(
        self,
        schema: type[BaseModel],
        defaults: Overrides,
        read: Callable[[object], Overrides],
        build: Callable[[Overrides], "RunContext"],
        max_parallel: int = 1,
        methods: Collection[str] = (),
    ) -> None:
        """Keep the schema, what checks a context, and what puts the search of a choice together."""
        self.schema, self.defaults = schema, defaults
        self.max_parallel, self.methods = max_parallel, methods
        self._read, self._build = read, build
        self._built: OrderedDict[str, RunContext] = OrderedDict()
        self._lock = Lock()

    def read(self, context: object, seed: object = None) -> Overrides:
        """What a context chooses.

        Args:
            context: A mapping, or an instance of the schema; `None` chooses nothing.
            seed: The seed of the input, if there is one.

        Raises:
            ValueError: A name is unknown or a value beyond the limits, or the two seeds differ.
        """
        chosen = self._read({} if context is None else context)
        if seed is not None and SEED in chosen and chosen[SEED] != seed:
            raise ValueError(
                f"seed: got {seed!r} in the input and {chosen[SEED]!r} in the context, expected"
                " only one"
            )
        return chosen

    def kept(self, chosen: object) -> Overrides:
        """What a run's state says that it has chosen, checked against the limits of today.

        Raises:
            ValueError: A name is unknown or a value beyond the limits.
        """
        try:
            return self._read(self._with_budget(chosen, {}))
        except ValueError as error:
            raise ValueError(f"the run has chosen what is not allowed: {error}") from None

    def resumed(self, saved: Overrides, context: object) -> Overrides:
        """What holds for a run that is resumed: what it began with, or a higher budget.

        Raises:
            ValueError: The context chooses something else.
        """
        chosen = self.read(self._with_budget(context, saved))
        known = {**self.defaults, **saved}
        for name, value in chosen.items():
            before = known.get(name)
            is_higher = isinstance(value, float) and isinstance(before, float) and value > before
            if value != before and not (name == BUDGET and is_higher):
                began = "those of the graph" if before is None else repr(before)
                raise ValueError(
                    f"context: got {name} {value!r} for a run that began with {began}, expected the"
                    " same"
                    f"{' or a higher one' if name == BUDGET else ''}; only a new run can choose it"
                )
        new = {name: value for name, value in chosen.items() if value != known.get(name)}
        return {**saved, **new}

    def _with_budget(self, given: object, saved: Overrides) -> object:
        """What is given for a run that has a budget, where a new run has to choose one."""
        field = self.schema.model_fields.get(BUDGET)
        if not (field and field.is_required() and isinstance(given, Mapping | None)):
            return given
        return {BUDGET: saved.get(BUDGET, self.defaults[BUDGET]), **(given or {})}

    def search(self, chosen: Overrides) -> "RunContext":
        """The search of a choice, for any seed.

        Raises:
            ValueError: The choice contradicts itself.
        """
        lasting = {name: value for name, value in chosen.items() if name != SEED}
        key = json.dumps(lasting, sort_keys=True)
        with self._lock:
            if key not in self._built:
                try:
                    self._built[key] = self._build(lasting)
                except ValueError as error:
                    lines = str(error).splitlines()
                    raise ValueError("\n".join(f"context: {line}" for line in lines)) from None
            self._built.move_to_end(key)
            # A server is sent any number of budgets; a run in progress holds its own search.
            while len(self._built) > MAX_BUILT:
                self._built.popitem(last=False)
            return self._built[key]
