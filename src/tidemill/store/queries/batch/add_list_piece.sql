-- Add one part of a split list.
INSERT INTO tidemill.batch (job_id, owner_id, kind, lo, hi, seqs, open, isolated, crashes, disconnects, retrying, half,
    not_before)
VALUES (%(job_id)s, %(owner_id)s, %(kind)s, %(lo)s, %(hi)s, %(seqs)s, %(open)s, %(isolated)s, %(crashes)s,
    %(disconnects)s, %(retrying)s, %(half)s, tidemill.now() + %(delay)s * interval '1 second')
