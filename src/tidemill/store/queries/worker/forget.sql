-- Delete workers without a heartbeat for a day.
DELETE FROM tidemill.worker WHERE seen_at < tidemill.now() - interval '1 day'
