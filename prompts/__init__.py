"""Words for a model, and reading a model's words."""
