-- The mappings of a resource that an owner may use, the most recent first. Index: import_mapping_resource.
SELECT m.id, m.owner_id, u.name AS owner, m.resource, m.columns, m.options, m.shared, m.uses, m.job_key, m.used_at
FROM tidemill.import_mapping m JOIN tidemill.app_user u ON u.id = m.owner_id
WHERE m.resource = %(resource)s AND (m.owner_id = %(owner_id)s OR m.shared)
ORDER BY m.used_at DESC, m.id DESC LIMIT %(limit)s
