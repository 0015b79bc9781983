-- A page of the mappings of an owner (NULL: of all owners) and the shared mappings of some resources, the most recent
-- first. Index: import_mapping_owner, import_mapping_resource.
SELECT m.id, m.owner_id, u.name AS owner, m.resource, m.columns, m.options, m.shared, m.uses, m.job_key, m.used_at
FROM tidemill.import_mapping m JOIN tidemill.app_user u ON u.id = m.owner_id
WHERE (%(owner_id)s::bigint IS NULL OR m.owner_id = %(owner_id)s OR (m.shared AND m.resource = ANY(%(resources)s)))
    AND (%(resource)s::text IS NULL OR m.resource = %(resource)s) AND (m.used_at, m.id) < (%(at)s, %(id)s)
ORDER BY m.used_at DESC, m.id DESC LIMIT %(limit)s
