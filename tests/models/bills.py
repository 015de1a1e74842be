"""Turns what a meter reports into what a server bills, to compare the two."""

from billing_server import Bill

from costada.models.metering import MeteredCall


def as_billed(calls: list[MeteredCall]) -> list[Bill]:
    return [
        Bill(
            call.model,
            call.input_tokens,
            call.output_tokens,
            call.cached_tokens,
            call.reasoning_tokens,
        )
        for call in calls
        if call.input_tokens or call.output_tokens
    ]
