-- Add one part of a split list.
INSERT INTO tidemill.batch (job_id, owner_id, kind, lo, hi, seqs, open, isolated, crashes, retrying, half)
VALUES (%(job_id)s, %(owner_id)s, %(kind)s, %(lo)s, %(hi)s, %(seqs)s, %(open)s, %(isolated)s, %(crashes)s,
    %(retrying)s, %(half)s)
