"""The numbered steps from an empty database to `storage.tables`.

Names are `NNNN_pre_…` (safe before the new code runs) or `NNNN_post_…` (only once no old code runs). Steps go forward
only: a database that must go back is restored from its backup.
"""
