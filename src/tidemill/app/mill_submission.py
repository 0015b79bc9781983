"""Submissions of a mill: jobs with inputs, imports, exports and distributions."""

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypedDict, TypeVar
from uuid import UUID

from tidemill.app.mill_declarations import MillDeclarations
from tidemill.app.runtime_factory import make_runtime
from tidemill.app.shared_database import SharedDatabase
from tidemill.core.file_format import Compression, FileFormat
from tidemill.core.kinds import DISTRIBUTION_KIND, EXPORT_KIND, IMPORT_KIND
from tidemill.core.principal import LOCAL_USER_ID, Role
from tidemill.distributions.use_cases import DistributionSpec, make_distribution_use_cases
from tidemill.exports.table_export_request import TableExportRequest, parse_filter_condition
from tidemill.exports.use_cases import EXPORT_JOB_PRIORITY, submit_table_export
from tidemill.files.blobs.blob_store import iter_chunks
from tidemill.imports.import_plan import DuplicateRule, ImportRequest, ImportWriteMode, parse_lookups
from tidemill.imports.import_submission import (
    ImportFile,
    ImportOptions,
    ImportSource,
    is_remote_url,
    to_constant_text,
)
from tidemill.imports.use_cases import make_import_use_cases
from tidemill.jobs.staged_files import FileReference, make_staged_files
from tidemill.jobs.submission import (
    encode_inputs,
    read_and_apply_kind_options,
    submit_in_transaction,
    submit_in_transaction_sync,
    submit_job,
    submit_job_from_thread,
)
from tidemill.runtime import Runtime
from tidemill.store.database import Connection
from tidemill.store.job_submission import Submission, SyncConnection
from tidemill.store.open_database import make_database

T = TypeVar("T")
ConstantValue = str | int | float | Decimal | date | time
OutputFormat = Literal["csv", "ndjson", "json", "xlsx", "parquet"]
OutputCompression = Literal["none", "gzip", "zstd"]


class FailurePolicyOptions(TypedDict, total=False):
    """When failed items fail the job: never, at the first failure, or above a count or a percentage."""

    mode: Literal["continue", "fail_fast", "tolerate"]
    max_failed: int
    max_percent: float


class MillSubmission(MillDeclarations):
    """The methods of a ``Mill`` that submit jobs."""

    @cached_property
    def shared_database(self) -> SharedDatabase:
        """The database of the settings, opened once per event loop."""
        return SharedDatabase(partial(make_database, self.settings))

    def submit(
        self,
        kind: str,
        inputs: Iterable[Any],
        *,
        priority: int = 0,
        params: Mapping[str, Any] | None = None,
        policy: FailurePolicyOptions | None = None,
        owner_id: int = LOCAL_USER_ID,
        idempotency_key: str | None = None,
        connection: SyncConnection | None = None,
    ) -> UUID:
        """Create a job with these inputs and return its id.

        Args:
            kind: The kind of the job. If this mill does not declare it, a worker must have registered it.
            inputs: JSON values. An iterator is not loaded into memory.
            priority: From -100 to 100. Each step doubles the job's share of its owner's capacity.
            params: A JSON object that is stored with the job.
            policy: When failed items fail the job.
            owner_id: The user who owns the job. Workers divide their time fairly between owners.
            idempotency_key: A repeated submission with the same key returns the first job.
            connection: A psycopg connection. The job exists if and only if this connection's transaction commits.
                In autocommit mode outside a transaction, the job is committed at once.

        Raises:
            UnknownKind: Neither this mill nor a worker has a handler for the kind.
            InvalidInput: An input or an option is invalid. Nothing is stored.
        """
        spec, is_declared = self._make_submission_and_is_declared(
            kind, priority, params, policy, owner_id, idempotency_key
        )
        rows = encode_inputs(inputs, self.settings.max_row_bytes)
        if connection is not None:
            return submit_in_transaction_sync(connection, spec, rows, is_declared=is_declared)[0]
        loop = self.shared_database.background_loop
        db = loop.run_coroutine(self.shared_database.get_for_running_loop())
        if not is_declared:
            spec = loop.run_coroutine(read_and_apply_kind_options(db, spec))
        return submit_job_from_thread(loop, db, spec, rows, built_in=is_declared)[0]

    async def submit_async(
        self,
        kind: str,
        inputs: Iterable[Any],
        *,
        priority: int = 0,
        params: Mapping[str, Any] | None = None,
        policy: FailurePolicyOptions | None = None,
        owner_id: int = LOCAL_USER_ID,
        idempotency_key: str | None = None,
        connection: Connection | None = None,
    ) -> UUID:
        """Async variant of ``submit``. ``connection`` is an async connection."""
        spec, is_declared = self._make_submission_and_is_declared(
            kind, priority, params, policy, owner_id, idempotency_key
        )
        rows = encode_inputs(inputs, self.settings.max_row_bytes)
        if connection is not None:
            return (await submit_in_transaction(connection, spec, rows, is_declared=is_declared))[0]
        db = await self.shared_database.get_for_running_loop()
        if not is_declared:
            spec = await read_and_apply_kind_options(db, spec)
        return (await submit_job(db, spec, rows, built_in=is_declared))[0]

    def submit_import(
        self,
        file: str | PathLike[str] | BinaryIO,
        resource: str,
        *,
        mode: ImportWriteMode = "insert",
        key: Sequence[str] = (),
        validate_only: bool = False,
        duplicates: DuplicateRule = "error",
        mapping: Mapping[str, str] | None = None,
        translations: Mapping[str, Mapping[str, str]] | None = None,
        spreadsheet_safe: bool = False,
        keep_empty: bool = False,
        formats: Mapping[str, str] | None = None,
        assume: bool = False,
        constants: Mapping[str, ConstantValue] | None = None,
        computed: Mapping[str, str] | None = None,
        skip: Sequence[str] = (),
        undo: bool | None = None,
        lookups: Mapping[str, str | Sequence[str]] | None = None,
        create_missing: Sequence[str] = (),
        layout: Mapping[str, Any] | None = None,
        name: str | None = None,
        priority: int = 0,
        policy: FailurePolicyOptions | None = None,
        owner_id: int = LOCAL_USER_ID,
        idempotency_key: str | None = None,
    ) -> UUID:
        """Create a job that imports a file into a table and return its id.

        Args:
            file: A path, a binary file object, or a URL that a worker downloads. Local files are copied first.
            resource: A declared resource, or a table such as ``public.users``.
            mode: ``insert``, or ``upsert`` to update rows whose key exists.
            key: Fields that identify a row; the key of the resource by default.
            validate_only: Dry run: validate all rows and write none.
            duplicates: Which of several rows with the same key to import; ``error`` fails all but the first.
            mapping: Column of the file -> field, or an empty string to ignore the column.
            translations: Field -> text in the file -> text to import instead.
            spreadsheet_safe: Remove the apostrophes that an export with ``spreadsheet_safe`` added.
            keep_empty: Import empty text as empty text and not as NULL.
            formats: Field -> format of its values, such as ``decimal-comma`` or ``DD.MM.YYYY``.
            assume: Use the more likely format if a column fits two formats, instead of raising
                ``AmbiguousFormats``.
            constants: Field -> value of every row, which the file cannot override. An upsert updates only rows that
                have these values.
            computed: Field -> expression, such as ``concat(first, ' ', last)``.
            skip: Conditions of rows to skip, such as ``status = 'deleted'``.
            undo: Keep the data to undo this import; by default, the resource decides.
            lookups: Field -> columns of the referenced table by which its rows are found, such as
                ``{"team_id": "name"}``.
            create_missing: Fields whose lookups create the rows that they do not find.
            layout: ``format``, ``encoding``, ``delimiter`` and other options that override detection.
            name: File name to store with the job, and to detect the format; the name of ``file`` by default.
            priority: As for ``submit``.
            policy: As for ``submit``.
            owner_id: As for ``submit``.
            idempotency_key: As for ``submit``.
        """
        return self._run_blocking(
            self.submit_import_async(
                file,
                resource,
                mode=mode,
                key=key,
                validate_only=validate_only,
                duplicates=duplicates,
                mapping=mapping,
                translations=translations,
                spreadsheet_safe=spreadsheet_safe,
                keep_empty=keep_empty,
                formats=formats,
                assume=assume,
                constants=constants,
                computed=computed,
                skip=skip,
                undo=undo,
                lookups=lookups,
                create_missing=create_missing,
                layout=layout,
                name=name,
                priority=priority,
                policy=policy,
                owner_id=owner_id,
                idempotency_key=idempotency_key,
            )
        )

    async def submit_import_async(
        self,
        file: str | PathLike[str] | BinaryIO,
        resource: str,
        *,
        mode: ImportWriteMode = "insert",
        key: Sequence[str] = (),
        validate_only: bool = False,
        duplicates: DuplicateRule = "error",
        mapping: Mapping[str, str] | None = None,
        translations: Mapping[str, Mapping[str, str]] | None = None,
        spreadsheet_safe: bool = False,
        keep_empty: bool = False,
        formats: Mapping[str, str] | None = None,
        assume: bool = False,
        constants: Mapping[str, ConstantValue] | None = None,
        computed: Mapping[str, str] | None = None,
        skip: Sequence[str] = (),
        undo: bool | None = None,
        lookups: Mapping[str, str | Sequence[str]] | None = None,
        create_missing: Sequence[str] = (),
        layout: Mapping[str, Any] | None = None,
        name: str | None = None,
        priority: int = 0,
        policy: FailurePolicyOptions | None = None,
        owner_id: int = LOCAL_USER_ID,
        idempotency_key: str | None = None,
    ) -> UUID:
        """Async variant of ``submit_import``."""
        request = ImportRequest(
            mode=mode,
            validate_only=validate_only,
            duplicates=duplicates,
            mapping=dict(mapping or {}),
            translations={name: dict(texts) for name, texts in (translations or {}).items()},
            key=tuple(key),
            spreadsheet_safe=spreadsheet_safe,
            keep_empty=keep_empty,
            formats=dict(formats or {}),
            assume=assume,
            constants={name: to_constant_text(value) for name, value in (constants or {}).items()},
            computed=dict(computed or {}),
            skip=tuple(skip),
            undo=undo,
            lookups=parse_lookups(lookups or {}),
            create_missing=list(create_missing),
        )
        options = ImportOptions(
            resource=resource, request=request, layout=layout or {}, policy={**(policy or {})}, priority=priority
        )
        spec = Submission(IMPORT_KIND, owner_id=owner_id, idem_key=idempotency_key)
        runtime = await self._make_runtime_for_running_loop()
        imports = runtime.get(make_import_use_cases)
        submission = await imports.check_and_prepare_submission(options, role=None, spec=spec)
        return (await imports.submit(submission, await _reference_url_or_stage_file(runtime, file, name))).job_id

    def submit_export(
        self,
        resource: str,
        *,
        fields: Sequence[str] = (),
        where: Sequence[str] = (),
        order: Sequence[str] = (),
        format: OutputFormat = "csv",  # noqa: A002  the name of this option in all interfaces
        compression: OutputCompression = "none",
        spreadsheet_safe: bool = False,
        priority: int = EXPORT_JOB_PRIORITY,
        owner_id: int = LOCAL_USER_ID,
        idempotency_key: str | None = None,
    ) -> UUID:
        """Create a job that writes rows of a table to a file and return its id; ``open_export`` opens the file.

        Args:
            resource: A declared resource, or a table such as ``public.users``.
            fields: Fields to export, in order; all by default.
            where: Conditions such as ``role=admin`` or ``age[gte]=18``. Rows must match all of them.
            order: Fields to sort by; ``-name`` sorts in descending order. The key of the resource by default.
            format: The format of the file.
            compression: The compression of the file.
            spreadsheet_safe: Put an apostrophe before text that a spreadsheet could execute.
            priority: As for ``submit``.
            owner_id: As for ``submit``.
            idempotency_key: As for ``submit``.
        """
        return self._run_blocking(
            self.submit_export_async(
                resource,
                fields=fields,
                where=where,
                order=order,
                format=format,
                compression=compression,
                spreadsheet_safe=spreadsheet_safe,
                priority=priority,
                owner_id=owner_id,
                idempotency_key=idempotency_key,
            )
        )

    async def submit_export_async(
        self,
        resource: str,
        *,
        fields: Sequence[str] = (),
        where: Sequence[str] = (),
        order: Sequence[str] = (),
        format: OutputFormat = "csv",  # noqa: A002  the name of this option in all interfaces
        compression: OutputCompression = "none",
        spreadsheet_safe: bool = False,
        priority: int = EXPORT_JOB_PRIORITY,
        owner_id: int = LOCAL_USER_ID,
        idempotency_key: str | None = None,
    ) -> UUID:
        """Async variant of ``submit_export``."""
        request = TableExportRequest(
            resource=resource,
            fields=tuple(fields),
            filters=tuple(parse_filter_condition(text) for text in where),
            order=tuple(order),
            format=format,
            compression=compression,
            spreadsheet_safe=spreadsheet_safe,
        )
        spec = Submission(EXPORT_KIND, owner_id=owner_id, priority=priority, idem_key=idempotency_key)
        return (await submit_table_export(await self._make_runtime_for_running_loop(), spec, request, role=None))[0]

    def submit_distribution(
        self,
        dataset: str,
        inputs: Iterable[Mapping[str, Any]],
        *,
        reuse: bool | None = None,
        reuse_days: int | None = None,
        format: OutputFormat | None = None,  # noqa: A002  the name of this option in all interfaces
        compression: OutputCompression | None = None,
        priority: int = 0,
        policy: FailurePolicyOptions | None = None,
        owner_id: int = LOCAL_USER_ID,
        idempotency_key: str | None = None,
    ) -> UUID:
        """Create a job that produces one file per input and return its id.

        Args:
            dataset: A dataset that this mill or ``tidemill.toml`` declares.
            inputs: The field values for each file. All inputs are validated before the job is stored.
            reuse: Whether to reuse files of earlier distributions; TIDEMILL_REUSE_ENABLED by default.
            reuse_days: Regenerate files of inputs whose date is less than this many days ago; TIDEMILL_REUSE_DAYS by
                default.
            format: Overrides the dataset's format.
            compression: Overrides the dataset's compression.
            priority: As for ``submit``.
            policy: As for ``submit``; ``fail_fast`` by default.
            owner_id: As for ``submit``.
            idempotency_key: As for ``submit``.
        """
        return self._run_blocking(
            self.submit_distribution_async(
                dataset,
                inputs,
                reuse=reuse,
                reuse_days=reuse_days,
                format=format,
                compression=compression,
                priority=priority,
                policy=policy,
                owner_id=owner_id,
                idempotency_key=idempotency_key,
            )
        )

    async def submit_distribution_async(
        self,
        dataset: str,
        inputs: Iterable[Mapping[str, Any]],
        *,
        reuse: bool | None = None,
        reuse_days: int | None = None,
        format: OutputFormat | None = None,  # noqa: A002  the name of this option in all interfaces
        compression: OutputCompression | None = None,
        priority: int = 0,
        policy: FailurePolicyOptions | None = None,
        owner_id: int = LOCAL_USER_ID,
        idempotency_key: str | None = None,
    ) -> UUID:
        """Async variant of ``submit_distribution``."""
        distribution = DistributionSpec(
            dataset,
            [dict(fields) for fields in inputs],
            reuse_enabled=reuse,
            reuse_days=reuse_days,
            format=None if format is None else FileFormat(format),
            compression=None if compression is None else Compression(compression),
            policy={**(policy or {})},
            priority=priority,
        )
        spec = Submission(DISTRIBUTION_KIND, owner_id=owner_id, idem_key=idempotency_key)
        runtime = await self._make_runtime_for_running_loop()
        return (await runtime.get(make_distribution_use_cases).submit(runtime.db, distribution, Role.ADMIN, spec))[0]

    async def _make_runtime_for_running_loop(self) -> Runtime:
        """Return a runtime for the running event loop."""
        return make_runtime(await self.shared_database.get_for_running_loop(), self.settings, self.registry)

    def _run_blocking(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.shared_database.background_loop.run_coroutine(coroutine)

    def _make_submission_and_is_declared(
        self,
        kind: str,
        priority: int,
        params: Mapping[str, Any] | None,
        policy: FailurePolicyOptions | None,
        owner_id: int,
        idempotency_key: str | None,
    ) -> tuple[Submission, bool]:
        """Return the submission, and whether this process knows the options of its kind."""
        handler = self.registry.get_if_created(kind)
        spec = Submission(
            kind,
            owner_id=owner_id,
            params=dict(params or {}),
            policy={**(policy or {})},
            priority=priority,
            limiter=None if handler is None else handler.limiter,
            sparse=handler is not None and handler.sparse,
            columns=() if handler is None else handler.columns,
            idem_key=idempotency_key,
            batch_size=self.settings.claim_max,
        )
        if handler is None:
            runtime = make_runtime(None, self.settings, self.registry)
            hooks = runtime.kind_hooks.get(runtime.kind_aliases.get(kind, kind))
            if hooks is not None and hooks.prepare_submission is not None:
                return hooks.prepare_submission(runtime, spec, Role.ADMIN), True
        return spec, handler is not None


async def _reference_url_or_stage_file(
    runtime: Runtime, file: str | PathLike[str] | BinaryIO, name: str | None
) -> ImportSource:
    """Return a reference to the URL, or a staged copy of the file."""
    if isinstance(file, str) and is_remote_url(file):
        return FileReference(url=file)
    staged = runtime.get(make_staged_files)
    if isinstance(file, str | PathLike):
        return ImportFile(await staged.stage_file(Path(file)), Path(name or file).name)
    own_name = getattr(file, "name", None)  # None or a file descriptor, if the file is temporary
    name = name or (own_name if isinstance(own_name, str) else "")
    return ImportFile(await staged.stage_chunks(iter_chunks(file)), Path(name).name)
