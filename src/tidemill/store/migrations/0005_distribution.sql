-- The newest file of each input of a dataset: where it is, and who made it. It outlives the job.
CREATE TABLE tidemill.artifact (
    dataset   text NOT NULL,
    input_key text NOT NULL,
    path      text NOT NULL,
    job_id    uuid NOT NULL,
    seq       bigint NOT NULL,
    rows      bigint NOT NULL,
    size      bigint NOT NULL,
    sha256    text NOT NULL,
    format    text NOT NULL,
    made_at   timestamptz NOT NULL DEFAULT tidemill.now(),
    PRIMARY KEY (dataset, input_key)
);

-- How many files a flush told of, a row each: a sum in one place would be a lock that all of them want.
CREATE TABLE tidemill.delivery (
    job_id    uuid NOT NULL,
    generated integer NOT NULL,
    reused    integer NOT NULL
);
CREATE INDEX delivery_job ON tidemill.delivery (job_id);
