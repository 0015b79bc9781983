"""Files that one process of a machine has for itself."""

import fcntl
from typing import BinaryIO


def is_ours(file: BinaryIO) -> bool:
    """Take the lock of a file, until it is closed. False when somebody has it, or files cannot be locked there."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
