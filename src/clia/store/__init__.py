"""Live state: SQLite and PostgreSQL stores, work queue, locks, notifications and schema migrations."""
