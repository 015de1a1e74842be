"""Secrets from files, as orchestrators mount them: `NAME_FILE` names a file with what `NAME` is."""

import os
from pathlib import Path

KEY, FILE = "_API_KEY", "_FILE"
SECRETS = (
    *("COSTADA_MCP_TOKEN", "COSTADA_WATCH_TOKEN", "COSTADA_ALERT_WEBHOOK", "COSTADA_STORE"),
    "PGPASSWORD",
)
"""Variables that may be in a file, besides every `..._API_KEY`."""

MAX_CHARS = 10_000


def read_secret_files() -> None:
    """Set each secret in the environment of which only the file is named there.

    Raises:
        ValueError: A secret is given in both ways, or a file is empty, too long or cannot be read.
    """
    for variable, path in [*os.environ.items()]:
        name = variable.removesuffix(FILE)
        if name == variable or not (name.endswith(KEY) or name in SECRETS):
            continue
        if os.environ.get(name):
            raise ValueError(f"{variable}: got a file beside {name}, expected only one of the two")
        try:
            with Path(path).open(encoding="utf-8") as file:
                secret = file.read(MAX_CHARS + 1).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{variable}: {path} cannot be read ({error})") from None
        if not secret or len(secret) > MAX_CHARS:
            what = "more than 10,000 characters" if secret else "an empty file"
            raise ValueError(f"{variable}: got {what}, expected the secret")
        os.environ[name] = secret
