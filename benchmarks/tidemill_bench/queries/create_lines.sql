-- What statements of customers are made of; its key is the index that a statement is read by.
CREATE TABLE IF NOT EXISTS tidemill_bench.lines (
    customer integer NOT NULL,
    line     integer NOT NULL,
    day      integer NOT NULL,
    said     text NOT NULL,
    amount   numeric NOT NULL,
    paid     boolean NOT NULL,
    PRIMARY KEY (customer, day, line)
)
