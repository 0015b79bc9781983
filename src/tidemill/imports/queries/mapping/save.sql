-- Remember the mapping of an import whose owner still exists, once per job. No row is locked, because workers may not
-- update users: if the owner is deleted at the same time, the foreign key fails and the batch is retried.
-- Index: job_pkey, app_user_pkey, import_mapping_owner_id_resource_fingerprint_key.
INSERT INTO tidemill.import_mapping AS m (owner_id, resource, fingerprint, columns, options, job_id, job_key)
SELECT j.owner_id, %(resource)s, %(fingerprint)s, %(columns)s::jsonb, %(options)s::jsonb, j.id, j.key
FROM tidemill.job j JOIN tidemill.app_user u ON u.id = j.owner_id WHERE j.id = %(job_id)s
ON CONFLICT (owner_id, resource, fingerprint) DO UPDATE SET columns = excluded.columns, options = excluded.options,
    job_id = excluded.job_id, job_key = excluded.job_key, uses = m.uses + 1, used_at = tidemill.now()
WHERE m.job_id <> excluded.job_id
