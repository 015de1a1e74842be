"""The rules of the method: pure functions over frozen values, one equation per function.

Nothing here reads a clock, a file, the network or hidden randomness. Constants and random
generators come in as arguments, and every function returns a new value instead of changing one.
`costada` puts the rules in the order of Algorithm 1; every other file holds one group of them.
"""
