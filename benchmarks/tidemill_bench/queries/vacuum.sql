-- What autovacuum would do a little later, in the midst of what is measured.
VACUUM (ANALYZE) tidemill.job, tidemill.item, tidemill.outcome, tidemill.batch, tidemill.api_key
