"""Searches for the configurations stored here.

    python tests/evaluators/benchmarks/configurations/search.py heilbronn_triangle 300 [SEED]

runs for 300 seconds and writes heilbronn_triangle.json whenever it beats what is there. Each
benchmark is a nonlinear program, a linear function under smooth inequalities, solved from a
given start. Starts are random (or annealed), or the best of the current round with a point or two
moved elsewhere; a round ends when that helps no longer. The stored packings took minutes, evenly
spread points seconds; Heilbronn's points come from the same annealing and the same polishing,
the annealing in compiled code for a quarter of an hour.
"""

import json
import os
import sys
from itertools import combinations
from pathlib import Path
from time import monotonic

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from scipy.optimize import linprog, minimize
from scipy.sparse import csr_array
from scipy.spatial import ConvexHull

FOLDER = Path(__file__).parent
MARGIN = 1e-9
"""Taken from every radius, as linear programs are solved up to about this."""
PRECISE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
PATIENCE = 40
"""Starts without improvement before a new round begins."""
TRIANGLE = np.array([[0, 0], [1, 0], [0.5, np.sqrt(3) / 2]])


def solve(start, gradient, constraints):
    """Return the optimum reached from a start; constraints(x) gives values >= 0 and Jacobian."""
    result = minimize(
        lambda x: -gradient @ x,
        start,
        jac=lambda x: -gradient,
        constraints={
            "type": "ineq",
            "fun": lambda x: constraints(x)[0] - 1e-13,
            "jac": lambda x: constraints(x)[1],
        },
        method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-14},
    )
    return result.x


def packing(circles, is_square):
    """Return the best circles (n, 3) near a start, in a square or a rectangle of perimeter 4.

    A sequence of linear programs within a shrinking range: as the distance of two centers is a
    convex function, its linear part is never too large, and each solution is valid.
    """
    count, (x, y, r), width = len(circles), circles.T, 1.0
    cost = np.repeat([0.0, -1.0, 0.0], [2 * count, count, 1])
    reach, best = 0.1, 0.0
    for _ in range(60):
        near = [
            *zip(np.maximum(x - reach, 0), x + reach, strict=True),
            *zip(np.maximum(y - reach, 0), y + reach, strict=True),
            *[(0, 0.5)] * count,
            (1, 1) if is_square else (max(width - reach, 0.5), min(width + reach, 1)),
        ]
        rows, limits = packing_rows(x, y, reach)
        solution = linprog(cost, A_ub=rows, b_ub=limits, bounds=near, options=PRECISE)
        if solution.status == 0:
            x, y, r, (width,) = np.split(solution.x, [count, 2 * count, 3 * count])
        if solution.status != 0 or np.sum(r) < best + 1e-6:
            reach *= 0.4
        best = max(best, np.sum(r))
        if reach < 1e-9:
            break
    return np.column_stack((x, y, np.maximum(r - MARGIN, 0)))


def packing_rows(x, y, reach):
    """Return the linear constraints A z <= b on z = (x, y, radii, width)."""
    count = len(x)
    i, j = np.triu_indices(count, 1)
    distance = np.maximum(np.hypot(x[i] - x[j], y[i] - y[j]), 1e-9)
    close = distance < 0.35 + 2 * reach
    i, j, distance = i[close], j[close], distance[close]
    across, up, k = (x[i] - x[j]) / distance, (y[i] - y[j]) / distance, np.arange(len(i))
    pairs = np.zeros((len(i), 3 * count + 1))
    for offset, slope in ((0, -across), (count, -up)):
        pairs[k, offset + i], pairs[k, offset + j] = slope, -slope
    pairs[k, 2 * count + i] = pairs[k, 2 * count + j] = 1.0
    eye, zero, one = np.eye(count), np.zeros((count, count)), np.ones((count, 1))
    sides = [
        [-eye, zero, eye, 0 * one],
        [eye, zero, eye, -one],
        [zero, -eye, eye, 0 * one],
        [zero, eye, eye, one],
    ]
    limits = np.repeat([0.0, 2.0], [len(i) + 3 * count, count])
    return csr_array(np.vstack((pairs, np.block(sides)))), limits


def areas(points, triples):
    """Return the doubled signed areas of the triples, and their Jacobian."""
    a, b, c = (points[triples[:, k]] for k in range(3))
    values = (b - a)[:, 0] * (c - a)[:, 1] - (c - a)[:, 0] * (b - a)[:, 1]
    jacobian = np.zeros((len(triples), points.size))
    rows = np.arange(len(triples))
    for k, edge in enumerate((b - c, c - a, a - b)):
        jacobian[rows, 2 * triples[:, k]] = edge[:, 1]
        jacobian[rows, 2 * triples[:, k] + 1] = -edge[:, 0]
    return values, jacobian


def heilbronn(points, is_triangle):
    """Return the best points (n, 2) near a start, in the triangle or with a hull of area 1."""
    count = len(points)
    triples = np.array(list(combinations(range(count), 3)))
    signs = np.sign(areas(points, triples)[0])
    hull = ConvexHull(points).vertices
    following = np.roll(hull, -1)

    def border(points):
        x, y = points.T
        if is_triangle:
            slope = np.sqrt(3)
            jacobian = np.zeros((3, count, count, 2))
            index = np.arange(count)
            jacobian[0, index, index] = (0, 1)
            jacobian[1, index, index] = (-slope, -1)
            jacobian[2, index, index] = (slope, -1)
            values = np.concatenate([y, slope - slope * x - y, slope * x - y])
            return values, jacobian.reshape(3 * count, 2 * count)
        area = np.sum(x[hull] * y[following] - x[following] * y[hull]) / 2
        jacobian = np.zeros((count, 2))
        jacobian[hull, 0] = -(y[following] - y[np.roll(hull, 1)]) / 2
        jacobian[hull, 1] = (x[following] - x[np.roll(hull, 1)]) / 2
        return np.array([1 - area]), jacobian.reshape(1, -1)

    def constraints(z):
        doubled, slopes = areas(z[:-1].reshape(-1, 2), triples)
        limits, limit_slopes = border(z[:-1].reshape(-1, 2))
        top = np.column_stack((signs[:, None] * slopes, -np.ones(len(triples))))
        bottom = np.column_stack((limit_slopes, np.zeros(len(limits))))
        return np.concatenate([signs * doubled - z[-1], limits]), np.vstack((top, bottom))

    start = np.append(points.ravel(), 0.0)
    return solve(start, np.eye(len(start))[-1], constraints)[:-1].reshape(-1, 2)


def distances(points):
    """Return the points near a start whose distances are within the least ratio."""
    count, dimensions = points.shape
    first, second = np.triu_indices(count, 1)
    rows = np.arange(len(first))

    def constraints(z):
        points = z[:-1].reshape(count, dimensions)
        edges = points[first] - points[second]
        squares = np.sum(edges**2, axis=1)
        slopes = np.zeros((len(first), count, dimensions))
        slopes[rows, first], slopes[rows, second] = 2 * edges, -2 * edges
        slopes = slopes.reshape(len(first), -1)
        values = np.concatenate([squares - z[-1], 1 - squares])
        top = np.column_stack((slopes, -np.ones(len(first))))
        return values, np.vstack((top, np.column_stack((-slopes, np.zeros(len(first))))))

    start = np.append(points.ravel(), 0.0)
    return solve(start, np.eye(len(start))[-1], constraints)[:-1].reshape(count, dimensions)


def random_circles(rng, count):
    return np.column_stack((rng.random((count, 2)), np.full(count, 0.05)))


def annealed(rng, count, corners):
    """Return points of a large least area in a convex polygon, the best of 64 annealings."""
    triples = np.array(list(combinations(range(count), 3)))
    edges = np.roll(corners, -1, axis=0) - corners
    points = rng.dirichlet(np.ones(len(corners)), (64, count)) @ corners
    least, everyone = np.zeros(64), np.arange(64)
    for heat in np.linspace(1, 0, 3000):
        trial, which = points.copy(), rng.integers(count, size=64)
        trial[everyone, which] += rng.standard_normal((64, 2)) * (0.2 * heat**2 + 0.003)
        offsets = trial[everyone, which, None] - corners
        is_inside = np.all(edges[:, 0] * offsets[..., 1] >= edges[:, 1] * offsets[..., 0], axis=1)
        a, b, c = (trial[:, triples[:, k]] for k in range(3))
        b, c = b - a, c - a
        new = np.min(np.abs(b[..., 0] * c[..., 1] - b[..., 1] * c[..., 0]), axis=1)
        accepted = is_inside & (new > least + 0.01 * heat**2 * np.log(rng.random(64)))
        points[accepted], least[accepted] = trial[accepted], new[accepted]
    return points[np.argmax(least)]


def annealed_in_polygon(rng):
    angles = np.arange(sides := rng.integers(3, 9)) * 2 * np.pi / sides
    points = annealed(rng, 13, np.column_stack((np.cos(angles), np.sin(angles))))
    return points / np.sqrt(ConvexHull(points).volume)


SEARCHES = {
    "circle_packing": (lambda rng: random_circles(rng, 26), lambda x: packing(x, True)),
    "circle_packing_rect": (lambda rng: random_circles(rng, 21), lambda x: packing(x, False)),
    "heilbronn_triangle": (lambda rng: annealed(rng, 11, TRIANGLE), lambda x: heilbronn(x, True)),
    "heilbronn_convex": (annealed_in_polygon, lambda x: heilbronn(x, False)),
    "min_max_dist_2d": (lambda rng: rng.standard_normal((16, 2)) / 4, distances),
    "min_max_dist_3d": (lambda rng: rng.standard_normal((14, 3)) / 4, distances),
}
"""Of each benchmark: what makes a random start, and what improves it."""


def moved(rng, points):
    """Return the points, all shaken a little and one or two moved between three others."""
    result = points + rng.standard_normal(points.shape) * rng.choice([0, 0.003, 0.02])
    for i in rng.choice(len(points), rng.integers(1, 3), replace=False):
        three = rng.choice(len(points), 3, replace=False)
        result[i] = rng.dirichlet(np.ones(3)) @ points[three]
    return result


def score_of(name, points):
    """Return the evaluator's score of a configuration, 0 if it is refused."""
    from costada.evaluators.registry import problem

    is_tuple = name == "circle_packing"
    output = [points[:, :2], points[:, 2], float(sum(points[:, 2]))] if is_tuple else points
    try:
        evaluation = problem(name).score(output)
    except ValueError:
        return 0.0
    return 0.0 if "tolerance" in evaluation.artifacts else evaluation.score


def main():
    name, seconds, seed = sys.argv[1], float(sys.argv[2]), int([*sys.argv, "0"][3])
    file = FOLDER / f"{name}.json"
    random_start, improve = SEARCHES[name]
    best = score_of(name, np.array(json.loads(file.read_text()))) if file.exists() else 0.0
    rng, end, failures, current, start = (
        np.random.default_rng(seed),
        monotonic() + seconds,
        0,
        0,
        None,
    )
    while monotonic() < end:
        if start is None or failures > PATIENCE:
            start, current, failures = improve(random_start(rng)), 0.0, 0
        points = improve(moved(rng, start))
        score = score_of(name, points)
        failures += 1
        if score > current + 1e-9:
            start, current, failures = points, score, 0
        if score > best:
            best = score
            print(name, score, f"{seconds + monotonic() - end:.0f} s", flush=True)
            rows = ",\n".join(json.dumps(row) for row in points.tolist())
            file.write_text(f"[\n{rows}\n]\n")


if __name__ == "__main__":
    main()
