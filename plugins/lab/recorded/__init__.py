"""A world that resamples recorded answers of a language model."""
