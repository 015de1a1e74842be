"""Simulated and recorded worlds, menus drawn for them, and the proposition."""
