"""The discovery graph: its nodes and edges, its routes, and the compiled graph."""
