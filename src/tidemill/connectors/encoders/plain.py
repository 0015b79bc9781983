"""Text that needs no reading."""

from tidemill.connectors.writers.output import Output


class AsItIs:
    """What comes is what goes."""

    cut_cells = 0

    def __init__(self, output: Output) -> None:
        self._output = output

    def write(self, chunk: bytes, /) -> None:
        self._output.write(chunk)

    def close(self) -> None:
        self._output.flush()


class JsonArray:
    """Lines that are an object each become one array, still an object a line."""

    cut_cells = 0

    def __init__(self, output: Output) -> None:
        self._output = output
        self._before = b"[\n"  # what stands between what was written and what comes
        self._is_empty = True

    def write(self, chunk: bytes, /) -> None:
        if not chunk:
            return
        ends = chunk.endswith(b"\n")
        lines = chunk[:-1] if ends else chunk
        self._output.write(self._before + lines.replace(b"\n", b",\n"))
        self._before = b",\n" if ends else b""
        self._is_empty = False

    def close(self) -> None:
        self._output.write(b"[]\n" if self._is_empty else b"\n]\n")
        self._output.flush()
