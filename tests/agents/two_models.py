"""One billed server for the model of an agent and for that of the search it orders."""

import json
from decimal import Decimal

from billing_server import BillingServer, Reply
from fakes import IDEAS, is_guide_prompt, rewrite

SEARCHER, AGENT = "searcher", "agent"
CALL_COST = Decimal("0.002")
"""1,000 input tokens at 1 dollar and 500 output tokens at 2 dollars per million."""


class Provider(BillingServer):
    """Serves the agent's model, which calls tools in a given order, and the search's."""

    def orders(self, *arguments):
        self.default = lambda body: self._answer(body, arguments)
        return self

    def _answer(self, body, orders):
        messages = body["messages"]
        if body["model"] == SEARCHER:
            number = sum(request["model"] == SEARCHER for request in self.requests)
            text = (
                IDEAS
                if is_guide_prompt(str(messages[-1]))
                else rewrite(min(0.9, 0.2 + number / 50))
            )
            return Reply(text, input_tokens=1000, output_tokens=500)
        done = sum(message["role"] == "tool" for message in messages)
        if done == len(orders):
            return Reply("There it is.", input_tokens=300, output_tokens=10)
        order = orders[done]
        text = order if isinstance(order, str) else json.dumps(order)
        return Reply(text, input_tokens=200, output_tokens=20, tool="discover")

    @property
    def billed(self):
        """Dollars billed for the search's calls."""
        return CALL_COST * sum(entry.model == SEARCHER for entry in self.bill)
