"""The provider of a model, and which requests of clients are sent to it."""

from typing import Any, NamedTuple

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable

from costada.models.endpoint.client_requests import forwarded_body
from costada.models.endpoint.exchange import ClientRequest, Dialect, Refusal
from costada.models.langchain_openai import request_facts, send_body, sending_sdk
from costada.models.providers import STANDARD_TIER, RetryPolicy
from costada.models.retries import RetriedModel, Retries
from costada.models.runnable_tree import (
    JOURNAL,
    AskedModel,
    OutgoingRequest,
    asked_models,
    requested_model,
    sent_parameters,
    stated_caps,
)

ChatModel = Runnable[LanguageModelInput, AIMessage]


class Target(NamedTuple):
    """The provider of a model, as requests reach it.

    Attributes:
        sdk: The SDK that sends them, "openai" or "anthropic".
        asked: The chat model whose client does, and what is bound to it.
        sent_name: The name of the model that the provider gets.
        outgoing: A request before a client's part of it is known.
        retries: How a failed one is sent again.
    """

    sdk: str
    asked: AskedModel
    sent_name: str
    outgoing: OutgoingRequest
    retries: Retries

    def outgoing_for(self, request: ClientRequest) -> OutgoingRequest:
        """What the provider is asked for a client."""
        caps = (request.output_cap, self.outgoing.output_cap)
        return self.outgoing._replace(
            output_cap=min((cap for cap in caps if cap is not None), default=None),
            choices=request.choices,
            input_bound=request.input_bound,
            is_all_text=request.is_all_text,
        )

    async def send(self, request: ClientRequest, output_cap: int | None) -> Any:
        """Send a request once, with a bound of the answer's tokens; returns the open response."""
        tier = self.asked.service_tier
        body = forwarded_body(request, self.sent_name, output_cap, tier)
        headers = {**request.headers, **(self.asked.bound.get("extra_headers") or {})}
        path = f"/{request.dialect}" if self.sdk == "openai" else f"/v1/{request.dialect}"
        return await send_body(self.asked.model, path, body, headers)


def target_of(model: ChatModel, policy: RetryPolicy) -> Target | None:
    """Where the requests of a model go; `None` if they have to be translated."""
    models = asked_models(model)
    sdk = sending_sdk(models[0].model) if len(models) == 1 else None
    if sdk is None:
        return None
    asked = models[0]
    facts = request_facts(*asked)
    sent = sent_parameters(facts.params)
    caps = [*stated_caps(vars(asked.model)), *stated_caps(sent)]
    name = requested_model(facts)
    outgoing = OutgoingRequest(
        model=name,
        provider=asked.provider,
        output_cap=min(caps, default=None),
        choices=1,
        input_bound=0,
        gateway=str(facts.metadata.get(JOURNAL, "")),
    )
    part: Any = model
    while not isinstance(part, RetriedModel) and hasattr(part, "bound"):
        part = part.bound
    once = Retries(1, policy.retry_wait, policy.longest_wait)
    return Target(
        sdk,
        asked,
        str(sent.get("model") or sent.get("model_name") or name),
        outgoing,
        part.retries if isinstance(part, RetriedModel) else once,
    )


def check_protocol(request: ClientRequest, target: Target) -> None:
    """Refuse what the model's provider does not know, or what has another price."""
    sdk = "anthropic" if request.dialect is Dialect.MESSAGES else "openai"
    if sdk != target.sdk:
        raise Refusal(
            400,
            "protocol",
            f"model {request.model!r}: has no {request.dialect}, expected a request in the"
            f" protocol of {target.sdk} or chat completions",
        )
    own, asked = target.asked.service_tier, request.body.get("service_tier")
    if asked not in (None, "auto", "standard_only", STANDARD_TIER if own is None else own):
        raise Refusal(
            400,
            "invalid_value",
            f"service_tier: got {str(asked)[:50]!r}, expected that of the model:"
            f" {own or STANDARD_TIER}",
        )
