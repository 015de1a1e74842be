"""Runs on the simulated landscape, by the hundred."""
