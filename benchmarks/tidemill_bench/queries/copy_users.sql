-- The baseline for importing users.
COPY tidemill_bench.users (id, email, name, role, active, created_at, updated_at) FROM STDIN (FORMAT csv)
