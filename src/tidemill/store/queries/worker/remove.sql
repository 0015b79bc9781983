-- A worker that stopped as it should.
DELETE FROM tidemill.worker WHERE id = %(id)s
