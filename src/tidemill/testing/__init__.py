"""For users' own tests: ``drain`` runs what is submitted, in this process; ``tidemill_database`` is a fixture."""

from tidemill.testing.drain import drain

__all__ = ["drain"]
