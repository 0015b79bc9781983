"""A rename that overwrites nothing: one step, between which and itself nobody can put another file."""

import ctypes
import errno
import os
from pathlib import Path

_HERE, _NO_REPLACE = -100, 1  # AT_FDCWD and RENAME_NOREPLACE of Linux
_NOT_KNOWN = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)  # to the kernel, or to this file system
_libc = ctypes.CDLL(None, use_errno=True)


def rename_to_free(source: Path, target: Path) -> None:
    """FileExistsError if the name is taken. Where that cannot be asked for, it is looked at right before."""
    rename = getattr(_libc, "renameat2", None)
    if rename is not None:
        if rename(_HERE, os.fsencode(source), _HERE, os.fsencode(target), _NO_REPLACE) == 0:
            return
        code = ctypes.get_errno()
        if code not in _NOT_KNOWN:
            raise OSError(code, os.strerror(code))
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "there is another file of that name")
    source.rename(target)
