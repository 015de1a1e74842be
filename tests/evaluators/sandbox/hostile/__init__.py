"""A collection of misbehaving candidates, and what it takes to watch an evaluator run them."""
