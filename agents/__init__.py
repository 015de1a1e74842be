"""What plugs a search into somebody's graph or agent."""
