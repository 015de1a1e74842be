"""Text for a model, and reading a model's replies."""
