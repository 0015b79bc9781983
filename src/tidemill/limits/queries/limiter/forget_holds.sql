-- Places that ran out long ago, and those that are given back.
DELETE FROM tidemill.limiter_hold WHERE until < tidemill.now() - interval '1 minute' OR held = 0
