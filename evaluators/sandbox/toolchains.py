"""The toolchain of Rust that rustup keeps in the user's home folder, which a sandbox hides."""

import os
from pathlib import Path
from shutil import which

RUSTUP = "rustup"
RUSTC = "rustc"


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
    """What programs may read so that `rustc` and `cargo` start: no rustup chooses for them there.

    Empty where rustup has not installed the `rustc` of this process's PATH.
    """
    compiler = which(RUSTC)
    toolchain = rustup_toolchain(compiler) if compiler else None
    return [toolchain] if toolchain else []
