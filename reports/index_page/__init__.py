"""The page of many runs: an index of a folder, live."""
