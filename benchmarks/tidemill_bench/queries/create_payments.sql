-- The target table of files in plain notation and in the notation of a German spreadsheet.
CREATE TABLE IF NOT EXISTS tidemill_bench.payments (
    id       integer PRIMARY KEY,
    customer text NOT NULL,
    amount   numeric(12, 2) NOT NULL,
    fee      numeric(12, 2) NOT NULL,
    due      date NOT NULL,
    paid     boolean NOT NULL
)
