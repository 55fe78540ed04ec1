"""Processes that come to grief (filled in below)."""
