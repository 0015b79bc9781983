"""Worker processes: the supervisor, its children and the memory that they share."""
