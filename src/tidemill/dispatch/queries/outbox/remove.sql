-- What was sent, or is wanted no more; if another relay has it by now, it is that one's. Index: outbox_pkey.
DELETE FROM tidemill.outbox WHERE id = ANY(%(ids)s) AND claimed_by = %(worker)s
