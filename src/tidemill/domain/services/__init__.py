"""Services of other people that rows are sent to: which there are, who may use them, and what their answers mean."""

from tidemill.domain.services.calls import CallFailed, Refused, failure_of
from tidemill.domain.services.declare import services
from tidemill.domain.services.service import Reach, Service

__all__ = ["CallFailed", "Reach", "Refused", "Service", "failure_of", "services"]
