"""The tables of the paper, beside those of a comparison."""
