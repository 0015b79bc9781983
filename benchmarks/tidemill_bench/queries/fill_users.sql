-- Creates users to export, in the order of their key.
INSERT INTO tidemill_bench.users (id, email, name, role, active, created_at, updated_at)
SELECT overlay(md5(n::text) PLACING lpad(to_hex(n), 8, '0') FROM 1)::uuid,
       'user' || n || '.' || mod(n, 977) || '@example.com',
       'User Number ' || n,
       (ARRAY['admin', 'editor', 'author', 'reader'])[mod(n, 4) + 1],
       mod(n, 3) <> 0,
       timestamptz '2024-01-01 00:30:45Z' + n * interval '31 s',
       timestamptz '2024-06-01 00:30:45Z' + n * interval '31 s'
FROM generate_series(1, %(n)s::integer) AS n
