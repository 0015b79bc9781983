-- Tables of the demo: three to import into (users, articles and comments), and one to distribute files from (prices).
-- Rules for every client of the database are here; rules for imports only are in tidemill.toml.
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

-- Prices of the members of an index by date, for distributions.
CREATE TABLE IF NOT EXISTS demo.prices (
    index_key      text NOT NULL,
    effective_date integer NOT NULL,
    asofindicator  text NOT NULL,
    member         text NOT NULL,
    price          numeric(12, 4) NOT NULL,
    PRIMARY KEY (index_key, effective_date, asofindicator, member)
);
INSERT INTO demo.prices
SELECT index_key, to_char(day, 'YYYYMMDD')::integer, asof, 'M' || lpad(member::text, 4, '0'),
    round(100 + 50 * sin(member + extract(doy FROM day)::integer)::numeric, 4)
FROM unnest(ARRAY['ABC', 'DEF', 'GHI']) index_key, unnest(ARRAY['CLS', 'ADJCLS']) asof,
    generate_series(date '2024-01-29', date '2024-02-02', interval '1 day') day, generate_series(1, 100) member
ON CONFLICT DO NOTHING;
