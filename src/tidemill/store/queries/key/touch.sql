-- Update the time an API key was last used, to the minute, without waiting for a lock.
UPDATE tidemill.api_key SET last_used_at = tidemill.now() WHERE prefix = ANY(ARRAY(
    SELECT prefix FROM tidemill.api_key WHERE prefix = %(prefix)s FOR UPDATE SKIP LOCKED))
