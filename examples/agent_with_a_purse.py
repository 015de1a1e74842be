"""An agent and the search that it starts, paid from one purse of fifty cents.

Needs `pip install "costada[agents]"`:

    python examples/agent_with_a_purse.py
"""

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult

from costada import (
    BudgetMiddleware,
    OfflineModel,
    Price,
    Purse,
    create_discovery_tool,
)


class ScriptedModel(BaseChatModel):
    """Replaces a provider, so that no key is needed; any chat model with tools works."""

    model_name: str = "scripted"

    @property
    def _llm_type(self) -> str:
        return self.model_name

    def bind_tools(self, tools: object, **kwargs: object) -> "ScriptedModel":
        """The model itself: its script knows the tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: object, **kwargs: object) -> ChatResult:
        """Start a search with ten dollars, then summarise its result."""
        usage = {"input_tokens": 2000, "output_tokens": 500, "total_tokens": 2500}
        order = ToolCall(name="discover", args={"budget": 10.0}, id="order-1")
        if messages[-1].type == "human":
            answer = AIMessage("", tool_calls=[order], usage_metadata=usage)
        else:
            lines = messages[-1].text.splitlines()
            answer = AIMessage(
                f"This is what I found.\n{lines[0]}\n{lines[1]}", usage_metadata=usage
            )
        return ChatResult(generations=[ChatGeneration(message=answer)])


with Purse(0.50, policy="hard") as purse:
    agent = create_agent(
        ScriptedModel(),
        tools=[
            create_discovery_tool(
                "circle_packing",
                OfflineModel(),
                max_budget=0.05,  # whatever the agent asks for
                budget_policy="hard",
                seed=2,
                purse=purse,
            )
        ],
        middleware=[BudgetMiddleware(purse, price=Price(2, 8))],
    )
    answered = agent.invoke({"messages": [("user", "Pack 26 circles into a square, please.")]})
    print(answered["messages"][-1].text)
    search = purse.accounts()[1]
    print(f"the search spent ${search.spent}, the agent ${purse.spent - search.spent}")
    print(f"together ${purse.spent} of ${purse.budget}; ${purse.remaining} are left")
