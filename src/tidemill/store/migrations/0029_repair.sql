-- A repair fixes all rows of an import that failed for one cause, with one rule. It is a bulk operation, and each fix
-- names it. A user can cancel an operation.
ALTER TABLE tidemill.operation DROP CONSTRAINT operation_verb_check, DROP CONSTRAINT operation_state_check;
ALTER TABLE tidemill.operation
    ADD CONSTRAINT operation_verb_check
        CHECK (verb IN ('reprocess', 'redrive', 'cancel', 'dismiss', 'restore', 'repair')),
    ADD CONSTRAINT operation_state_check CHECK (state IN ('running', 'done', 'failed', 'cancelled'));
ALTER TABLE tidemill.item_fix ADD COLUMN operation_id uuid;

CREATE INDEX outcome_job_dismissed ON tidemill.outcome (job_id, seq) WHERE dismissed_at IS NOT NULL;
