-- Share a mapping, or stop sharing it. Index: import_mapping_pkey.
UPDATE tidemill.import_mapping SET shared = %(shared)s WHERE id = %(id)s
