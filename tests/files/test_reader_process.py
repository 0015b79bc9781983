"""Reader processes: they read what readers in the process read, and a file that exceeds a limit ends only them."""

import os
import signal
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tidemill.core.errors import Interrupted, InvalidInput, ReaderKilled, UnknownFile
from tidemill.core.input_source import SourceReference
from tidemill.files.blobs import open_blob_store
from tidemill.files.reader_process import (
    IsolatedReader,
    IsolatedSource,
    ReaderLimits,
    ReaderProcess,
    _return_reader,
    stop_idle_readers,
)
from tidemill.files.source_opener import SourceOpener

MB = 1 << 20
SLOW_JSON = b"[[" + b"[]," * (6 * MB)  # one element, which a reader scans for several seconds


@pytest.fixture
def limits(tmp_path: Path) -> ReaderLimits:
    return ReaderLimits(str(tmp_path), max_row_bytes=MB, max_unpacked_bytes=1 << 30, cpu_s=60, memory_mb=1_024)


def store(limits: ReaderLimits, data: bytes, format_: str = "csv") -> SourceReference:
    return SourceReference(blob=open_blob_store(limits.blobs).put([data]).id, format=format_)


def get_process(source: IsolatedSource) -> ReaderProcess:
    assert source._process is not None
    return source._process


def test_isolated_source_returns_same_blocks_as_source_in_process(limits: ReaderLimits) -> None:
    reference = store(limits, b"id,name\n1,Ada\n2\n\n3,Eve\n")
    opener = SourceOpener(open_blob_store(limits.blobs), max_row_bytes=MB)
    with closing(opener(reference, {})) as local, closing(IsolatedReader(limits).open_source(reference, {})) as found:
        assert (found.columns, found.first_line, found.layout) == (local.columns, local.first_line, local.layout)
        for _ in range(4):
            assert found.read(2, MB) == local.read(2, MB)


def test_isolated_source_resumes_from_checkpoint_and_reuses_process(limits: ReaderLimits) -> None:
    reference, reader = store(limits, b"id\n1\n2\n3\n"), IsolatedReader(limits)
    with closing(reader.open_source(reference, {})) as source:
        process, block = get_process(source), source.read(2, MB)
    with closing(reader.open_source(reference, block.checkpoint)) as source:
        assert get_process(source) is process
        assert source.read(2, MB).inputs == [b'{"id":"3"}']


def test_reader_raises_errors_of_file_and_store(limits: ReaderLimits) -> None:
    with pytest.raises(UnknownFile):
        IsolatedReader(limits).open_source(SourceReference(blob="f" * 32, format="csv"), {})
    with pytest.raises(InvalidInput, match="The file is empty"):
        IsolatedReader(limits).open_source(store(limits, b""), {})


def test_reader_process_that_exceeds_cpu_limit_is_killed(limits: ReaderLimits) -> None:
    strict = ReaderLimits(limits.blobs, MB, 1 << 30, cpu_s=1, memory_mb=1_024)
    with closing(IsolatedReader(strict).open_source(store(limits, SLOW_JSON, "json"), {})) as source:
        process = get_process(source)
        with pytest.raises(InvalidInput, match="Reading the file needs more than 1 s of CPU time"):
            source.read(10, MB)
        assert not process.is_alive


def test_reader_process_that_exceeds_memory_limit_rejects_file(limits: ReaderLimits) -> None:
    strict = ReaderLimits(limits.blobs, MB, 1 << 30, cpu_s=60, memory_mb=128)
    with closing(IsolatedReader(strict).open_source(store(limits, b"{}\n" * 4_000_000, "ndjson"), {})) as source:
        with pytest.raises(InvalidInput, match="Reading the file needs more than 128 MB of memory"):
            source.read(4_000_000, 1 << 30)
        assert get_process(source).is_alive


def test_reader_process_is_killed_when_work_must_not_continue(limits: ReaderLimits) -> None:
    must_stop = threading.Event()
    reader = IsolatedReader(limits, should_continue=lambda: not must_stop.is_set())
    with closing(reader.open_source(store(limits, SLOW_JSON, "json"), {})) as source:
        process = get_process(source)
        must_stop.set()
        with pytest.raises(Interrupted):
            source.read(10, MB)
        assert not process.is_alive


def test_reader_process_whose_start_was_interrupted_serves_the_next_caller(limits: ReaderLimits) -> None:
    stop_idle_readers()
    process, reference = ReaderProcess(), store(limits, b"id\n1\n")
    _return_reader(process)
    os.kill(process._process.pid, signal.SIGSTOP)
    with pytest.raises(Interrupted):
        IsolatedReader(limits, should_continue=lambda: False).open_source(reference, {})
    os.kill(process._process.pid, signal.SIGCONT)
    with closing(IsolatedReader(limits).open_source(reference, {})) as source:
        assert get_process(source) is process
        assert source.read(2, MB).inputs == [b'{"id":"1"}']


def test_reader_process_killed_from_outside_is_not_an_error_of_the_file(limits: ReaderLimits) -> None:
    with closing(IsolatedReader(limits).open_source(store(limits, SLOW_JSON, "json"), {})) as source:
        pid = get_process(source)._process.pid
        threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
        with pytest.raises(ReaderKilled):
            source.read(10, MB)


def test_reader_process_exits_with_its_parent_while_it_parses(limits: ReaderLimits) -> None:
    process = ReaderProcess()._process
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()  # as when the parent has died
    assert process.wait(10) == 0
    process.stdout.close()
