"""The object that declares what a feature adds to Tidemill.

A feature is a package with its own model, handlers, use cases, HTTP routes, commands and SQL. Its ``Feature`` object
refers to modules and functions by name, so that they are imported only when they are needed. The features of this
distribution are listed in ``tidemill.app.feature_list``; other distributions add theirs with an entry point in the
group ``tidemill.features``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any

ObjectName = str  # "package.module:name"


@dataclass(frozen=True, slots=True)
class Feature:
    """The parts of a feature. Each ``ObjectName`` has the form ``package.module:name``."""

    name: str
    handlers: Mapping[str, ObjectName] = field(default_factory=dict)
    """Kind -> function that takes a ``Runtime`` and returns the ``Handler``."""
    kinds: Mapping[str, ObjectName] = field(default_factory=dict)
    """Kind -> its ``KindHooks``, for kinds that need their own behavior in code that all kinds share."""
    kind_aliases: Mapping[str, str] = field(default_factory=dict)
    """Other name for a kind in requests -> the kind."""
    routers: Sequence[ObjectName] = ()
    """FastAPI routers, mounted under ``/v1``."""
    openapi_tag: tuple[str, str] | None = None
    """Tag of the feature's routes in the OpenAPI document: its name and description."""
    openapi_examples: Sequence[ObjectName] = ()
    """Dicts of Pydantic model -> example. Models that no route declares are added to the OpenAPI document."""
    commands: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Module -> command that its ``commands``, a ``typer.Typer``, implement -> summary in ``tidemill --help``."""
    declarations: Sequence[ObjectName] = ()
    """Functions that take a ``Runtime`` and load the feature's declarations; they can raise InvalidSettings."""
    config_sections: Sequence[str] = ()
    """Sections of the feature in ``tidemill.toml``; ``Runtime.load_section`` reads them."""
    worker_loops: ObjectName | None = None
    """Function that takes a ``Runtime`` and a worker's id and returns loops for the worker's parent process."""
    housekeeping: Sequence[ObjectName] = ()
    """Store functions that the maintenance loop runs periodically."""
    operation_steps: Mapping[str, ObjectName] = field(default_factory=dict)
    """Verb of a bulk operation -> function that runs one step of it in the transaction that records the step."""
    limiter_users: ObjectName | None = None
    """Function that takes a ``Runtime`` and returns pairs: what uses a limiter, and the limiter's name."""
    file_tasks: Mapping[str, ObjectName] = field(default_factory=dict)
    """Key in a watch's table in ``tidemill.toml`` -> the ``FileTask`` class that it configures."""
    open_results: ObjectName | None = None
    """Function that takes a ``Runtime``, a ``Job`` and a format, and returns an open file with the job's results."""


def import_object(name: ObjectName) -> Any:
    """Return the object with this name; import its module if necessary."""
    return resolve_name(name)
