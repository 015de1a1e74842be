"""Options made from the fields of `RunConfig`, and what a user gave by them or in a file."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from costada.cli.options import path_option
from costada.nodes.generator_command import ONE_ANSWER, WITH_TOOLS
from costada.runs.config import (
    CONTROLLER,
    LOG,
    MENU,
    OTHER_PRICES,
    SETTINGS,
    RunConfig,
    constant_names,
    setting_of,
)
from costada.runs.folder import MAX_SETTINGS
from costada.runs.models_file import MODELS_FILE, resolved_menu
from costada.runs.user_input import as_option, explain_one
from costada.store.files import read_text
from costada.values.setting import MODELS, unknown_name

Command = Callable[..., None]
PLAIN_TYPES = (bool, int, float)
"""Types that the command line parses; the text of other options goes to `RunConfig`."""

ConfigFile = Annotated[
    Path | None,
    path_option(
        "TOML file with settings, named as in settings.json. Options take precedence over it.",
        "--config",
        metavar="FILE",
    ),
]
SetValues = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting, also a constant of the controller: --set controller.base_patience=8."
        " Repeatable.",
    ),
]

ModelsFile = Annotated[
    Path | None,
    path_option(
        "TOML file with aliases, addresses, prices and named parameters of models.",
        "--models-file",
        metavar="FILE",
        show_default=f"{MODELS_FILE} if there is one",
        panel=MODELS,
    ),
]

ALL_SETTINGS = tuple(SETTINGS)
GROUPS = (CONTROLLER, OTHER_PRICES)
"""Settings with values by name: tables of a file, and NAME.KEY=VALUE of `--set`."""


def setting_option(name: str, shown_default: str | None = None) -> Any:
    """The option of a setting, as the annotation of a parameter; `None` if it has none.

    The problem is an argument. The help shows `shown_default` in place of the setting's default.
    """
    field = SETTINGS[name]
    annotated: Any = Annotated
    if name == "problem":
        return annotated[str | None, typer.Argument(metavar="PROBLEM", help=field.description)]
    shown = setting_of(field)
    if not shown.panel:
        return None
    kind, choices = _plain_type(field)
    text = (field.description or "").replace("\n", " ")
    if shown.names:
        text = f"{text.removesuffix('.')}: {', '.join(shown.names)}."
    has_opposite = kind is bool and field.default is not False
    is_plain = field.default is None or field.default is False
    default = shown_default or shown.default or (None if is_plain else str(field.default))
    option = typer.Option(
        f"{as_option(name)}/{as_option(f'no_{name}')}" if has_opposite else as_option(name),
        help=text,
        metavar=shown.metavar or choices,
        show_default=default or False,
        rich_help_panel=shown.panel,
    )
    return annotated[list[str] | None if name == LOG else kind | None, option]


def _plain_type(field: FieldInfo) -> tuple[type, str | None]:
    """The type that the command line reads, and the choices of a `Literal`."""
    kind: Any = field.annotation
    while get_origin(kind) in (Annotated, Union, UnionType):
        kind = next(each for each in get_args(kind) if each is not NoneType)
    choices = "|".join(get_args(kind)) if get_origin(kind) is Literal else None
    return (kind if kind in PLAIN_TYPES else str), choices


def with_settings(
    *names: str, from_file: bool = True, shown_default: str | None = None, **own_options: Any
) -> Callable[[Command], Command]:
    """Give a command options for settings; its argument `settings` returns the given values.

    Args:
        *names: The settings that the command takes.
        from_file: Whether the command also has `--config` and `--set`.
        shown_default: What the help shows in place of the settings' defaults.
        **own_options: Annotations of options that replace those of settings, by name.
    """

    def extend(command: Command) -> Command:
        @wraps(command)
        def extended(
            set_values: list[str] | None = None, config_file: Path | None = None, **values: Any
        ) -> None:
            given = {name: values.pop(name, None) for name in names if name in kinds}
            file = values.pop("models_file", None)
            read = partial(read_settings, given, set_values or [], config_file, names, file)
            command(settings=read, **values)

        kinds = {name: kind for name in names if (kind := setting_option(name, shown_default))}
        kinds |= own_options
        shared = {"set_values": SetValues, "config_file": ConfigFile} if from_file else {}
        if MENU in kinds:
            shared["models_file"] = ModelsFile
        keyword = inspect.Parameter.KEYWORD_ONLY
        added = [
            inspect.Parameter(name, keyword, default=None, annotation=kind)
            for name, kind in {**kinds, **shared}.items()
        ]
        own = inspect.signature(command, eval_str=True).parameters.values()
        others = [each.replace(kind=keyword) for each in own if each.name != "settings"]
        required = [each for each in others if each.default is inspect.Parameter.empty]
        optional = [each for each in others if each not in required]
        signature = inspect.Signature([*required, *added, *optional])
        extended.__signature__ = signature  # type: ignore[attr-defined]
        extended.__annotations__ = {n: p.annotation for n, p in signature.parameters.items()}
        return extended

    return extend


def read_settings(
    options: Mapping[str, object],
    set_values: Sequence[str],
    config_file: Path | None,
    names: Collection[str] = ALL_SETTINGS,
    models_file: Path | None = None,
) -> dict[str, object]:
    """The settings that a user gave; the command line wins over the file.

    Args:
        options: Values of the options; `None`: not given.
        set_values: The texts NAME=VALUE of `--set`.
        config_file: A TOML file with settings.
        names: The settings that the command takes.
        models_file: Explains the models of a menu; see `resolved_menu`.

    Raises:
        ValueError: A name is unknown or not taken, a value is not NAME=VALUE, the file is not TOML.
        OSError: The file cannot be read.
    """
    given: dict[str, Any] = _read_file(config_file) if config_file else {}
    named = {text.partition("=")[0] for text in set_values}
    named |= {name for name, value in options.items() if value not in (None, [])}
    model = options.get("model")
    if model is not None and MENU in named:  # in a file, model may be the label of the models
        raise ValueError(f"model: got {model!r} with models, expected only one of them")
    if config_file:
        _check_values(config_file, {name: given[name] for name in given.keys() - named - {MENU}})
    groups = {name: dict(given.pop(name, {})) for name in GROUPS}
    known = [name for name in SETTINGS if name not in GROUPS]
    known += [f"{CONTROLLER}.{name}" for name in constant_names()]
    for text in set_values:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set: got {text!r}, expected NAME=VALUE")
        group, dot, key = name.partition(".")
        if name not in known and not (group == OTHER_PRICES and key):
            raise ValueError(unknown_name("setting", name, [*known, f"{OTHER_PRICES}.MODEL"]))
        if options.get(name) is not None:
            raise ValueError(f"--set {name}: also given as {as_option(name)}, expected one of them")
        (groups[group] if dot else given)[key or name] = _value(value)
    for name in given:
        if name in ALL_SETTINGS and name not in names:
            raise ValueError(f"{name}: this command does not take it from a file or --set")
    given |= {name: value for name, value in options.items() if value not in (None, [])}
    _check_generator(given)
    if MENU in given:
        given[MENU] = resolved_menu(given[MENU], models_file)
    elif models_file is not None:
        raise ValueError(
            f"--models-file: got {models_file} without --models, expected both or none"
        )
    return given | {name: values for name, values in groups.items() if values}


def _check_generator(given: Mapping[str, Any]) -> None:
    """Refuse settings of generators that are not chosen, and of steps in flight where one is."""
    generator = given.get("generator", ONE_ANSWER)
    if "tool_evaluations" in given and generator != WITH_TOOLS:
        raise ValueError("--tool-evaluations: needs --generator agent")
    if "gains_in_flight" in given and given.get("parallel", 1) == 1:
        raise ValueError("--gains-in-flight: needs --parallel above 1")
    if "generator_timeout" in given and generator in (ONE_ANSWER, WITH_TOOLS):
        raise ValueError("--generator-timeout: needs a command as --generator")


def _read_file(path: Path) -> dict[str, Any]:
    try:
        given = tomllib.loads(read_text(path, MAX_SETTINGS))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    for name in GROUPS:
        if not isinstance(given.get(name, {}), dict):
            raise ValueError(f"{path}: {name}: expected a table")
    return given


def _check_values(path: Path, given: Mapping[str, object]) -> None:
    """Name the file if one of its values is wrong; combinations are checked with the options."""
    try:
        RunConfig.model_validate(given)
    except ValidationError as error:
        wrong = [each for each in error.errors() if each["loc"] and each["type"] != "missing"]
        lines = [f"{path}: {explain_one(each, RunConfig.model_fields)}" for each in wrong]
        if lines:
            raise ValueError("\n".join(lines)) from None


def _value(text: str) -> object:
    """The value of a string in TOML; one that is not TOML stands for itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
