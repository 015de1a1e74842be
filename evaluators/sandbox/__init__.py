"""Runs code we do not trust in a process of its own and takes back plain data."""
