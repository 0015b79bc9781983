"""Small files as people have them, each with its expected table or the expected refusal."""
