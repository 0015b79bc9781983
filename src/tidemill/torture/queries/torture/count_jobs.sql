-- Count the jobs and the live workers of an installation.
SELECT (SELECT count(*) FROM tidemill.job) AS jobs,
    (SELECT count(*) FROM tidemill.worker WHERE seen_at > tidemill.now() - interval '1 minute') AS workers
