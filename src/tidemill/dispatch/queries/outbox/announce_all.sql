-- Send one notification per job, without rows in the outbox.
SELECT pg_notify('tidemill', job_id::text) FROM unnest(%(job_ids)s::uuid[]) AS job_id
