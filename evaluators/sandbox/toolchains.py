"""What Rust keeps in the home folder, which a sandbox hides: its toolchain, and crates."""

import os
import tomllib
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from shutil import which

RUSTUP = "rustup"
RUSTC = "rustc"
CARGO_HOME, OFFLINE = "CARGO_HOME", "CARGO_NET_OFFLINE"
CRATES = "registry"
"""The folder of Cargo's home with the crates that it has downloaded; credentials are beside it."""

CONFIGS = ("config.toml", "config")
WITHOUT_SECRETS = {"alias", "build", "net", "patch", "profile", "source", "target", "term"}
"""Tables of Cargo's configuration that hold no token or password."""


def rustup_toolchain(program: str) -> str | None:
    """The folder of the toolchain that a link to rustup stands for; None if it is not such a link.

    A pattern of all toolchains if none of those installed holds the program.
    """
    name = os.path.basename(program)
    if name == RUSTUP or os.path.basename(os.path.realpath(program)) != RUSTUP:
        return None
    home = os.environ.get("RUSTUP_HOME") or os.path.expanduser("~/.rustup")
    holding = sorted(Path(home, "toolchains").glob(f"*/bin/{name}"))
    folders = [str(path.parents[1]) for path in holding]
    usual = [path for path in folders if os.path.basename(path).startswith("stable")]
    return next(iter([*usual, *folders]), f"{home}/toolchains/*")


def installed_toolchains() -> list[str]:
    """What programs may read so that `rustc` and `cargo` start, where Rust is installed.

    That is the toolchain, as no rustup chooses one there, and the crates that Cargo has downloaded.
    """
    compiler = which(RUSTC)
    if compiler is None:
        return []
    toolchain = rustup_toolchain(compiler)
    return [*([toolchain] if toolchain else []), *cargo_files()]


def cargo_files() -> list[str]:
    """What programs may read of Cargo's home, so that it builds with crates it has downloaded.

    That is nothing if its configuration may hold a secret: Cargo ends where it cannot read it.
    """
    home = _cargo_home()
    configs = [path for name in CONFIGS if (path := home / name).is_file()]
    if not all(map(_is_without_secrets, configs)):
        return []
    return [str(path) for path in (home / CRATES, *configs) if path.exists()]


def cargo_environment(readable: Collection[str], *, has_network: bool) -> dict[str, str]:
    """The variables by which Cargo finds its files, for a program that may read them."""
    files = cargo_files()
    if not files or not set(files) <= set(readable):
        return {}
    return {CARGO_HOME: str(_cargo_home())} | ({} if has_network else {OFFLINE: "true"})


def _cargo_home() -> Path:
    return Path(os.environ.get(CARGO_HOME) or os.path.expanduser("~/.cargo"))


def _is_without_secrets(config: Path) -> bool:
    with suppress(OSError, ValueError):
        return tomllib.loads(config.read_text("utf-8")).keys() <= WITHOUT_SECRETS
    return False
