"""Registers the feature `greetings`."""

from tidemill.features import Feature

FEATURE = Feature(
    name="greetings",
    handlers={"greetings.greet": "tidemill_greetings.greetings:make_greet_handler"},
    routers=["tidemill_greetings.routes:router"],
    openapi_tag=("greetings", "Greetings in the configured languages"),
    commands={"tidemill_greetings.cli": {"greet": "Submit a job that greets people."}},
    config_sections=["greetings"],
)
