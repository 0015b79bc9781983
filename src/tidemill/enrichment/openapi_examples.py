"""Examples of services, for the OpenAPI document."""

from typing import Any

from pydantic import BaseModel

from tidemill.enrichment import routes as services

OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    services.ServiceList: {
        "services": [{"name": "wikidata", "url": "https://wikidata.reconci.link/en/api", "limit": "wikidata"}]
    },
}
