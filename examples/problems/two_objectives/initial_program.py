import math

POINTS = 8


def knots():
    step = 6.3 / (POINTS - 1)
    return [(step * i, math.sin(step * i)) for i in range(POINTS)]
