-- The mapping that this owner, or else another owner who shares it, used last for these columns.
-- Index: import_mapping_owner_id_resource_fingerprint_key, import_mapping_resource.
SELECT m.id, m.owner_id, u.name AS owner, m.resource, m.columns, m.options, m.shared, m.uses, m.job_key, m.used_at
FROM tidemill.import_mapping m JOIN tidemill.app_user u ON u.id = m.owner_id
WHERE m.resource = %(resource)s AND m.fingerprint = %(fingerprint)s AND (m.owner_id = %(owner_id)s OR m.shared)
ORDER BY m.owner_id = %(owner_id)s DESC, m.used_at DESC LIMIT 1
