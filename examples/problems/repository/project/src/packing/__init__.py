from packing.greedy import pack

__all__ = ["pack"]
