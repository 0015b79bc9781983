"""Builds the parts of a process from its settings, its features and the declarations of a mill."""

from collections.abc import Mapping
from functools import partial

from tidemill.app.feature_list import find_features_by_name, load_features
from tidemill.app.mill_declarations import HandlerFactory, HandlerRegistry
from tidemill.config import Settings
from tidemill.core.input_source import InputSourceOpener
from tidemill.core.kinds import Handler
from tidemill.engine.children.shared_state import SharedState
from tidemill.engine.context import EngineContext
from tidemill.features import ObjectName, import_object
from tidemill.files.source_opener import make_source_fetch
from tidemill.limits.limiter import Limiter, check_limiters_declared
from tidemill.runtime import OnDemandPool, Runtime
from tidemill.store.database import Database


def make_runtime(
    db: Database | None,
    settings: Settings,
    registry: HandlerRegistry | None = None,
    on_demand_pool: OnDemandPool | None = None,
) -> Runtime:
    """Return the runtime of a process with all features that are not disabled."""
    registry = registry or HandlerRegistry()
    return Runtime(
        db,
        settings,
        load_features(settings.disabled_features),
        registry.declarations,
        on_demand_pool,
        registry.limiter_handle,
        find_features_by_name(settings.disabled_features),
    )


def map_builtin_handler_factories(runtime: Runtime) -> dict[str, HandlerFactory]:
    """Return kind -> factory of its handler, for the kinds of all features."""

    def make_handler(name: ObjectName) -> Handler:
        handler: Handler = import_object(name)(runtime)
        return handler

    return {
        kind: partial(make_handler, name) for feature in runtime.features for kind, name in feature.handlers.items()
    }


def load_limiters(runtime: Runtime, registry: HandlerRegistry) -> Mapping[str, Limiter]:
    """Return the limiters of ``tidemill.toml`` and of the mill.

    Raises:
        InvalidSettings: A limiter is invalid, or a kind or a feature refers to an unknown limiter.
    """
    from tidemill.limits.config import parse_limiters  # noqa: PLC0415  most processes declare none

    if registry.checked_limiters is not None:
        return registry.checked_limiters
    declared = parse_limiters({"limiters": registry.declarations.limiters})
    limiters = runtime.load_section(parse_limiters) | declared
    users = [(f'Kind "{handler.kind}"', handler.limiter) for handler in registry.create_all()]
    for feature in runtime.features:
        if feature.limiter_users is not None:
            users += import_object(feature.limiter_users)(runtime)
    check_limiters_declared(limiters, users)
    registry.checked_limiters = limiters
    return limiters


def make_engine_context(
    db: Database,
    settings: Settings,
    registry: HandlerRegistry,
    *,
    worker: str,
    shared_state: SharedState,
    open_source: InputSourceOpener | None = None,
) -> EngineContext:
    """Return the context of a process that runs items. ``open_source``: by default, files are read in this process."""
    runtime = make_runtime(db, settings, registry)
    context = EngineContext(
        db,
        settings,
        registry.copy_with_builtins(map_builtin_handler_factories(runtime)),
        open_source or runtime.source_opener,
        make_source_fetch(settings),
        worker,
        shared_state,
        runtime.find_kind_hooks,
        declared_limiters=load_limiters(runtime, registry),
        redact_traceback=registry.redact_traceback,
    )
    registry.limiter_handle.bind_limiters(context.limiter_registry)
    return context
