-- Return the time of the database, the only clock that Tidemill uses.
SELECT tidemill.now()
