"""Functions that many programs of the collection use; a program gets those it calls.

Programs print a marker when an attack step worked. It is put together at run time, so that a
quoted source line is never taken for one.
"""

import re

FUNCTIONS = {
    "packing": """
def packing():
    import numpy as np
    k = np.arange(5) * 0.2 + 0.1
    centers = np.vstack([np.column_stack([np.repeat(k, 5), np.tile(k, 5)]), [[0.8, 0.8]]])
    radii = np.append(np.full(25, 0.099), 0.04)
    return centers, radii, float(radii.sum())
""",
    "overlapping": """
def overlapping():
    centers, radii, _ = packing()
    return centers, radii * 2, float(radii.sum() * 2)
""",
    "marker": """
def marker(text):
    print("CAN" "ARY-" + text, flush=True)
""",
    "tell": '''
def tell(data):
    """Print what is secret in some bytes."""
    import re
    found = re.search(b"sk-CANAR[Y]-[0-9a-z]+|CANAR[Y]", bytes(data))
    if found:
        marker("read " + found.group().decode())
''',
    "ancestors": '''
def ancestors():
    """Yield the pids of this process's parent and grandparents, four at most, never init."""
    import os
    pid = os.getppid()
    for _ in range(4):
        if pid <= 1:
            return
        yield pid
        try:
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            return
''',
    "attempt": '''
def attempt(action, *arguments):
    """Return what an attack step returns, None if it is refused."""
    try:
        return action(*arguments)
    except (OSError, ValueError, ImportError, AttributeError, RuntimeError):
        return None
''',
    "system_call": '''
def system_call(name, *arguments):
    """Return what a raw system call returns."""
    import ctypes, platform
    numbers = {"x86_64": 0, "aarch64": 1}
    table = {
        "socket": (41, 198), "clone": (56, 220), "clone3": (435, 435), "kill": (62, 129),
        "ptrace": (101, 117), "io_uring_setup": (425, 425), "memfd_create": (319, 279),
        "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438),
        "tgkill": (234, 131), "tkill": (200, 130), "bpf": (321, 280), "keyctl": (250, 219),
        "add_key": (248, 217), "userfaultfd": (323, 282), "perf_event_open": (298, 241),
        "openat": (257, 56), "name_to_handle_at": (303, 264), "mount": (165, 40),
        "setns": (308, 268), "unshare": (272, 97), "process_vm_readv": (310, 270),
        "process_madvise": (440, 440), "shmget": (29, 194), "msgget": (68, 186),
        "semget": (64, 190), "prlimit64": (302, 261), "fanotify_init": (300, 262),
        "open_tree": (428, 428), "fsopen": (430, 430), "mq_open": (240, 180),
        "kcmp": (312, 272), "init_module": (175, 105), "personality": (135, 92),
        "fchmodat2": (452, 452), "setxattrat": (463, 463), "openat2": (437, 437),
        "mseal": (462, 462), "futex_waitv": (449, 449), "move_pages": (279, 239),
        "close_range": (436, 436), "exit": (60, 93),
    }
    number = table[name][numbers[platform.machine()]]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    plain = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return libc.syscall(ctypes.c_long(number), *plain)
''',
    "open_pipes": '''
def open_pipes():
    """Return the descriptors above standard error."""
    import os
    found = []
    for fd in range(3, 300):
        try:
            os.fstat(fd)
        except OSError:
            continue
        found.append(fd)
    return found
''',
    "frame": '''
def frame(header, *bodies):
    """Return an answer in the form the sandbox uses: a length, and a message with a header."""
    import json
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    message = len(text).to_bytes(8, "big") + text + b"".join(bodies)
    return len(message).to_bytes(8, "big") + message
''',
    "forge": '''
def forge(*messages):
    """Write messages to every descriptor that is not standard, and end."""
    import os
    for fd in open_pipes():
        for message in messages:
            try:
                os.set_blocking(fd, False)
                os.write(fd, message)
            except OSError:
                pass
    os._exit(0)
''',
    "sandbox_modules": '''
def sandbox_modules():
    """Return the modules of the sandbox that can be found in this process."""
    import gc, sys, types
    spaces = [o for o in gc.get_objects() if isinstance(o, dict) and "MAX_HEADER_BYTES" in o]
    known, here = list(sys.modules.values()), sys._getframe()
    while here is not None:
        spaces.append(here.f_globals)
        known += here.f_globals.values()
        here = here.f_back
    known = [m for m in known if isinstance(m, types.ModuleType)]
    return [m for m in known if "sandbox" in str(getattr(m, "__file__", ""))], spaces
''',
}
ORDER = list(FUNCTIONS)


def complete(source: str) -> str:
    needed: list[str] = []
    text = source
    while new := [name for name in ORDER if name not in needed and _is_used(name, text, source)]:
        needed += new
        text += "".join(FUNCTIONS[name] for name in new)
    added = "".join(FUNCTIONS[name] for name in ORDER if name in needed)
    if not added:
        return source
    return f"{source}\n{added}" if "from __future__" in source else f"{added}\n{source}"


def _is_used(name: str, text: str, source: str) -> bool:
    if f"{name}(" not in text or f"def {name}(" in source:
        return False
    return bool(re.search(rf"(?<![\w.]){name}\(", text))
