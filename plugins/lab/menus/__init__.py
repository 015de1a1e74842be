"""Routers side by side on menus of simulated models."""
