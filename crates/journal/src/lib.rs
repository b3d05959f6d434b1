//! The one durable truth: inputs, commands and snapshots in SQLite.
