"""The OpenAPI document. It is built once per test process, because that takes one second."""

from typing import Any

from tidemill.app.runtime_factory import make_runtime
from tidemill.config import Settings
from tidemill.http import application
from tidemill.store.database import Database
from tidemill.telemetry.metrics import MetricsSubscriber

APP = application.create_api(
    make_runtime(Database("postgresql://nowhere"), Settings(home="/nowhere")), meter=MetricsSubscriber()
)
DOCUMENT: dict[str, Any] = APP.openapi()
