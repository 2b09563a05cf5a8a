-- name: writer
PRAGMA synchronous = FULL;
PRAGMA foreign_keys = ON;
PRAGMA cache_size = -1000;
PRAGMA temp_store = MEMORY;
PRAGMA journal_size_limit = 67108864;
PRAGMA wal_autocheckpoint = 4000;

-- name: reader
PRAGMA cache_size = -2000;
PRAGMA mmap_size = 268435456;

-- name: wal
PRAGMA journal_mode = WAL;

-- name: application
PRAGMA application_id;

-- name: version
PRAGMA user_version;

-- name: tables
SELECT name FROM sqlite_schema WHERE type = 'table';
