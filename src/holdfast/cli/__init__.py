"""The command line: one small module per group of commands."""
