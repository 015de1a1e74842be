"""Worlds without a paid model, the proposition, and the published tables."""
