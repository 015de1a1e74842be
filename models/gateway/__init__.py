"""A process between client and provider that keeps every answer, whoever dies meanwhile."""
