-- Announce work: send a notification and, if the installation has a broker, add a row to the outbox, in the caller's
-- transaction. Losing either only adds latency. Index: outbox_unsent, batch_claim.
SELECT tidemill.announce(%(job_id)s)
