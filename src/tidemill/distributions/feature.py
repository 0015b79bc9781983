"""Registers the distributions feature: one file per input, generated or reused."""

from tidemill.core.kinds import DISTRIBUTION_KIND
from tidemill.features import Feature

FEATURE = Feature(
    name="distributions",
    handlers={DISTRIBUTION_KIND: "tidemill.distributions.handler:make_distribution_handler"},
    kinds={DISTRIBUTION_KIND: "tidemill.distributions.use_cases:DISTRIBUTION_HOOKS"},
    declarations=["tidemill.distributions.use_cases:load_datasets"],
    routers=["tidemill.distributions.routes:router"],
    openapi_tag=("distributions", "Generate or reuse one file per input"),
    openapi_examples=["tidemill.distributions.routes:OPENAPI_EXAMPLES"],
    config_sections=["datasets"],
    commands={
        "tidemill.distributions.cli": {
            "distribute": "Generate or reuse one file for each input. The exit code is 0 only if all files exist.",
        },
    },
)
