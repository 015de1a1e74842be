"""The names of the places where evaluations run."""

import re

HERE = "here"
"""The word for evaluations in the process of the run."""

FORMS = f"{HERE}, local:N, dask://HOST:PORT, ray://HOST:PORT or ray://auto"
ADDRESS = re.compile(
    r"(?P<cluster>dask|ray)://(?P<place>[^\s/]+)|local:(?P<number>[1-9][0-9]{0,3})"
)


def checked_place(given: str) -> str:
    """The name of a place, as it was given; raises `ValueError` if it is none."""
    if given != HERE and not ADDRESS.fullmatch(given):
        raise ValueError(f"got {given!r}, expected {FORMS}")
    return given
