"""PostgreSQL: the record of everything, written by one named transaction at a time."""
