"""Chat models, what a call of one costs, and what can go wrong with it."""
