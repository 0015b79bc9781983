"""HTTP itself: what cannot be understood never becomes a request, and is answered here."""

from http import HTTPStatus
from uuid import uuid4

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidemill.api import problems
from tidemill.api.middleware import SECURITY
from tidemill.telemetry.events import emit


class Protocol(H11Protocol):
    """uvicorn's own, but that its refusals are documents like all others."""

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer is on its way: it breaks
            for event in _refusal(msg):
                self.transport.write(self.conn.send(event))
        self.transport.close()


def _refusal(detail: str) -> tuple[h11.Response, h11.Data, h11.EndOfMessage]:
    request_id = uuid4().hex
    document = problems.answer(request_id, HTTPStatus.BAD_REQUEST, detail)
    more = SECURITY | {"x-request-id": request_id, "connection": "close"}
    headers = [*document.raw_headers, *((name.encode(), value.encode()) for name, value in more.items())]
    emit("request.done", request_id=request_id, method="unknown", route="unknown", status=400, ms=0.0)
    reason = HTTPStatus.BAD_REQUEST.phrase.encode()
    return (
        h11.Response(status_code=400, headers=headers, reason=reason),
        h11.Data(data=bytes(document.body)),
        h11.EndOfMessage(),
    )
