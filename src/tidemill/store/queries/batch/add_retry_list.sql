-- Add a list of items to retry, in the flush of the batch that they come from.
INSERT INTO tidemill.batch (job_id, owner_id, kind, lo, hi, seqs, open, not_before, retrying)
VALUES (%(job_id)s, %(owner_id)s, %(kind)s, %(lo)s, %(hi)s, %(seqs)s, %(open)s,
    tidemill.now() + %(delay)s * interval '1 second', %(retrying)s)
