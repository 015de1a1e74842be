"""Every method by the name that `--method` is given."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from costada.controller.baselines.adaevolve import AdaEvolve
from costada.controller.baselines.best_of_n import BestOfN
from costada.controller.baselines.uniform import Uniform
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.costada_thompson import CostAdaThompson
from costada.controller.method import Controller
from costada.values.plugins import describe_plugin, load_plugin, plugins_of


class ControllerKind(Protocol):
    """A class of controllers, which are frozen dataclasses."""

    def start(self, seed_score: float, constants: Constants) -> Controller:
        """The controller before the first step, given the score of the initial program (y_0)."""
        ...


@dataclass(frozen=True, slots=True)
class InnerGraph:
    """Nodes that a method puts between the last attempt of a step and its charge.

    Attributes:
        nodes: By their names; the first is entered. A step passes each at most once.
        routes: After each node: a function of state and context that names an edge, and the node
            behind each edge. The edge `"charge"` leads on.
    """

    nodes: Mapping[str, Callable[..., Any]]
    routes: Mapping[str, tuple[Callable[..., str], Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Method:
    """One way to spend a budget.

    Attributes:
        name: What `--method` is given.
        kind: The class of its controllers.
        summary: What it does, in a line.
        switches: What it fixes in `Constants`: the part that an ablation leaves out, or a number
            that belongs to the method.
        nodes: Nodes of the graph that it replaces, by their names.
        inner: Nodes of its own.
        group: What `--methods` may be given for all methods of the group; empty without one.
    """

    name: str
    kind: ControllerKind
    summary: str
    switches: Mapping[str, bool | int | str]
    nodes: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    inner: InnerGraph | None = None
    group: str = ""

    def start(self, seed_score: float, constants: Constants) -> Controller:
        """The controller of a run that begins."""
        return self.kind.start(seed_score, self.apply_switches(constants))

    def apply_switches(self, constants: Constants) -> Constants:
        """The constants with those that the method fixes."""
        return constants.model_copy(update=self.switches) if self.switches else constants


def chooses_guides(method: Method) -> bool:
    """Whether the setting `guides` says when the method buys one: the paper's with its gating."""
    is_ours = isinstance(method.kind, type) and issubclass(method.kind, CostAda)
    return is_ours and "gates_intervention" not in method.switches


def check_guides(method: Method, guides: str) -> None:
    """Raise `ValueError` for a rule for guides where the method has its own."""
    if guides != "paper" and not chooses_guides(method):
        raise ValueError(
            f"guides: got {guides!r} with method {method.name!r}, which decides on guides itself;"
            " expected 'paper'"
        )


DEFAULT_METHOD = "costada"

ENTRY_POINTS = "costada.methods"
"""Entry points of this group are further methods, each a `Method` under its name."""


class Methods(MutableMapping[str, Method]):
    """The methods by name: those of this room, then those of plug-ins.

    A plug-in is imported when its method is first asked for.
    """

    def __init__(self, *methods: Method) -> None:
        """Begin with some methods."""
        self._known = {method.name: method for method in methods}
        self._loaded: dict[str, Method] = {}

    def __getitem__(self, name: str) -> Method:
        """A method.

        Raises:
            KeyError: None is known by the name.
            ValueError: Its plug-in cannot be loaded, or is not a method of this name.
        """
        if name not in self._known and name not in self._loaded:
            plugin = plugins_of(ENTRY_POINTS)[name]
            method = load_plugin(plugin, Method)
            if method.name != name:
                raise ValueError(
                    f"{describe_plugin(plugin)} is a Method named {method.name!r}, expected the"
                    f" name of its entry point, {name!r}"
                )
            self._loaded[name] = method
        return self._known.get(name) or self._loaded[name]

    def __setitem__(self, name: str, method: Method) -> None:
        """Add a method of this process; raises `ValueError` if it has another name."""
        if method.name != name:
            raise ValueError(f"method {name}: got a Method named {method.name!r}, expected {name}")
        self._known[name] = method

    def __delitem__(self, name: str) -> None:
        """Take away a method that was added."""
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        """All names, also those of plug-ins that have not been imported."""
        yield from dict.fromkeys((*self._known, *plugins_of(ENTRY_POINTS)))

    def __len__(self) -> int:
        """How many methods there are."""
        return sum(1 for _ in self)

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The names of the methods of each group; imports all plug-ins with methods."""
        found: dict[str, tuple[str, ...]] = {}
        for name, method in self.items():
            if method.group:
                found[method.group] = (*found.get(method.group, ()), name)
        return found

    def __contains__(self, name: object) -> bool:
        """Whether a method is known, without importing its plug-in."""
        return name in self._known or name in plugins_of(ENTRY_POINTS)


METHODS = Methods(
    *(
        Method("costada", CostAda, "credit per dollar, conditioned on the remaining budget", {}),
        Method(
            "costada-thompson",
            CostAdaThompson,
            "CostAda with frontiers drawn by gain per dollar",
            {},
        ),
        Method("adaevolve", AdaEvolve, "adaptive frontiers, blind to cost", {}),
        Method(
            "no-cost-calibration",
            CostAda,
            "CostAda without the division by cost",
            {"calibrates_cost": False},
        ),
        Method(
            "no-remaining-budget",
            CostAda,
            "CostAda that does not see what is left",
            {"conditions_on_budget": False},
        ),
        Method(
            "no-intervention-gating",
            CostAda,
            "CostAda that buys guides on stagnation alone",
            {"gates_intervention": False},
        ),
        Method("uniform", Uniform, "frontiers in turn, no guide", {}),
        Method("best-of-n", BestOfN, "independent changes of the initial program", {}),
    )
)
"""The methods there are; a third party registers its own as an entry point of `ENTRY_POINTS`."""
