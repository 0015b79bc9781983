-- Files of the benchmark's dataset are gone with its store. Index: artifact_pkey.
DELETE FROM tidemill.artifact WHERE dataset = 'tidemill_bench_statements'
