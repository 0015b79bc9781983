-- The lines of customers' statements. A statement is read through the primary key.
CREATE TABLE IF NOT EXISTS tidemill_bench.lines (
    customer integer NOT NULL,
    line     integer NOT NULL,
    day      integer NOT NULL,
    said     text NOT NULL,
    amount   numeric NOT NULL,
    paid     boolean NOT NULL,
    PRIMARY KEY (customer, day, line)
)
