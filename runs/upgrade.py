"""`upgrade`: runs and purses of an earlier version, made ready for this one."""

from pathlib import Path

from costada.runs.folder import RunFolder
from costada.runs.folder_lease import hold_lease
from costada.store.address import check_path, is_database, shown_address, split_address
from costada.store.schema import FORMAT
from costada.store.sqlite_engine import upgrade_file


def upgrade(place: str) -> list[str]:
    """Upgrade a run folder, a file or a database to the format of this version.

    Each file is upgraded in one transaction, a database in one as well. A file that was upgraded is
    kept as it was beside it; of a database, its owner makes a dump before.

    Args:
        place: A run folder, the file of a run or a purse, or the address of a Postgres database.

    Returns:
        What was done, a line each; also where nothing had to be done.

    Raises:
        ValueError: The place holds nothing of CostAda, is damaged, is in use, or its format is
            newer or too old.
        OSError: A file cannot be read or written, or the server cannot be reached.
    """
    if is_database(place):
        return [_upgrade_database(split_address(place, "run")[0])]
    check_path(place, "place")
    path = Path(place)
    folder = RunFolder(path if path.is_dir() else path.absolute().parent)
    if path.is_dir() or (folder.settings.is_file() and path.name == folder.run_file.name):
        folder.load()
        with hold_lease(folder.path):
            notices = folder.upgrade()
    elif path.is_file():
        notice = upgrade_file(path)
        notices = [notice] if notice else []
    else:
        raise ValueError(f"place: got {place!r}, expected a run folder, a file or a database")
    return notices or [f"{path}: is of format {FORMAT}, as this version writes it"]


def _upgrade_database(address: str) -> str:
    shown = shown_address(address)
    from costada.store.postgres_upgrade import upgrade_database

    earlier = upgrade_database(address)
    if earlier is None:
        return f"{shown}: is of format {FORMAT}, as this version writes it"
    return f"{shown}: upgraded from format {earlier} to {FORMAT}"
