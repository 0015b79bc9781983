-- Quarantined messages, newest first. Index: quarantine_pkey.
SELECT id, at, source, reason, message, size, job_id, worker FROM tidemill.quarantine
WHERE id < coalesce(%(before)s, 9223372036854775807) ORDER BY id DESC LIMIT %(limit)s
