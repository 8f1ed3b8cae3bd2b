"""What kind of file system a directory lies on, as far as that decides where to spill and whose locks to trust."""

import os
import re
import tempfile
from pathlib import Path

IN_MEMORY = {"tmpfs", "ramfs", "hugetlbfs"}
"""File systems whose files are host memory."""
LOCAL = IN_MEMORY | {
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "bcachefs", "zfs", "f2fs", "jfs", "reiserfs", "nilfs2", "overlay"),
    *("vfat", "exfat", "ntfs3", "squashfs", "erofs", "aufs"),
}
"""File systems of this computer alone, whose locks are kept by its own kernel."""
MOUNTS = Path("/proc/self/mountinfo")


def file_system_of(directory: Path, mounts: Path = MOUNTS) -> str | None:
    """Return the name of the file system that a directory lies on; None where the system does not tell.

    Examples
    --------
    >>> file_system_of(Path("/proc")) in ("proc", None)
    True
    """
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return None
    place, longest, kind = os.path.join(os.path.realpath(directory), ""), -1, None
    for line in lines:
        before, separator, after = line.partition(" - ")
        fields = before.split()
        if not separator or len(fields) < 5:
            continue
        mount = os.path.join(_plain(fields[4]), "")
        # What is mounted later over the same place hides what was there.
        if place.startswith(mount) and len(mount) >= longest:
            longest, kind = len(mount), after.split()[0]
    return kind


def in_memory(directory: Path, mounts: Path = MOUNTS) -> bool:
    """Tell whether files in a directory are host memory."""
    return file_system_of(directory, mounts) in IN_MEMORY


def keeps_locks(directory: Path, mounts: Path = MOUNTS) -> bool:
    """Tell whether a lock in a directory is known to every process that sees it.

    Computers that share a directory may each keep locks of their own, as NFS and Lustre do with some options. Nothing
    tells which: file systems that are not known as local are not trusted.
    """
    kind = file_system_of(directory, mounts)
    return kind is None or kind in LOCAL


def spill_directory(mounts: Path = MOUNTS) -> Path:
    """Return where snapshots go unless told: the directory for temporary files, or where that is memory, another.

    ``/var/tmp`` and the current directory follow. Where all of them are memory, the first is taken: what is spilled
    there is then counted as memory, see `in_memory`.
    """
    first = Path(tempfile.gettempdir())
    choices = (first, Path("/var/tmp"), Path.cwd())
    usable = (path for path in choices if path.is_dir() and os.access(path, os.W_OK | os.X_OK))
    return next((path for path in usable if not in_memory(path, mounts)), first)


def _plain(text: str) -> str:
    """Return a path as it is: blanks and backslashes are written as three digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
