"""Scoring: what a problem is, how a candidate is run apart from us, and what it is worth."""
