-- Make the id of an operation before it is added, so that a repeated INSERT can be recognized.
SELECT tidemill.new_id()
