"""What the catalog of PostgreSQL says of a table, and what follows from it for the fields of a resource.

Everything that is read here is only ever an early look: the server checks its own rules when rows are written. So what
cannot be decided with certainty is left out, and no value that the server would take is refused.
"""
