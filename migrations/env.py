"""Alembic environment: runs the migrations on the given connection, in one transaction."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection)
with context.begin_transaction():
    context.run_migrations()
