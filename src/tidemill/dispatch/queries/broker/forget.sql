-- Remove a broker that no worker has registered for a long time.
DELETE FROM tidemill.broker WHERE seen_at < tidemill.now() - %(seconds)s * interval '1 second'
