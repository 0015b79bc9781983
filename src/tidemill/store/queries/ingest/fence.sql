-- First statement of every chunk: check the lease, and that no other worker has appended items meanwhile. Index:
-- ingest_pkey.
UPDATE tidemill.ingest SET next_seq = %(hi)s, checkpoint = %(checkpoint)s, first_line = %(first_line)s,
    rows_wait_for_end = %(rows_wait_for_end)s, lease_until = tidemill.now() + %(lease)s * interval '1 second', losses = 0
WHERE job_id = %(job_id)s AND lease_id = %(lease_id)s AND next_seq = %(lo)s
RETURNING tidemill.now() AS at
