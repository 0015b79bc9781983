-- A hint that there is work; losing it costs only latency.
SELECT pg_notify('tidemill', %(job_id)s::text)
