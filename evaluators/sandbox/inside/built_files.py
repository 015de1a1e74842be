"""What a build leaves: put aside in the slot's folder, and copied for each call of the program.

A program may change its copy, which is deleted after the call, so that no call sees what an earlier
one wrote. Where programs are confined to their folder, they reach the copies of no other call.
"""

import os
import stat

from costada.evaluators.sandbox.inside.clean_copy import copy_file

BUILT = "built"
"""Name of the folder beside that of the candidate."""

MEBIBYTE = 1024 * 1024


def copy_built(source: str, max_mb: int) -> None:
    """Copy what a build has left to the working folder: its files, folders, links and times.

    Links are copied as they are. Several names of one file stay one file.

    Raises:
        OSError: If something cannot be read, or takes more than `max_mb`, or `source` is no folder
            but, for instance, a link that a build has put there.
    """
    if not os.path.isdir(source) or os.path.islink(source):
        raise OSError("the working folder is gone: the program moved, removed or replaced it")
    copied: dict[int, str] = {}
    num_bytes = 0
    folders = [""]
    for inner in folders:
        with os.scandir(os.path.join(source, inner)) as entries:
            for entry in entries:
                path, about = os.path.join(inner, entry.name), entry.stat(follow_symlinks=False)
                if stat.S_ISLNK(about.st_mode):
                    os.symlink(os.readlink(entry.path), path)
                elif stat.S_ISDIR(about.st_mode):
                    os.mkdir(path, stat.S_IRWXU)
                    folders.append(path)
                elif stat.S_ISREG(about.st_mode):
                    if about.st_ino in copied:
                        os.link(copied[about.st_ino], path)
                        continue
                    num_bytes += about.st_size
                    if num_bytes > max_mb * MEBIBYTE:
                        raise OSError(f"the build left more than {max_mb} MB of files")
                    copy_file(entry.path, path)
                    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
                    copied[about.st_ino] = path
