-- Delete slots that expired more than a minute ago, and released ones.
DELETE FROM tidemill.limiter_hold WHERE until < tidemill.now() - interval '1 minute' OR held = 0
