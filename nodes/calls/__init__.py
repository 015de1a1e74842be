"""One paid model call: asked, checked against the budget, journaled and charged."""
