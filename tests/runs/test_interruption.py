import signal

import pytest
from langgraph.runtime import RunControl

from costada.runs.interruption import SIGNALS, STOPPING, draining_on_signal


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_the_run_to_drain_and_says_so(number: signal.Signals) -> None:
    control, heard = RunControl(), []
    with draining_on_signal(control, heard.append):
        signal.raise_signal(number)
    assert control.drain_reason == number.name
    assert heard == [STOPPING]


def test_the_second_signal_stops_at_once() -> None:
    control, heard = RunControl(), []
    with draining_on_signal(control, heard.append):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert heard == [STOPPING]


def test_the_callers_handlers_come_back_even_after_an_error() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(KeyError), draining_on_signal(RunControl(), print):
        raise KeyError
    assert [signal.getsignal(number) for number in SIGNALS] == before
