"""What only EvoX needs: its strategies, and how they evolve."""
