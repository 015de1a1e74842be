"""A simulated landscape, and the chat model that searches it like a language model would.

`landscape`, `proposals`, `tokens` and `advice` are pure: numbers and a random generator in, an
outcome out. `model` wraps them for a graph; a simulation calls them directly.
"""
