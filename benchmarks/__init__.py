"""`make bench`: holdfast beside its peers and the raw limits of the same disk. Start reading at `plan.py`."""
