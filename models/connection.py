"""Time limits and headers that clients and the gateway share. Imports no library."""

KEPT_OPEN_SECONDS = 4.0
"""How long an idle connection is kept open. Common servers close theirs after 5 seconds."""

CONNECT_SECONDS = 30.0
"""Longest time until a server accepts a connection: a machine that is off sends no reply at all."""

# A gateway is a process that journals responses and reports them again after a crash. It is a
# plug-in; all that paid calls know of it is the mark on its models and the key of a call.
CALL_HEADER = "X-CostAda-Call"
"""The logical call: run_id/ticket/role/attempt, the same when it is executed again."""

EXECUTION_HEADER = "X-CostAda-Execution"
"""Which execution of that call is asking; new each time the call is executed."""
