-- A page of a job's failed rows in order of seq, optionally only those with some errors, or without dismissed ones, with
-- their current inputs. The query reads at most `budget` outcomes; the outcome after them is returned with is_end. A page has at most `bytes` bytes,
-- but at least one row; `total` is the number of rows before this limit.
-- Index: outcome_pkey, item_pkey, item_fix_pkey, ingest_pkey.
SELECT seq, error, input, line, first_line, is_end, total FROM (
    SELECT p.seq, p.error, p.is_end, i.line, g.first_line, CASE WHEN NOT p.is_end THEN coalesce(f.input, i.input)::text END AS input,
        sum(octet_length(coalesce(f.input, i.input)::text)) OVER (ORDER BY p.seq) AS bytes,
        row_number() OVER (ORDER BY p.seq) AS n, count(*) OVER () AS total
    FROM (
        SELECT seq, error, n > %(budget)s AS is_end FROM (
            SELECT seq, status, error, dismissed_at, row_number() OVER (ORDER BY seq) AS n FROM (
                SELECT seq, status, error, dismissed_at FROM tidemill.outcome
                WHERE job_id = %(job_id)s AND seq > %(after_seq)s ORDER BY seq LIMIT %(budget)s + 1
            ) seen
        ) numbered
        WHERE n > %(budget)s OR (status = 'failed' AND (%(with_dismissed)s OR dismissed_at IS NULL)
            AND (%(codes)s::text[] IS NULL OR error->>'code' = ANY(%(codes)s::text[]) OR tidemill.further_codes(error) && %(codes)s::text[]))
        ORDER BY seq LIMIT %(limit)s
    ) p
    JOIN tidemill.ingest g ON g.job_id = %(job_id)s
    CROSS JOIN LATERAL (
        SELECT i.line, i.input FROM tidemill.item i WHERE i.job_id = %(job_id)s AND i.seq = p.seq LIMIT 1
    ) i
    LEFT JOIN LATERAL (
        SELECT f.input FROM tidemill.item_fix f WHERE f.job_id = %(job_id)s AND f.seq = p.seq ORDER BY f.rev DESC LIMIT 1
    ) f ON true
) page
WHERE n = 1 OR bytes <= %(bytes)s
ORDER BY seq
