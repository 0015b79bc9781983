"""A file on its way to the store, for an async caller that may be cancelled."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, TypeVar

from tidemill.connectors.blobs import Blob, Blobs, Label, Writing
from tidemill.connectors.encoders import Encoder, open_encoder
from tidemill.domain.form import Form

T = TypeVar("T")


class Outgoing:
    """Written in threads, one piece after another. A piece is held back: most files are one, and need one request.

    A whole file stays, whatever becomes of who made it: at its place there is never another one.
    """

    def __init__(self, blobs: Blobs, name: str, form: Form, threads: ThreadPoolExecutor) -> None:
        self.form = form
        self._blobs = blobs
        self._name = name
        self._threads = threads
        self._held = b""
        self._writing: Writing | None = None
        self._encoder: Encoder | None = None
        self._running: Future[Any] | None = None
        self._is_whole = False

    async def take(self, piece: bytes) -> None:
        held, self._held = self._held, piece
        if held:
            await self.run(lambda: self._write(held))

    async def finish(self) -> Blob:
        if self._writing is None and self.form.is_plain:
            sent = await self._blobs.send(self._name, self._held, self._label())
            if sent is not None:
                return sent
        return await self.run(self._end)

    async def abandon(self) -> None:
        """Nothing half of it stays."""
        await asyncio.shield(asyncio.wrap_future(self._threads.submit(self._drop)))

    def put(self, piece: bytes) -> None:
        """As ``take``, for who is in a thread already."""
        held, self._held = self._held, piece
        if held:
            self._write(held)

    def _end(self) -> Blob:
        writing, encoder = self._write(self._held)
        encoder.close()
        blob = writing.finish()
        self._is_whole = True
        return blob

    def _write(self, piece: bytes) -> tuple[Writing, Encoder]:
        if self._writing is None or self._encoder is None:
            self._writing = self._blobs.write(self._name)
            self._writing.label = self._label()
            self._encoder = open_encoder(self.form, self._writing)
        if piece:
            self._encoder.write(piece)
        return self._writing, self._encoder

    def _label(self) -> Label:
        return Label(self._name.rpartition("/")[2], self.form.content_type)

    def _drop(self) -> None:
        if self._running is not None and not self._running.cancel():
            wait([self._running])
        if self._writing is not None and not self._is_whole:
            self._writing.discard()
            if self._encoder is not None:
                with suppress(Exception):  # it would write its end whenever the garbage collector finds it
                    self._encoder.close()

    async def run(self, work: Callable[[], T]) -> T:
        """In a thread; it is waited for before anything is abandoned."""
        future = self._running = self._threads.submit(work)
        return await asyncio.wrap_future(future)
