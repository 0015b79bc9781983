-- Add the carved part of an open batch as a leased batch, in the transaction that shrinks the open batch.
INSERT INTO tidemill.batch (job_id, owner_id, kind, state, lo, hi, seqs, open, isolated, crashes, losses,
    disconnects, retrying, half, lease_id, lease_until, worker)
VALUES (%(job_id)s, %(owner_id)s, %(kind)s, 'leased', %(lo)s, %(hi)s, %(seqs)s, %(open)s, %(isolated)s,
    %(crashes)s, %(losses)s, %(disconnects)s, %(retrying)s, %(half)s, %(lease_id)s,
    tidemill.now() + %(lease)s * interval '1 second', %(worker)s)
RETURNING id
