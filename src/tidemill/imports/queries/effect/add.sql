-- What a batch did to its target; in the transaction that did it.
INSERT INTO tidemill.effect (job_id, inserted, updated, unchanged)
VALUES (%(job_id)s, %(inserted)s, %(updated)s, %(unchanged)s)
