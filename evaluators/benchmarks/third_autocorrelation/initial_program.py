"""Lowers max|f*f| / (int f)^2 by gradient descent on the values of a step function."""

import numpy as np

# EVOLVE-BLOCK-START
NUM_INTERVALS = 400
NUM_STEPS = 20000
WARMUP_STEPS = 2000
DECAY_END = 18000
PEAK_RATE = 0.005
END_RATE = 5e-7
SEED = 612


def learning_rate(step):
    """Return the rate of a step: a linear rise, then a cosine down to END_RATE."""
    if step < WARMUP_STEPS:
        return PEAK_RATE * step / WARMUP_STEPS
    share = min((step - WARMUP_STEPS) / (DECAY_END - WARMUP_STEPS), 1.0)
    return END_RATE + (PEAK_RATE - END_RATE) * (1 + np.cos(np.pi * share)) / 2


def loss_and_gradient(f):
    """Return max|f*f| / (int f)^2 and its gradient, in which only the highest peak counts."""
    n = len(f)
    dx = 0.5 / n
    spectrum = np.fft.rfft(f, 2 * n)
    convolution = np.fft.irfft(spectrum * spectrum, 2 * n)[: 2 * n - 1] * dx
    k = int(np.argmax(np.abs(convolution)))
    integral = dx * np.sum(f)
    square = max(integral**2, 1e-9)
    loss = abs(convolution[k]) / square
    low, high = max(0, k - n + 1), min(n, k + 1)
    gradient = np.zeros(n)
    gradient[low:high] = 2 * dx * np.sign(convolution[k]) * f[low:high][::-1] / square
    if integral**2 > 1e-9:
        gradient -= 2 * dx * loss / integral
    return loss, gradient


def optimize():
    """Return f, a step function on [-1/4, 1/4], and its loss after all steps of Adam."""
    f = np.random.RandomState(SEED).standard_normal(NUM_INTERVALS)
    mean, variance = np.zeros_like(f), np.zeros_like(f)
    for step in range(NUM_STEPS):
        _, gradient = loss_and_gradient(f)
        mean = 0.9 * mean + 0.1 * gradient
        variance = 0.999 * variance + 0.001 * gradient**2
        unbiased_mean = mean / (1 - 0.9 ** (step + 1))
        unbiased_variance = variance / (1 - 0.999 ** (step + 1))
        f = f - learning_rate(step) * unbiased_mean / (np.sqrt(unbiased_variance) + 1e-8)
    return f, loss_and_gradient(f)[0]


# EVOLVE-BLOCK-END


def run():
    """Return the values of f, its constant c3, the loss and the number of values."""
    f, loss = optimize()
    dx = 0.5 / len(f)
    convolution = np.convolve(f, f) * dx
    c3 = np.max(np.abs(convolution)) / (dx * np.sum(f)) ** 2
    return f, float(c3), float(loss), len(f)
