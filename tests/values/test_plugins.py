import sys
from functools import partial
from operator import getitem

import pytest
from needed_plugins import needs_plugin

from costada.cli.main import app
from costada.controller.methods import METHODS
from costada.evaluators.registry import problem
from costada.evaluators.remote.engine import open_engine
from costada.models.chat_models import chat_model
from costada.reports.tracking import tracker_kind
from costada.values.plugins import load_plugin, plugins_of


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a distribution with entry points: installed("name = module:attribute")."""

    def install(*lines: str, group: str = "costada.models") -> None:
        folder = tmp_path / "tens-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Name: tens\nVersion: 1\n")
        (folder / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    return install


@needs_plugin("offline")
def test_plugins_of_a_group_are_found_by_name_in_alphabetical_order(installed):
    installed("tens = math:tau", "alone = math:pi")
    found = plugins_of("costada.models")
    assert list(found) == sorted(found)
    assert {"alone", "offline", "tens"} <= set(found)
    assert found["alone"].load() == 3.141592653589793


def test_a_plugin_of_this_package_whose_folder_is_missing_is_not_registered(installed):
    installed("gone = costada.plugins.gone:Model", "deeper = costada.plugins.gone.model:Model")
    assert not {"gone", "deeper"} & set(plugins_of("costada.models"))


def test_a_missing_module_of_another_package_is_an_error_that_names_it(installed):
    installed("broken = no_such_package:Model")
    expected = r"broken: the plug-in 'no_such_package:Model' of tens cannot be loaded: No module"
    with pytest.raises(ValueError, match=expected):
        load_plugin(plugins_of("costada.models")["broken"], object)


def test_no_plugin_is_registered_in_an_unknown_group():
    assert not plugins_of("costada.nothing")


@needs_plugin("lab")
def test_a_command_that_cannot_be_loaded_says_so_and_the_others_are_listed(installed, capsys):
    installed("broken = no_such_package:COMMAND", group="costada.commands")
    shown = []
    for arguments in (["--help"], ["broken"]):
        with pytest.raises(SystemExit) as ended:
            app(arguments)
        output = capsys.readouterr()
        shown.append((ended.value.code, " ".join((output.out + output.err).split())))
    (helped, text), (refused, error) = shown
    assert (helped, refused) == (0, 2)
    assert "simulate" in text
    assert "broken" in text
    assert "broken: the plug-in 'no_such_package:COMMAND' of tens cannot be loaded" in error


A_STRING = "the plug-in 'string:digits' of tens is a str, expected a"


@pytest.mark.parametrize(
    ("group", "use", "expected"),
    [
        ("methods", partial(getitem, METHODS), f"{A_STRING} Method"),
        ("models", chat_model, f"{A_STRING} callable that returns a BaseChatModel"),
        ("problems", problem, f"{A_STRING} callable that returns a Problem"),
        ("engines", open_engine, f"{A_STRING} callable that returns an Engine"),
        ("trackers", tracker_kind, f"{A_STRING} TrackerKind"),
    ],
)
def test_a_plugin_of_a_wrong_type_is_refused_with_what_was_expected(
    installed, group, use, expected
):
    installed("wrong = string:digits", group=f"costada.{group}")
    with pytest.raises(ValueError, match=f"^wrong: {expected}$"):
        use("wrong")


@pytest.mark.parametrize(
    ("group", "use", "value", "expected"),
    [
        ("models", chat_model, "fractions:Fraction", r"cannot be called with \(seed=\): .*'seed'"),
        ("problems", problem, "os:getpid", "returned an int, expected a callable that returns a"),
        ("engines", open_engine, "os:getpid", r"cannot be called with \(a str, None\): too many"),
        ("engines", open_engine, "operator:is_", "returned a bool, expected a callable"),
        pytest.param(
            *("methods", partial(getitem, METHODS), "costada.plugins.evox:METHOD"),
            "'evox', expected",
            marks=needs_plugin("evox"),
        ),
    ],
)
def test_a_plugin_that_makes_or_is_something_else_is_refused(
    installed, group, use, value, expected
):
    installed(f"wrong = {value}", group=f"costada.{group}")
    with pytest.raises(ValueError, match=f"^wrong: the plug-in '{value}' of tens .*{expected}"):
        use("wrong")


def test_a_method_is_added_under_its_own_name():
    with pytest.raises(
        ValueError, match="method mine: got a Method named 'uniform', expected mine"
    ):
        METHODS["mine"] = METHODS["uniform"]


def test_a_command_of_a_wrong_type_is_refused(installed, capsys):
    installed("wrong = string:digits", group="costada.commands")
    with pytest.raises(SystemExit) as ended:
        app(["wrong"])
    assert ended.value.code == 2
    error = " ".join(capsys.readouterr().err.split())
    assert error == f"costada: wrong: {A_STRING} PluginCommand"
