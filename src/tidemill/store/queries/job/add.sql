-- Add a job. Its columns come from the submission or, without any, from its registered kind. Returns no row if the
-- owner already used the idempotency key. The time is text: connections of an application may load it without its zone.
INSERT INTO tidemill.job (owner_id, kind, params, policy, source, priority, limiter, sparse, ingest_done,
    request_id, traceparent, ip_address, file_id, idem_key, idem_print, requires, result_columns)
VALUES (%(owner_id)s, %(kind)s, %(params)s, %(policy)s, %(source)s, %(priority)s, %(limiter)s, %(sparse)s,
    %(ingest_done)s, %(request_id)s, %(traceparent)s, %(ip_address)s, %(file_id)s, %(idem_key)s, %(idem_print)s,
    %(requires)s,
    CASE WHEN %(columns)s::text[] <> '{}' THEN %(columns)s::text[] ELSE ARRAY(
        SELECT c.name FROM tidemill.kind k, jsonb_array_elements_text(k.options->'columns') WITH ORDINALITY AS c(name, place)
        WHERE k.name = %(kind)s ORDER BY c.place) END)
ON CONFLICT (owner_id, idem_key) DO NOTHING
RETURNING id, tidemill.now()::text AS at
