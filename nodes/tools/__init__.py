"""The generators that do more than answer once: a model with tools, and a command."""
