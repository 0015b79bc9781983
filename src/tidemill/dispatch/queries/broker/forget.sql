-- A broker that no worker has been set up with for so long is none of ours any more.
DELETE FROM tidemill.broker WHERE seen_at < tidemill.now() - %(seconds)s * interval '1 second'
