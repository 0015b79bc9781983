"""Who may run jobs of a kind: the roles of ``[kinds]`` in ``tidemill.toml``, of the handler, or the default."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.config_sections import ConfigTable, Roles, parse_section
from tidemill.core.errors import Forbidden
from tidemill.core.kinds import KIND_REGEX
from tidemill.core.principal import Principal, Role, has_role
from tidemill.runtime import Runtime
from tidemill.store import workers
from tidemill.store.workers import KindOptions

_KIND_PATTERN = re.compile(KIND_REGEX)


class KindTable(ConfigTable):
    """One table of the section ``[kinds]``."""

    roles: Roles


def parse_kind_roles(document: Mapping[str, Any]) -> dict[str, Sequence[Role]]:
    """Return the roles in a document by kind; raise InvalidSettings with all problems."""
    return parse_section(document, "kinds", KindTable, lambda _, table: table.roles, names=_KIND_PATTERN)


class KindGrants:
    """Decides which roles may run jobs of a kind. The configuration file overrides the declaration of the handler."""

    def __init__(self, configured: Mapping[str, Sequence[Role]], default: Sequence[Role]) -> None:
        self._configured = configured
        self._default = default

    def is_allowed(self, kind: str, options: KindOptions | None, role: Role) -> bool:
        """Return whether a role may run a kind. ``options`` are those that a worker registered, if one did."""
        declared = None if options is None else options.roles
        return has_role(self._configured.get(kind, self._default if declared is None else declared), role)

    def select_allowed(self, known: Mapping[str, KindOptions], role: Role) -> dict[str, KindOptions]:
        return {kind: options for kind, options in known.items() if self.is_allowed(kind, options, role)}

    def require(self, kind: str, options: KindOptions | None, role: Role) -> None:
        if not self.is_allowed(kind, options, role):
            raise Forbidden(f'You may not run jobs of kind "{kind}". Ask an administrator to grant it to your role.')


def make_kind_grants(runtime: Runtime) -> KindGrants:
    return KindGrants(runtime.load_section(parse_kind_roles), runtime.settings.kind_roles)


async def list_revoked_kinds(runtime: Runtime, me: Principal) -> list[str]:
    """Return the registered kinds that the user may not run."""
    known = await runtime.db.read(workers.read_options_by_kind)
    return sorted(known.keys() - runtime.get(make_kind_grants).select_allowed(known, me.role).keys())
