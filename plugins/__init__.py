"""What can be taken away without the method noticing; the other rooms find it by entry points."""
