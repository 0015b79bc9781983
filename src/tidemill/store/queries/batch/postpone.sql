-- leased -> ready: release a batch whose transaction lost its connection, and count the loss. A list is marked as half,
-- so that it is not merged with other lists. Index: batch_pkey.
UPDATE tidemill.batch SET state = 'ready', lease_id = NULL, lease_until = NULL, worker = NULL,
    since = tidemill.now(), not_before = tidemill.now() + %(delay)s * interval '1 second',
    disconnects = least(%(disconnects)s, 1000), half = half OR seqs IS NOT NULL
WHERE id = %(batch_id)s AND lease_id = %(lease_id)s AND state = 'leased' AND flush_no = %(flush_no)s
RETURNING 1
