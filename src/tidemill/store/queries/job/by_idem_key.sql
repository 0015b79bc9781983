-- The job an owner's idempotency key made. A statement of its own: it must see what ON CONFLICT ran into.
SELECT id, idem_print, kind, params, policy, priority FROM tidemill.job WHERE owner_id = %(owner_id)s AND idem_key = %(idem_key)s
