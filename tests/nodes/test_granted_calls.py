"""Models that are granted to others than the search, asked through the endpoint of the process."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

import pytest
from impatience import PATIENCE
from metered_calls import KEY, client, context_for

from costada.nodes.calls.granted_calls import Allowance, Grant
from costada.nodes.context import RunContext
from costada.nodes.state import Account, Flight, Run, SearchState, Step
from costada.values.model_access import ModelAccess
from costada.values.numbering import START

pytestmark = pytest.mark.process

STATE: SearchState = {
    "run": Run(KEY.run_id, 0, KEY.run_id),
    "step": Step(),
    "flight": Flight(),
    "account": Account(),
    "iterations": START,
}


@contextmanager
def granted(context: RunContext) -> Iterator[Grant]:
    """The first model of a context, under the name of agent."""
    allowance = Allowance(1.0, "the budget", is_strict=False)
    grant = Grant(KEY, "test", {"agent": context.menu[0]}, STATE, context, allowance)
    try:
        yield grant
    finally:
        grant.close()


def requested(access: ModelAccess, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """What the endpoint answers; raises `HTTPError` where it refuses."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{access.url}/v1/{path}", data, {"Authorization": f"Bearer {access.token}"})
    with urlopen(request, timeout=PATIENCE) as response:
        return json.load(response)


def test_a_forked_process_knows_the_tokens_of_its_own_grants(server):
    with granted(context_for(client(server))) as ours:
        assert requested(ours.new_access(), "models")["data"][0]["id"] == "agent"
    child = os.fork()
    if not child:
        status = 1
        try:
            with granted(context_for(client(server))) as grant:
                requested(grant.new_access(), "models")
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
