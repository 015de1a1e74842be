"""Addresses of engines: which are accepted, and which are on this machine."""

import pytest

from costada.evaluators.remote.backend import evaluated_by
from costada.evaluators.remote.engine import is_local, open_engine

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    "address",
    [
        *("", "dask", "dask://", "dask://127.0.0.1", "dask://user@127.0.0.1:1"),
        *("local:0", "local:99999", "ray://", "slurm", "slurm://a:1", "pbs", "pbs://a:1"),
    ],
)
def test_another_address_is_refused(address, here):
    message = r"evaluations: got .*, expected here, local:N \(1 to 9999\), dask://HOST:PORT"
    with pytest.raises(ValueError, match=message):
        evaluated_by(here, address)


def test_evaluations_in_process_need_no_backend(here):
    assert evaluated_by(here, "here") is here


def test_an_engine_that_is_not_installed_is_refused():
    with pytest.raises(ValueError, match=r"^pbs://a:1: engine pbs is not installed$"):
        open_engine("pbs://a:1")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("here", True),
        ("local:2", True),
        ("ray://auto", True),
        ("dask://localhost:8786", True),
        ("dask://127.0.0.1:8786", True),
        ("dask://[::1]:8786", True),
        ("dask://10.0.0.1:8786", False),
        ("dask://example.com:8786", False),
        ("ray://localhost.example.com:10001", False),
        ("pbs:example.com", False),
    ],
)
def test_which_addresses_are_on_this_machine(address, expected):
    assert is_local(address) is expected
