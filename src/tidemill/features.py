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
    """Kind -> function of a ``Runtime`` that returns the ``Handler``."""
    kinds: Mapping[str, ObjectName] = field(default_factory=dict)
    """Kind -> ``KindHooks``, for kinds whose jobs need special treatment in the shared use cases."""
    kind_aliases: Mapping[str, str] = field(default_factory=dict)
    """Alias of a kind in requests -> the kind."""
    routers: Sequence[ObjectName] = ()
    """FastAPI routers, mounted under ``/v1``."""
    openapi_tag: tuple[str, str] | None = None
    """Name and description of the tag of its routes in the OpenAPI document."""
    openapi_examples: ObjectName | None = None
    """Mapping of pydantic model -> example; models that no route declares are added to the document."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """Command -> its summary in ``tidemill --help``."""
    commands_module: str | None = None
    """The module whose ``commands`` is a ``typer.Typer`` with these commands."""
    declarations: Sequence[ObjectName] = ()
    """Functions of a ``Runtime`` that load the declarations of the feature, or raise InvalidSettings."""
    config_sections: Sequence[str] = ()
    """Its sections in ``tidemill.toml``; ``Runtime.load_section`` reads them."""
    worker_loops: ObjectName | None = None
    """Function of a ``Runtime`` and the worker's id that returns loops for the parent process of a worker."""
    housekeeping: Sequence[ObjectName] = ()
    """Store functions that the maintenance loop runs periodically."""
    limiter_users: ObjectName | None = None
    """Function of a ``Runtime`` that returns (user, limiter) pairs; these limiters must be declared."""
    file_tasks: Mapping[str, ObjectName] = field(default_factory=dict)
    """Key in the table of a watch in ``tidemill.toml`` -> class of the ``FileTask`` that it configures."""
    open_results: ObjectName | None = None
    """Function of a ``Runtime``, a ``Job`` and a format that returns an open file with the job's results."""


def import_object(name: ObjectName) -> Any:
    """Return the object with this name; import its module if necessary."""
    return resolve_name(name)
