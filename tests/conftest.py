"""The order of the test files: what takes longest comes first, so that no worker ends alone."""

LONGEST_FIRST = (
    "test_hostile_candidates.py",
    "test_docs.py",
    "test_cli_sweep.py",
    "test_sandbox_container.py",
    "test_kill.py",
    "test_page_in_chromium.py",
    "test_sandbox_single_use.py",
    "test_mcp_server.py",
    "test_readme.py",
    "test_theory.py",
    "test_cli_run.py",
    "test_gateway_process.py",
)


def pytest_collection_modifyitems(items):
    """Put the files that take longest in front; the others keep their order."""
    place = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))
