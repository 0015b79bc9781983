-- Delete a mapping. Index: import_mapping_pkey.
DELETE FROM tidemill.import_mapping WHERE id = %(id)s
