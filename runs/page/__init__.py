"""A run as a page: one file that needs no network, or live on this machine."""
