"""The browser's side: one page, and the modules it is made of."""

from tidemill.web.app import install

__all__ = ["install"]
