"""The environment of the processes that CostAda starts, as a list of what it may contain.

The environment that a process is started with stays readable in /proc/PID/environ, for all programs
of the same user and for as long as the process lives. API keys and passwords are therefore on no
list: a process that needs them gets them over a pipe or with each request.
"""

import os
from fnmatch import fnmatchcase

ALLOWED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "SUDO_UID"),
    *("LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TEMP", "TMP", "XDG_*"),
    *("PYTHON*", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
    *("CUDA_*", "*_VISIBLE_DEVICES", "*_NUM_THREADS", "RUSTUP_HOME", "CARGO_HOME"),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"),
    *("CONTAINER_HOST", "CONTAINER_CONNECTION", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"),
    "DBUS_SESSION_BUS_ADDRESS",
)
"""Variables that every process gets, as patterns."""

NETWORK = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
"""Variables of processes that use the network; the address of a proxy may hold its password."""


def helper_environment(*also: str) -> dict[str, str]:
    """The variables of this process that a process started by it gets.

    Args:
        also: Patterns of further variables that it needs.
    """
    patterns = (*ALLOWED, *also)
    return {
        name: value
        for name, value in os.environ.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }
