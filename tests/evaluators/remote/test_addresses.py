"""Addresses of engines: which are accepted, and which are on this machine."""

import pytest

from costada.evaluators.remote.backend import evaluated_by
from costada.evaluators.remote.engine import endpoint_place, host_towards, is_local, open_engine

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    "address",
    [
        *("", "dask", "dask://", "dask://127.0.0.1", "dask://user@127.0.0.1:1"),
        *("local:0", "local:99999", "ray://", "slurm", "slurm://a:1", "pbs", "pbs://a:1"),
    ],
)
def test_another_address_is_refused(address, here):
    message = r"evaluate_on: got .*, expected here, local:N \(1 to 9999\), dask://HOST:PORT"
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


@pytest.mark.parametrize(
    "address",
    ["local:2", "ray://auto", "dask://localhost:8786", "threads:4", "ThreadPoolExecutor"],
)
def test_workers_of_this_machine_reach_the_run_at_loopback(address):
    assert host_towards(address) == "127.0.0.1"


def test_an_engine_that_cannot_be_reached_needs_an_endpoint():
    with pytest.raises(OSError, match=r"dask://\S+: this machine has no .*--endpoint"):
        host_towards("dask://no-such.invalid:1")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("10.0.0.5", ("10.0.0.5", 0)),
        ("node-1.example.com:4000", ("node-1.example.com", 4000)),
        ("[fd00::2]", ("fd00::2", 0)),
        ("[fd00::2]:4000", ("fd00::2", 4000)),
    ],
)
def test_an_endpoint_is_a_host_with_or_without_a_port(given, expected):
    assert endpoint_place(given) == expected


@pytest.mark.parametrize("given", ["", "http://10.0.0.5", "10.0.0.5:", "a:70000", "fd00::2"])
def test_another_endpoint_is_refused(given):
    with pytest.raises(ValueError, match="expected an address of this machine: HOST or HOST:PORT"):
        endpoint_place(given)


@pytest.mark.parametrize("given", ["0.0.0.0", "0.0.0.0:4000", "0:4000", "[::]:4000", "[::]"])
def test_an_endpoint_at_which_workers_would_reach_themselves_is_refused(given):
    with pytest.raises(ValueError, match="every machine means itself"):
        endpoint_place(given)
