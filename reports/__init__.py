"""What shows a run: page, picture, table, graph drawing."""
