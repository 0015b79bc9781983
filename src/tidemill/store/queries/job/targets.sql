-- List the resources and datasets that the jobs of an owner read or write, by kind. Index: job_of_owner.
SELECT DISTINCT j.kind, coalesce(j.params->'plan'->'resource'->>'name', j.params->'plan'->>'resource', j.params->>'dataset')
FROM tidemill.job j
WHERE j.owner_id = %(owner_id)s AND j.kind = ANY(%(kinds)s) AND j.purged_at IS NULL
  AND coalesce(j.params->'plan'->>'resource', j.params->>'dataset') IS NOT NULL
