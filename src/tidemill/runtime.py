"""The runtime of a process: database, settings and other singletons that the core and all features share."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, BinaryIO, Protocol, TypeVar, cast
from uuid import UUID

from tidemill.config import Settings
from tidemill.config_file import check_section_names, load_config_file
from tidemill.core.errors import InvalidInput
from tidemill.core.job import Job, TimeSliceResult
from tidemill.core.principal import Principal, Role
from tidemill.features import Feature, import_object
from tidemill.files.blobs import open_blob_store
from tidemill.files.blobs.blob_store import Blob, BlobStore
from tidemill.files.reader_process import IsolatedReader, ReaderLimits
from tidemill.files.source_opener import SourceOpener
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission
from tidemill.store.operation_records import RunStep
from tidemill.store.users import User

T = TypeVar("T")


@dataclass(slots=True)
class Declarations:
    """Declarations of a mill, by name. They are validated on use, together with those of ``tidemill.toml``."""

    normalizers: dict[str, Callable[[str], str]] = field(default_factory=dict)
    resources: dict[str, dict[str, Any]] = field(default_factory=dict)
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    dataset_functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    limiters: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KindHooks:
    """Callbacks and messages for jobs of one kind. The code that serves jobs of all kinds calls them."""

    get_target: Callable[[Job], str | None] | None = None
    """Returns the resource or dataset that a job reads or writes."""
    authorize: Callable[["Runtime", Principal, str], Awaitable[None]] | None = None
    """Raises if a user has no access to this target. Called before items of a job are reprocessed."""
    authorize_job: Callable[["Runtime", Principal, Job], Awaitable[None]] | None = None
    """Raises if a user may not use another table that the job reads or writes. Called after ``authorize``."""
    prepare_submission: Callable[["Runtime", Submission, Role], Submission] | None = None
    """Returns the submission to store. A built-in kind without this callback cannot be submitted directly."""
    check_columns: Callable[[Submission, Sequence[str]], None] | None = None
    """Raises if the submission names a column that the inputs do not have."""
    parse_fix: Callable[["Runtime", Job, int, Any], Awaitable[Any]] | None = None
    """Returns the new input for an item that a user fixes; raises if the new input is invalid."""
    fix_refusal: str | None = None
    """Error message for users who try to fix an item; None if items of this kind can be fixed."""
    done_refusal: str | None = None
    """Error message for users who try to reprocess done items; None if done items can be reprocessed."""
    describe_invalid_rows: Callable[[Job], str] | None = None
    """Returns what failures with other codes than those of the engine are, and what to do before they are retried."""
    get_links: Callable[[Job], Mapping[str, str]] | None = None
    """Returns additional links for a job in the HTTP API."""
    after_close: Callable[[Job, float], None] | None = None
    """Called with a job that has closed and its duration in seconds, for example to emit events."""


FindKindHooks = Callable[[str], KindHooks | None]


def return_no_kind_hooks(_kind: str) -> None:
    """Return None: the ``FindKindHooks`` for jobs that belong to no feature."""


@dataclass(frozen=True, slots=True)
class FileTaskView:
    """How the HTTP API shows a file task."""

    kind: str
    resource_type: str | None = None
    mode: str | None = None


class PreparedFileTask(Protocol):
    """A file task whose options, owner and permissions are checked."""

    async def read_columns(self, blob: Blob, name: str) -> Sequence[str] | None:
        """Return the columns of a stored file. If they change, the watch holds the file. None: they may change.

        Raises:
            InvalidInput, TooLarge: The file is rejected.
        """

    async def submit(self, blob: Blob, name: str, idempotency_key: str, source: Mapping[str, str]) -> UUID:
        """Create the job of a stored file and return its id; a repeated key returns the first job.

        Args:
            blob: The file. The new job owns it; if no job is created, the task may remove it.
            name: The name of the file.
            idempotency_key: Identifies the version of the file.
            source: The watch and the path of the file.

        Raises:
            InvalidInput, TooLarge: The file is rejected.
            IdempotencyKeyReused: The key belongs to a submission with other options.
        """


class FileTask(Protocol):
    """The action of a watch on each file. Implementations are ``ConfigTable`` classes; their fields are the options."""

    def describe(self) -> str:
        """Return a short description of the task for users."""

    def get_view(self) -> FileTaskView: ...

    async def prepare(
        self, runtime: "Runtime", owner: User, spec: Submission, layout: Mapping[str, object]
    ) -> PreparedFileTask:
        """Check everything that does not depend on a file; raise if files cannot be submitted now.

        Args:
            runtime: The runtime of this process.
            owner: The user who owns the watch. Jobs are submitted with this user's permissions.
            spec: The owner, policy and priority of the jobs.
            layout: Layout options of the files.
        """


class OnDemandPool(Protocol):
    """Child processes that run time slices for kickoff requests."""

    async def kickoff(self, job_id: UUID, kind: str, seconds: float, *, user_id: int) -> TimeSliceResult: ...


class Runtime:
    """The singletons of a process: database, settings, declarations, and objects that features build from them."""

    def __init__(
        self,
        db: Database | None,
        settings: Settings,
        features: Sequence[Feature],
        declarations: Declarations | None = None,
        on_demand_pool: OnDemandPool | None = None,
        permits: Any = None,
        disabled_features: Sequence[Feature] = (),
    ) -> None:
        self._db = db
        self.settings = settings
        self.features = features
        self.disabled_features = disabled_features
        self.declarations = declarations or Declarations()
        self.on_demand_pool = on_demand_pool
        self.permits = permits  # for handlers that acquire limiter permits per request
        self._made: dict[Callable[[Runtime], Any], Any] = {}

    def copy_with_settings(self, **changes: object) -> "Runtime":
        """Return a runtime with the same database and declarations, and some other settings."""
        settings = self.settings.model_copy(update=changes)
        return Runtime(
            self._db,
            settings,
            self.features,
            self.declarations,
            self.on_demand_pool,
            self.permits,
            self.disabled_features,
        )

    @property
    def db(self) -> Database:
        if self._db is None:
            raise RuntimeError("This runtime has no database")
        return self._db

    def get(self, make: Callable[["Runtime"], T]) -> T:
        """Return the object that ``make`` builds. It is built on the first call and shared afterwards."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast("T", self._made[make])

    def load_section(self, parse: Callable[[dict[str, Any]], dict[str, T]]) -> dict[str, T]:
        """Parse a section of ``tidemill.toml``; raise InvalidSettings for invalid and for unknown sections."""

        def parse_known_sections(document: dict[str, Any]) -> dict[str, T]:
            check_section_names(document, self.features, self.disabled_features)
            return parse(document)

        return load_config_file(self.settings.config, parse_known_sections)

    @cached_property
    def blobs(self) -> BlobStore:
        return open_blob_store(self.settings.blobs)

    @cached_property
    def source_opener(self) -> SourceOpener:
        """Opens the files of jobs in this process, for tests. Workers open them in reader processes."""
        settings = self.settings
        return SourceOpener(
            self.blobs, max_row_bytes=settings.max_row_bytes, max_unpacked_bytes=settings.max_unpacked_mb << 20
        )

    @cached_property
    def file_reader(self) -> IsolatedReader:
        """Detects and reads files of users in reader processes."""
        return IsolatedReader(ReaderLimits.from_settings(self.settings))

    @cached_property
    def kind_hooks(self) -> Mapping[str, KindHooks]:
        """Kind -> its hooks, for all enabled features."""
        return {kind: import_object(name) for feature in self.features for kind, name in feature.kinds.items()}

    def find_kind_hooks(self, kind: str) -> KindHooks | None:
        """Return the hooks of a kind, even of a disabled feature: other processes may still run its jobs."""
        for feature in (*self.features, *self.disabled_features):
            if kind in feature.kinds:
                return cast("KindHooks", import_object(feature.kinds[kind]))
        return None

    @cached_property
    def kind_aliases(self) -> Mapping[str, str]:
        return {alias: kind for feature in self.features for alias, kind in feature.kind_aliases.items()}

    @cached_property
    def file_tasks(self) -> Mapping[str, type[FileTask]]:
        """Key in the table of a watch -> the task that it configures, for all enabled features."""
        return {key: import_object(name) for feature in self.features for key, name in feature.file_tasks.items()}

    @cached_property
    def operation_steps(self) -> Mapping[str, RunStep]:
        """Verb of a feature's bulk operation -> the function that runs one step, for all enabled features."""
        steps = {verb: name for feature in self.features for verb, name in feature.operation_steps.items()}
        return {verb: import_object(name) for verb, name in steps.items()}

    def check_declarations(self) -> None:
        """Raise InvalidSettings if a declaration of a feature is invalid."""
        for feature in self.features:
            for name in feature.declarations:
                self.get(import_object(name))

    async def open_results(self, job: Job, format_: str) -> BinaryIO:
        """Open a file with a job's results in this format. The caller closes it.

        Raises:
            InvalidInput: The feature that writes result files is disabled.
        """
        names = [feature.open_results for feature in self.features if feature.open_results is not None]
        if not names:
            raise InvalidInput('Cannot write a result file: the feature "exports" is disabled')
        return cast("BinaryIO", await import_object(names[0])(self, job, format_))
