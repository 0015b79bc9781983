-- The least that loading these rows can cost.
COPY tidemill_bench.users (id, email, name, role, active, created_at, updated_at) FROM STDIN (FORMAT csv)
