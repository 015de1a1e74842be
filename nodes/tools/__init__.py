"""The generator that works with tools."""
