"""Registers enrichment: jobs that match rows against an external service or add data from it."""

from tidemill.core.kinds import ENRICH_KIND, MATCH_KIND
from tidemill.features import Feature

SERVICE_KIND_ALIASES = {
    "match": MATCH_KIND,
    "entity.match": MATCH_KIND,
    "enrich": ENRICH_KIND,
    "http.enrich": ENRICH_KIND,
}

FEATURE = Feature(
    name="enrichment",
    handlers={
        MATCH_KIND: "tidemill.enrichment.handler:make_match_handler",
        ENRICH_KIND: "tidemill.enrichment.handler:make_enrich_handler",
    },
    kinds={
        MATCH_KIND: "tidemill.enrichment.use_cases:MATCH_HOOKS",
        ENRICH_KIND: "tidemill.enrichment.use_cases:ENRICH_HOOKS",
    },
    kind_aliases=SERVICE_KIND_ALIASES,
    declarations=["tidemill.enrichment.use_cases:load_services"],
    routers=["tidemill.enrichment.routes:router"],
    openapi_tag=("services", "External services that jobs of the kinds `match` and `http.enrich` can call."),
    openapi_examples=["tidemill.enrichment.routes:OPENAPI_EXAMPLES"],
    config_sections=["services"],
    commands={
        "tidemill.enrichment.cli": {
            "match": "Match the rows of a file against a reconciliation service. The exit code is 0 only if no row "
            "failed.",
        },
    },
    limiter_users="tidemill.enrichment.use_cases:list_limiter_references",
)
