"""Runs an installer that builds packages: confined like a program, but with a network.

What it starts reads the system, the Python that it builds for and what it is given, writes to some
folders and nowhere else, and is gone when it ends. The installer fetches what a build needs, so
addresses can be reached; sockets of this machine, over which other programs take orders, cannot.
"""

import os
from collections.abc import Mapping
from typing import Any

from costada.evaluators.sandbox.inside import kernel, process_tree
from costada.evaluators.sandbox.inside.confinement import ABI_OF_SIGNAL_SCOPE
from costada.evaluators.sandbox.inside.orders import Permissions
from costada.evaluators.sandbox.inside.system_call_filter import Filter

SYSTEM = (
    *("/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"),
    *("/etc/gai.conf", "/etc/group", "/etc/host.conf", "/etc/hosts", "/etc/ld.so.cache"),
    *("/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd", "/etc/pki", "/etc/protocols"),
    *("/etc/resolv.conf", "/etc/services", "/etc/ssl/certs", "/sys/devices/system/cpu"),
)
OF_PROCESSES = ("/proc/cpuinfo", "/proc/meminfo", "/proc/self", "/proc/stat")


def run(settings: Mapping[str, Any]) -> None:
    """Become a confined installer, below a supervisor. Never returns.

    Raises:
        ImportError: If a package for the confinement, or libseccomp, is not installed.
        OSError: If the kernel does not offer Landlock.
    """
    import landlockpy

    from costada.evaluators.sandbox.inside import seccomp

    if not landlockpy.supported():
        raise OSError("the kernel does not offer Landlock")
    process_tree.supervise(os.open(os.devnull, os.O_RDONLY), has_namespace=True)
    # Landlock does not keep modes and times of files as they are, a read-only mount does.
    is_read_only = process_tree.run_in_fork(lambda: _cover(settings["writable"])) == 0
    if is_read_only:
        _cover(settings["writable"])
    has_own_proc = os.getpid() == 1
    has_scope = landlockpy.abi_version() >= ABI_OF_SIGNAL_SCOPE
    filter_program = seccomp.confining(
        Permissions(may_start_processes=True, may_execute=True),
        has_scope=has_scope,
        owns_files=is_read_only,
        has_network=True,
    )
    access, scope = landlockpy.AccessFS, landlockpy.Scope
    read = access.READ_FILE | access.READ_DIR | access.EXECUTE
    write = read | access.WRITE_FILE | access.TRUNCATE | access.REFER
    write |= access.REMOVE_DIR | access.REMOVE_FILE
    write |= access.MAKE_DIR | access.MAKE_REG | access.MAKE_SYM | access.MAKE_FIFO
    rules = landlockpy.Ruleset(
        handled_net=landlockpy.AccessNet.BIND_TCP, scoped=scope.ABSTRACT_UNIX_SOCKET | scope.SIGNAL
    )
    of_processes = ["/proc"] if has_own_proc else OF_PROCESSES
    for path in (*SYSTEM, *of_processes, *settings["readable"]):
        if os.path.exists(path):
            of_file = access.READ_FILE | access.EXECUTE
            rules.allow_path(path, read if os.path.isdir(path) else of_file)
    rules.allow_path(os.devnull, access.READ_FILE | access.WRITE_FILE)
    for path in settings["writable"]:
        rules.allow_path(path, write)
    os.chdir(settings["folder"])
    kernel.drop_privileges()
    with rules:
        rules.restrict()
    Filter(filter_program).enforce()
    command = settings["command"]
    os.execv(command[0], command)  # noqa: S606


def _cover(writable: list[str]) -> int:
    """Make all but some folders read-only for this process; 0."""
    kernel.cover_read_only(writable)
    return 0
