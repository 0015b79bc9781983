"""The section ``[services]`` of ``tidemill.toml``: the external services that jobs may call."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictBool

from tidemill.config import SERVICE_SECRET_ENV_PREFIX
from tidemill.config_sections import ConfigTable, Roles, Text, parse_section
from tidemill.enrichment.external_service import (
    SECRET_PLACEHOLDER,
    ExternalService,
    ReconciliationVersion,
    check_service_url,
)

SERVICE_TIMEOUT_MAX_S = 60  # a split batch takes several requests, and its rows wait for all of them
HEADER_NAME_PATTERN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_SECRET_VARIABLE_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
RESERVED_HEADERS = (
    "host",
    "content-type",
    "content-length",
    "transfer-encoding",
    "connection",
    "accept-encoding",
)


def _check_secret_header_name(name: str) -> str:
    if not HEADER_NAME_PATTERN.fullmatch(name) or name.lower() in RESERVED_HEADERS:
        raise ValueError("Input should be the name of a header that may carry a secret, such as Authorization")
    return name


def _check_secret_header_value(text: str) -> str:
    if SECRET_PLACEHOLDER not in text or not text.isascii() or not text.isprintable():
        raise ValueError(
            f'Input should be printable ASCII with {SECRET_PLACEHOLDER}, such as "Bearer {SECRET_PLACEHOLDER}"'
        )
    return text


def _check_secret_variable_name(name: str) -> str:
    if not _SECRET_VARIABLE_PATTERN.fullmatch(name):
        raise ValueError("Input should be the name of an environment variable, never the secret itself")
    return name


class ServiceTable(ConfigTable):
    url: Annotated[Text, AfterValidator(check_service_url)]
    header: Annotated[Text, AfterValidator(_check_secret_header_name)] | None = None
    value: Annotated[Text, AfterValidator(_check_secret_header_value)] = SECRET_PLACEHOLDER
    secret_env: Annotated[Text, AfterValidator(_check_secret_variable_name)] | None = None
    allow_private: StrictBool = False
    use: Roles = ()
    limit: Text | None = None
    protocol: ReconciliationVersion = "0.2"
    batch: Annotated[int, Field(strict=True, ge=1, le=1_000)] | None = None
    concurrency: Annotated[int, Field(strict=True, ge=1, le=100)] = 4
    timeout: Annotated[float, Field(strict=True, gt=0, le=SERVICE_TIMEOUT_MAX_S)] = 30.0
    answer_mb: Annotated[int, Field(strict=True, ge=1, le=256)] = 8

    @classmethod
    def find_conflicts(cls, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for key in ("value", "secret_env"):
            if key in given and "header" not in given:
                yield key, 'Requires "header"'
        if "header" in given and str(given.get("url")).startswith("http:") and given.get("allow_private") is not True:
            yield "url", "Secrets require https unless allow_private is true"

    def build_service(self, name: str) -> ExternalService:
        secret_env = SERVICE_SECRET_ENV_PREFIX + name.upper().replace("-", "_")
        return ExternalService(**{"name": name, "secret_env": secret_env} | self.get_explicit_values())


def parse_services(document: Mapping[str, Any]) -> dict[str, ExternalService]:
    """Return the services in a document by name. Raise InvalidSettings with all problems."""
    return parse_section(document, "services", ServiceTable, lambda name, table: table.build_service(name))
