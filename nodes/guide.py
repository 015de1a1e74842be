"""Node: buy the guide call that was decided on."""

from costada.nodes.context import PaidNode
from costada.nodes.tactic_batch import accept_tactics, buy_tactics, tactics_prompt

guide = PaidNode(prompt=tactics_prompt, buy=buy_tactics, accept=accept_tactics)
"""Buy tactics: the controller opens a cycle with them, or notes that there are none (B.4.3).

The calls belong to the step that follows, which is charged for them.
"""
