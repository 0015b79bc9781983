-- List open jobs with a failure policy that can fail them. Index: job_runnable.
SELECT id FROM tidemill.job
WHERE closed_as IS NULL AND intent IN ('run', 'pause') AND policy->>'mode' IN ('fail_fast', 'tolerate')
