"""Turns what a meter reports into what a server bills, to compare the two."""

from billing_server import Bill

from costada.models.metering import MeteredCall


def as_billed(calls: list[MeteredCall]) -> list[Bill]:
    return [
        Bill(
            call.model,
            call.usage.input_tokens,
            call.usage.output_tokens,
            call.usage.cached_tokens,
            call.usage.reasoning_tokens,
        )
        for call in calls
        if call.usage.input_tokens or call.usage.output_tokens
    ]
