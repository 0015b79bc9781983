-- Otherwise autovacuum would run during the measurement.
VACUUM (ANALYZE) tidemill.job, tidemill.item, tidemill.outcome, tidemill.batch, tidemill.api_key
