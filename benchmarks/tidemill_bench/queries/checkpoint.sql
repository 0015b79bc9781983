-- So that no turn pays for what another one has written.
CHECKPOINT
