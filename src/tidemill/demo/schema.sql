-- Three tables to import into: people write articles, and comment on them. Every rule that a server should hold whoever
-- writes is here; those of one product's taste are in tidemill.toml.
CREATE SCHEMA IF NOT EXISTS demo;

CREATE TABLE IF NOT EXISTS demo.users (
    id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    email      text NOT NULL UNIQUE,
    name       text NOT NULL,
    role       text NOT NULL,
    active     boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS demo.articles (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    slug         text NOT NULL UNIQUE,
    title        text NOT NULL,
    description  text,
    body         text NOT NULL,
    author_id    uuid NOT NULL REFERENCES demo.users,
    tags         text[] NOT NULL DEFAULT '{}',
    published_at timestamptz,
    status       text NOT NULL DEFAULT 'draft',
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS demo.comments (
    id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    body       text NOT NULL,
    article_id uuid NOT NULL REFERENCES demo.articles,
    user_id    uuid NOT NULL REFERENCES demo.users,
    created_at timestamptz NOT NULL DEFAULT now()
);
