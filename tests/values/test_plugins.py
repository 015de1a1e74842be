import sys

import pytest

from costada.cli.main import app
from costada.values.plugins import loaded, registered


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


def test_plugins_of_a_group_are_found_by_name_in_alphabetical_order(installed):
    installed("tens = math:tau", "alone = math:pi")
    found = registered("costada.models")
    assert list(found) == sorted(found)
    assert {"alone", "offline", "tens"} <= set(found)
    assert found["alone"].load() == 3.141592653589793


def test_a_plugin_of_this_package_whose_folder_is_missing_is_not_registered(installed):
    installed("gone = costada.plugins.gone:Model", "deeper = costada.plugins.gone.model:Model")
    assert not {"gone", "deeper"} & set(registered("costada.models"))


def test_a_missing_module_of_another_package_is_an_error_that_names_it(installed):
    installed("broken = no_such_package:Model")
    expected = r"broken: the plug-in 'no_such_package:Model' of tens cannot be loaded: No module"
    with pytest.raises(ValueError, match=expected):
        loaded(registered("costada.models")["broken"])


def test_no_plugin_is_registered_in_an_unknown_group():
    assert not registered("costada.nothing")


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
