-- List applied migrations.
SELECT name, checksum FROM tidemill.migration ORDER BY name
