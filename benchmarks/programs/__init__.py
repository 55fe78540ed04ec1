"""The same ten programs for holdfast, DBOS, Temporal and Prefect, and the table that compares them."""
