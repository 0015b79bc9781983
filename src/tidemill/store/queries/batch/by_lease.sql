-- Return the batch that a lease created or changed, if that transaction was committed. Index: batch_leased, job_pkey.
SELECT b.id AS batch_id, b.job_id, b.owner_id, b.kind, b.state, b.lo, b.hi, b.seqs, b.open, b.flush_no, b.isolated,
    b.crashes, b.losses, b.disconnects, b.expiries, b.retrying, b.half, coalesce(j.sparse, false) AS sparse,
    j.request_id, j.traceparent, j.limiter, coalesce(j.requires, '{}') AS requires
FROM tidemill.batch b LEFT JOIN tidemill.job j ON j.id = b.job_id
WHERE b.worker = %(worker)s AND b.state = 'leased' AND b.lease_id = %(lease_id)s
