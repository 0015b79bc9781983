-- Return the rows that an import wrote. Their keys begin with the key of the import. Sequential scan of a small table.
SELECT id, n FROM tidemill_torture.target WHERE starts_with(id, %(prefix)s)
