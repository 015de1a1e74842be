"""Experiment trackers: each is one file here, and runs in a process of its own."""
