"""Evaluations by an executor: other processes, other machines."""
