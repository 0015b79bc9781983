-- A notification per job, no row of the outbox: what a broker would be told, told by the database.
SELECT pg_notify('tidemill', job_id::text) FROM unnest(%(job_ids)s::uuid[]) AS job_id
