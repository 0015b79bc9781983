-- Workers not heard of for a day.
DELETE FROM tidemill.worker WHERE seen_at < tidemill.now() - interval '1 day'
