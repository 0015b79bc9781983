-- What ran.
SELECT name, checksum FROM tidemill.migration ORDER BY name
