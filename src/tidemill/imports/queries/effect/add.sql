-- Adds the effects of a batch on its target, in the transaction of the batch.
INSERT INTO tidemill.effect (job_id, inserted, updated, unchanged, created)
VALUES (%(job_id)s, %(inserted)s, %(updated)s, %(unchanged)s, %(created)s)
