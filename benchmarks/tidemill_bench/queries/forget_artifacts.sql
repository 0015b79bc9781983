-- Deletes the records of distributed files; the files were deleted with their store. Index: artifact_pkey.
DELETE FROM tidemill.artifact WHERE dataset = 'tidemill_bench_statements'
