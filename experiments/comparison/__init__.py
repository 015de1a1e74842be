"""Finished runs side by side: metrics, tables, figures, one page."""
