-- Return one bulk operation. Index: operation_pkey.
SELECT * FROM tidemill.operation WHERE id = %(id)s
