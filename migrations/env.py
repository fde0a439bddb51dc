"""What Alembic runs around the migrations: on the connection it is handed, in one transaction."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection)
with context.begin_transaction():
    context.run_migrations()
