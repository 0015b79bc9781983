-- No turn pays for what loading left undone.
VACUUM (ANALYZE) tidemill_bench.users
