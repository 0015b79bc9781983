-- running -> failed. What was sent round before stays so.
UPDATE tidemill.operation SET state = 'failed', error = %(error)s, updated_at = tidemill.now() WHERE id = %(id)s
