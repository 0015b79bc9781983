-- First statement of every flush: check the lease and update the counts in one write. If it matches no row, the flush
-- must write nothing. leased -> leased | done. Outcomes are not older than the claim, also if the clock was set back.
-- Index: batch_pkey.
UPDATE tidemill.batch SET
    open = open - %(settled)s, done = done + %(done)s, not_found = not_found + %(not_found)s,
    skipped = skipped + %(skipped)s, failed = failed + %(failed)s, retried = retried + %(retried)s,
    codes = CASE WHEN %(codes)s::jsonb IS NULL THEN codes ELSE tidemill.add_codes(codes, %(codes)s) END,
    further_codes = CASE WHEN %(further_codes)s::jsonb IS NULL THEN further_codes
        ELSE tidemill.add_codes(further_codes, %(further_codes)s) END,
    flush_no = flush_no + 1, losses = 0, expiries = 0,
    lease_until = greatest(lease_until, tidemill.now() + %(lease)s * interval '1 second'),
    seqs = CASE WHEN seqs IS NULL THEN NULL WHEN open = %(settled)s THEN '{}'::bigint[]
        ELSE ARRAY(SELECT unnest(seqs) EXCEPT SELECT unnest(%(seqs)s::bigint[]) ORDER BY 1) END,
    state = CASE WHEN open = %(settled)s THEN 'done' ELSE state END,
    closed_at = CASE WHEN open = %(settled)s THEN tidemill.now() END
WHERE id = %(batch_id)s AND lease_id = %(lease_id)s AND state = 'leased' AND flush_no = %(flush_no)s
RETURNING greatest(tidemill.now(), since) AS at, worker
