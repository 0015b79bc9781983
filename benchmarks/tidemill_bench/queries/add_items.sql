-- Creates items with inputs of about 100 bytes.
INSERT INTO tidemill.item (job_id, seq, input, at)
SELECT j.id, seq, format('{"id":%%s,"name":"Customer %%s","email":"customer.%%s@example.org","amount":%%s}',
    seq, seq, seq, seq * 7 %% 1000 / 100.0)::json, j.created_at
FROM tidemill.job j CROSS JOIN generate_series(0, %(items)s::bigint - 1) AS seq WHERE j.id = %(job_id)s
