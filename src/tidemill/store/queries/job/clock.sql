-- The only clock.
SELECT tidemill.now()
