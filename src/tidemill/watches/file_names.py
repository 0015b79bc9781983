"""File names: which files a watch accepts, which are unfinished, and their names in the archive."""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

UNFINISHED_NAME_SUFFIXES = (
    ".part",
    ".partial",
    ".tmp",
    ".temp",
    ".filepart",
    ".crdownload",
    ".download",
    ".swp",
    ".upload",
    "~",
)
FILE_PATH_MAX_CHARS = 1_000  # longer paths exceed the size limit of an index entry
PRINTABLE_PATH_MAX_CHARS = 300
PROBLEM_TEXT_MAX_CHARS = 2_000
UNPRINTABLE_NAME_MESSAGE = "The file name is not valid UTF-8 or contains unprintable characters; rename the file"


def is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def is_unfinished(path: str) -> bool:
    """Return whether the name has a suffix that programs use for files that they are still writing."""
    return path.lower().endswith(UNFINISHED_NAME_SUFFIXES)


def find_name_problem(path: str) -> str | None:
    """Return why a file with this path cannot be submitted, or None."""
    if not path.isprintable():  # bytes that are not UTF-8 become lone surrogates, which are not printable either
        return UNPRINTABLE_NAME_MESSAGE
    if len(path) > FILE_PATH_MAX_CHARS:
        return f"The file path has {len(path)} characters; the maximum is {FILE_PATH_MAX_CHARS}"
    return None


def make_printable_path(path: str) -> str:
    """Return a unique path that can be stored and printed. Escape and shorten the path if necessary."""
    if find_name_problem(path) is None:
        return path
    plain = path.encode("utf-8", "surrogateescape")
    text = plain.decode("utf-8", "backslashreplace").encode("unicode_escape").decode("ascii")
    return f"{text[:PRINTABLE_PATH_MAX_CHARS]}#{hashlib.sha256(plain).hexdigest()[:12]}"


def sanitize_problem_text(problem: str) -> str:
    """Return the message without characters that cannot be stored or printed; it may contain a file name."""
    return problem.encode("utf-8", "backslashreplace").decode().replace("\0", "")[:PROBLEM_TEXT_MAX_CHARS]


@dataclass(frozen=True, slots=True)
class FilePattern:
    """A set of globs: ``*.csv`` matches in the folder itself, ``**/*.csv`` also in its subfolders."""

    globs: tuple[str, ...] = ("*",)
    _compiled: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "_compiled", tuple(re.compile(_glob_to_regex(glob)) for glob in self.globs))

    @property
    def is_recursive(self) -> bool:
        return any("/" in glob for glob in self.globs)

    def matches(self, path: str) -> bool:
        """Return whether a glob matches the path. Hidden and unfinished files never match."""
        if is_hidden(path) or is_unfinished(path):
            return False
        return any(one.fullmatch(path) for one in self._compiled)

    def can_overlap(self, other: "FilePattern", folder: str = "") -> bool:
        """Return whether a file in ``folder`` or below may match both patterns.

        This pattern is relative to the source, ``other`` is relative to ``folder``.
        """
        if is_hidden(folder):
            return False
        return any(
            _can_reach_folder(mine, folder) and _can_share_suffix(mine, its)
            for mine in self.globs
            for its in other.globs
        )

    def matches_name(self, path: str) -> bool:
        """Return whether a glob matches the file name alone. HTTP sources have no folders."""
        return self.matches(path.rpartition("/")[2])


def _glob_to_regex(glob: str) -> str:
    """Return the glob as a regular expression. As in shells, ``*`` does not match a slash, but ``**`` does."""
    out, at = "", 0
    while at < len(glob):
        if glob.startswith("**/", at):
            out, at = out + "(?:[^/]+/)*", at + 3
        elif glob.startswith("**", at):
            out, at = out + ".*", at + 2
        elif glob[at] == "*":
            out, at = out + "[^/]*", at + 1
        elif glob[at] == "?":
            out, at = out + "[^/]", at + 1
        elif glob[at] == "[" and (end := glob.find("]", at + 2)) > 0:
            inner = glob[at + 1 : end].replace("\\", r"\\").replace("[", r"\[")
            out, at = out + "[" + ("^" + inner[1:] if inner[0] == "!" else inner) + "]", end + 1
        else:
            out, at = out + re.escape(glob[at]), at + 1
    return out


def _can_reach_folder(glob: str, folder: str) -> bool:
    """Return whether a file in this folder or below may match the glob."""
    *folders, name = glob.split("/")
    for at, part in enumerate(filter(None, folder.split("/"))):
        if "**" in [*folders, name][at]:
            return True
        if at >= len(folders) or not re.fullmatch(_glob_to_regex(folders[at]), part):
            return False
    return True


def _can_share_suffix(one: str, other: str) -> bool:
    """Return whether one name may match the ends of both globs: ``*.csv`` and ``*.json`` cannot overlap."""
    ends = [re.split(r"[*?\]]", glob)[-1].rpartition("/")[2] for glob in (one, other)]
    return ends[0].endswith(ends[1]) or ends[1].endswith(ends[0])


def join_archive_path(folder: str, path: str) -> str:
    return f"{folder}/{path}"


def add_mark_before_extension(path: str, mark: object) -> str:
    """Return the path with a mark before its extensions, for a name that exists already: ``in/a.42.csv.gz``."""
    pure = PurePosixPath(path)
    stem = pure.name[: -len("".join(pure.suffixes))] if pure.suffixes else pure.name
    return str(pure.with_name(f"{stem}.{mark}{pure.name[len(stem) :]}"))
