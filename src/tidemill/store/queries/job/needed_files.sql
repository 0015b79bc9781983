-- Which of these files some job still needs: it is there, and its rows are not purged. Index: job_file.
SELECT DISTINCT file_id FROM tidemill.job WHERE file_id = ANY(%(files)s) AND purged_at IS NULL
