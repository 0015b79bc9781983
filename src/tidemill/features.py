"""The object with which a feature registers what it adds to Tidemill.

A feature is a package with its own model, handlers, use cases, HTTP routes, commands and SQL. Its ``Feature`` object
names modules and functions but imports none of them: they are imported when they are needed. The features of this
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
    """What a feature adds. Every name is that of an object: ``package.module:name``."""

    name: str
    handlers: Mapping[str, ObjectName] = field(default_factory=dict)
    """Kind -> function of a ``Runtime`` that returns the ``Handler``."""
    kinds: Mapping[str, ObjectName] = field(default_factory=dict)
    """Kind -> ``KindHooks``, for kinds whose jobs the shared use cases treat in their own way."""
    kind_aliases: Mapping[str, str] = field(default_factory=dict)
    """Another word for a kind in requests -> the kind."""
    routers: Sequence[ObjectName] = ()
    """FastAPI routers, mounted under ``/v1``."""
    openapi_tag: tuple[str, str] | None = None
    """The tag of its routes in the OpenAPI document, and what it says there."""
    openapi_examples: ObjectName | None = None
    """Mapping of pydantic model -> example; models that no route declares are added to the document."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """Command -> its line in ``tidemill --help``."""
    commands_module: str | None = None
    """The module whose ``commands`` is a ``typer.Typer`` with these commands."""
    declarations: Sequence[ObjectName] = ()
    """Functions of a ``Runtime`` that load what is declared for the feature, or raise InvalidSettings."""
    config_sections: Sequence[str] = ()
    """Its sections in ``tidemill.toml``; ``Runtime.load_section`` reads them."""
    worker_loops: ObjectName | None = None
    """Function of a ``Runtime`` and the worker's id that returns the loops that a worker runs beside its children."""
    housekeeping: Sequence[ObjectName] = ()
    """Store functions that maintenance runs now and then."""
    limiter_users: ObjectName | None = None
    """Function of a ``Runtime`` that returns (who, limiter) pairs: these limiters must be declared."""
    file_tasks: Mapping[str, ObjectName] = field(default_factory=dict)
    """What a watch can do with a file: the key in its table in ``tidemill.toml`` -> class of the ``FileTask``."""
    open_results: ObjectName | None = None
    """Function of a ``Runtime``, a ``Job`` and a format that returns an open file with the job's results."""


def import_object(name: ObjectName) -> Any:
    """The object with this name; its module is imported if necessary."""
    return resolve_name(name)
