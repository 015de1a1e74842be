"""What plugs a search into a graph, an agent or an MCP client."""
