"""Runs untrusted code in a separate process and returns plain data."""
