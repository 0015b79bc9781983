-- Creates rows that a lookup did not find, in the given order. Other sessions may create them at the same time.
-- Index: the unique index on these columns.
INSERT INTO {table} ({columns}) SELECT {values} FROM unnest({arrays}) WITH ORDINALITY AS n({names}, ord) ORDER BY n.ord
ON CONFLICT ({columns}) DO NOTHING
