-- Delete hints that were sent or are not needed any more, unless another relay claimed them. Index: outbox_pkey.
DELETE FROM tidemill.outbox WHERE id = ANY(%(ids)s) AND claimed_by = %(worker)s
