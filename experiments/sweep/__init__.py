"""Many parallel runs, each in its own process."""
