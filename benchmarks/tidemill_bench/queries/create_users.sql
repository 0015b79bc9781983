-- The first target table of imports, with typical indexes.
CREATE TABLE IF NOT EXISTS tidemill_bench.users (
    id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    email      text NOT NULL UNIQUE,
    name       text NOT NULL,
    role       text NOT NULL CHECK (role IN ('admin', 'editor', 'author', 'reader')),
    active     boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
)
