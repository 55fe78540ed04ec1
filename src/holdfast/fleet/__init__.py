"""Bringing runs to whoever drives them: one process on SQLite, any number of workers on Postgres."""
