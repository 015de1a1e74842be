"""Frozen values that several rooms share: tokens, prices, evaluations. Imports nothing."""
