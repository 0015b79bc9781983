-- One mapping. Index: import_mapping_pkey.
SELECT m.id, m.owner_id, u.name AS owner, m.resource, m.columns, m.options, m.shared, m.uses, m.job_key, m.used_at
FROM tidemill.import_mapping m JOIN tidemill.app_user u ON u.id = m.owner_id WHERE m.id = %(id)s
