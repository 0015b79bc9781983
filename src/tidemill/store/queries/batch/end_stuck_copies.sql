-- Terminate Tidemill sessions in the middle of a COPY whose client has sent nothing for too long. statement_timeout and
-- similar settings do not fire while COPY waits for its client (observed on 18.4).
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
  AND application_name LIKE 'tidemill%%' AND application_name <> 'tidemill, unbounded' AND state = 'active' AND wait_event = 'ClientRead'
  AND query_start < clock_timestamp() - interval '1 second'
      * coalesce(substring(application_name FROM 'limit (\d+) s')::float8, %(seconds)s)
