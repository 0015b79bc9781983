-- The baseline for importing articles.
COPY tidemill_bench.articles (id, slug, title, body, author_id, tags, status, published_at) FROM STDIN (FORMAT csv)
