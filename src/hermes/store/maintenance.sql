-- name: sources
SELECT source, count(*), sum(messages) FROM sessions GROUP BY source ORDER BY source;

-- name: messages
SELECT count(*) FROM messages;

-- name: queue items
SELECT coalesce(sum(state < 2), 0), coalesce(sum(state = 3), 0) FROM queue_items WHERE state <> 2;

-- name: pages
SELECT page_count * page_size, freelist_count * page_size
FROM pragma_page_count, pragma_page_size, pragma_freelist_count;

-- name: integrity
SELECT * FROM pragma_integrity_check;

-- name: foreign keys
SELECT DISTINCT "table" FROM pragma_foreign_key_check;
