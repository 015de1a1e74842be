"""A simulated landscape: its problem, its model and the fast simulation."""
