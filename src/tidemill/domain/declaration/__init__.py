"""Resources as people declare them, in a ``tidemill.toml`` or in Python: what they add to what the catalog knows."""

from tidemill.domain.declaration.merge import merge
from tidemill.domain.declaration.model import Declaration, DeclaredField
from tidemill.domain.declaration.read import declarations

__all__ = ["Declaration", "DeclaredField", "declarations", "merge"]
