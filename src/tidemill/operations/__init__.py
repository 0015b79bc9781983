"""What users want, one copy for every entrance. They write rows; the engine reacts."""
