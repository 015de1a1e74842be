"""The tables of a run for other programs: flat rows, and the files that hold them."""
