"""What Alembic executes: runs the steps on the connection it was given, inside the caller's transaction."""

from alembic import context

from storage.snapshot_tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
