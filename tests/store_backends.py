"""The backends of a store, for the tests of its contract."""

SHARED = ("sqlite-file", "postgres")
"""Those that several clients can have open."""

BACKENDS = ("sqlite-memory", *SHARED)
