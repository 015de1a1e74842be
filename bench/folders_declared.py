"""What `folders_declared.toml` says that a user has to do for a folder."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path


@dataclass(frozen=True)
class Declaration:
    """What a user has to do for a folder beyond `costada adopt` and `costada prepare`.

    Attributes:
        folders: Patterns of paths that begin with the tool's name.
        settings: Lines of `problem.toml`.
        packages: What `costada prepare --with` gets.
        data: Where files of `--data` are put, below the checkout, before anything is tried.
        environment: Variables; `{checkout}` stands for its path.
        script: Python that is run in the folder.
        missing: What this machine lacks, so that all but trying it unchanged would be in vain.
    """

    folders: tuple[str, ...] = ()
    settings: str = ""
    packages: tuple[str, ...] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    script: str = ""
    missing: str = ""

    @property
    def asks_for_something(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.settings or self.packages)


def declaration_for(path: str) -> Declaration:
    """What is declared for a folder: the first entry whose pattern fits."""
    text = Path(__file__).with_name("folders_declared.toml").read_text("utf-8")
    for entry in tomllib.loads(text)["declared"]:
        if any(fnmatch(path, pattern) for pattern in entry["folders"]):
            return Declaration(**entry)
    return Declaration()
