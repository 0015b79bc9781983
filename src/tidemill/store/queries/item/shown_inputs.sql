-- Return the inputs of items as a grid shows them, in their newest fix. Inputs longer than 16 kB are NULL, as with
-- results. Index: item_pkey, item_fix_pkey.
SELECT seq, CASE WHEN pg_column_size(input) <= 131072 AND octet_length(input::text) <= 16384 THEN input::text END AS input
FROM (
    SELECT i.seq, coalesce(f.input, i.input) AS input
    FROM unnest(%(seqs)s::bigint[]) AS asked(seq)
    CROSS JOIN LATERAL (
        SELECT i.seq, i.input FROM tidemill.item i WHERE i.job_id = %(job_id)s AND i.seq = asked.seq LIMIT 1
    ) i
    LEFT JOIN LATERAL (
        SELECT f.input FROM tidemill.item_fix f WHERE f.job_id = %(job_id)s AND f.seq = asked.seq ORDER BY f.rev DESC LIMIT 1
    ) f ON true
) given
