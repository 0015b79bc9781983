"""Names of files: which are taken, which are not whole yet, and what they are called when they are put away."""

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
FILE_PATH_MAX_CHARS = 1_000  # characters of a path that is taken: an index has no room for more
PRINTABLE_PATH_MAX_CHARS = 300
PROBLEM_TEXT_MAX_CHARS = 2_000
UNPRINTABLE_NAME_MESSAGE = "its name has bytes that are no text, or characters that cannot be shown: rename it"


def is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def is_unfinished(path: str) -> bool:
    """By the name that programs give a file which they still write."""
    return path.lower().endswith(UNFINISHED_NAME_SUFFIXES)


def find_name_problem(path: str) -> str | None:
    """Why a file of that name cannot be taken."""
    if not path.isprintable():  # a byte that is no UTF-8 is half a pair here, and no more printable than a line end
        return UNPRINTABLE_NAME_MESSAGE
    if len(path) > FILE_PATH_MAX_CHARS:
        return f"its name has {len(path)} characters; at most {FILE_PATH_MAX_CHARS} can be taken"
    return None


def make_printable_path(path: str) -> str:
    """As it can be stored and printed, and not mistaken for another."""
    if find_name_problem(path) is None:
        return path
    plain = path.encode("utf-8", "surrogateescape")
    text = plain.decode("utf-8", "backslashreplace").encode("unicode_escape").decode("ascii")
    return f"{text[:PRINTABLE_PATH_MAX_CHARS]}#{hashlib.sha256(plain).hexdigest()[:12]}"


def sanitize_problem_text(problem: str) -> str:
    """What is wrong, as it can be stored and printed: it may repeat a name that cannot."""
    return problem.encode("utf-8", "backslashreplace").decode().replace("\0", "")[:PROBLEM_TEXT_MAX_CHARS]


@dataclass(frozen=True, slots=True)
class FilePattern:
    """Globs: ``*.csv`` is in the folder itself, ``**/*.csv`` also in those below it."""

    globs: tuple[str, ...] = ("*",)
    _compiled: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "_compiled", tuple(re.compile(_glob_to_regex(glob)) for glob in self.globs))

    @property
    def is_recursive(self) -> bool:
        return any("/" in glob for glob in self.globs)

    def matches(self, path: str) -> bool:
        """Hidden files and those that are still written match nothing."""
        if is_hidden(path) or is_unfinished(path):
            return False
        return any(one.fullmatch(path) for one in self._compiled)

    def can_overlap(self, other: "FilePattern", folder: str = "") -> bool:
        """Whether one file in this folder below, or deeper, may match both: the other one counts from there."""
        if is_hidden(folder):
            return False
        return any(
            _can_reach_folder(mine, folder) and _can_share_suffix(mine, its)
            for mine in self.globs
            for its in other.globs
        )

    def matches_name(self, path: str) -> bool:
        """The same of the last part alone: files of the web have no folder here."""
        return self.matches(path.rpartition("/")[2])


def _glob_to_regex(glob: str) -> str:
    """As shells read it: a star does not go beyond a slash, two of them do."""
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
    """Whether what matches may lie in this folder."""
    *folders, name = glob.split("/")
    for at, part in enumerate(filter(None, folder.split("/"))):
        if "**" in [*folders, name][at]:
            return True
        if at >= len(folders) or not re.fullmatch(_glob_to_regex(folders[at]), part):
            return False
    return True


def _can_share_suffix(one: str, other: str) -> bool:
    """Whether a name may end as both do: one that ends in .csv does not end in .json."""
    ends = [re.split(r"[*?\]]", glob)[-1].rpartition("/")[2] for glob in (one, other)]
    return ends[0].endswith(ends[1]) or ends[1].endswith(ends[0])


def join_archive_path(folder: str, path: str) -> str:
    return f"{folder}/{path}"


def add_mark_before_extension(path: str, mark: object) -> str:
    """The same with a mark before its endings, for when the name is taken: ``in/a.42.csv.gz``."""
    pure = PurePosixPath(path)
    stem = pure.name[: -len("".join(pure.suffixes))] if pure.suffixes else pure.name
    return str(pure.with_name(f"{stem}.{mark}{pure.name[len(stem) :]}"))
