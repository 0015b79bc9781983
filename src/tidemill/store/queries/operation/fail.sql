-- running -> failed. Items that were already requeued stay requeued.
UPDATE tidemill.operation SET state = 'failed', error = %(error)s, updated_at = tidemill.now() WHERE id = %(id)s
