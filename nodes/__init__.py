"""What makes one step happen: one thin node per file around the pure rules."""
