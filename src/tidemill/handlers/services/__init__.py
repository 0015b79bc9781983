"""What built-in handlers that call services have in common."""

from tidemill.handlers.services.desk import ServiceDesk
from tidemill.handlers.services.directory import Directory
from tidemill.handlers.services.orders import Orders
from tidemill.handlers.services.outcomes import outcome_of

__all__ = ["Directory", "Orders", "ServiceDesk", "outcome_of"]
