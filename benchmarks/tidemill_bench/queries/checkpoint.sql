-- Writes dirty pages, so that no run pays for the writes of the previous one.
CHECKPOINT
