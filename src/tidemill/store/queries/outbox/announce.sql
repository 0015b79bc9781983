-- There is work: a notification and, if the installation has a broker, a row of the outbox, in the caller's
-- transaction. Losing either costs only latency. Index: outbox_unsent, batch_claim.
SELECT tidemill.announce(%(job_id)s)
