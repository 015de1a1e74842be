"""A server that offers searches to MCP clients."""
