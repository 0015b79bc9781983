-- So many items of a cancelled range are there no more: they go round again in a list. Index: batch_pkey.
UPDATE tidemill.batch SET cancelled = cancelled - %(n)s WHERE id = %(batch_id)s
