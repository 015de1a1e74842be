"""Steps in flight: tickets, and the threads that work on them."""
