"""A run as an HTML page: one file without network access, or served live."""
