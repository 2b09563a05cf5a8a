CREATE INDEX sessions_keyed ON sessions (key, started_at) WHERE key <> '';
