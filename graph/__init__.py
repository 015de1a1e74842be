"""Who goes next: the state that travels, the routes, and the compiled discovery graph."""
