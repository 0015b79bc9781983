"""Files: blob stores, readers and writers of file formats, compression, downloads."""
