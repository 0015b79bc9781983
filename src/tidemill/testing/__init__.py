"""Test support for users: ``drain`` runs submitted jobs in this process; ``tidemill_database`` is a pytest fixture."""

from tidemill.testing.drain import drain

__all__ = ["drain"]
