-- The second target table of imports, with a foreign key to the first.
CREATE TABLE IF NOT EXISTS tidemill_bench.articles (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    slug         text NOT NULL UNIQUE,
    title        text NOT NULL,
    body         text NOT NULL,
    author_id    uuid NOT NULL REFERENCES tidemill_bench.users,
    tags         text[] NOT NULL DEFAULT '{}',
    status       text NOT NULL DEFAULT 'draft',
    published_at timestamptz
)
