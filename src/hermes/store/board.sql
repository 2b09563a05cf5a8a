-- name: wal
PRAGMA journal_mode = WAL;

-- name: pragmas
PRAGMA synchronous = FULL;
PRAGMA wal_autocheckpoint = 100;
PRAGMA foreign_keys = ON;
PRAGMA secure_delete = ON;
PRAGMA cell_size_check = ON;

-- name: indexes
CREATE INDEX IF NOT EXISTS idx_tasks_assignee_status ON tasks (assignee, status);
CREATE INDEX IF NOT EXISTS idx_tasks_status ON tasks (status);
CREATE INDEX IF NOT EXISTS idx_tasks_tenant ON tasks (tenant);
CREATE INDEX IF NOT EXISTS idx_tasks_idempotency ON tasks (idempotency_key);
CREATE INDEX IF NOT EXISTS idx_tasks_session_id ON tasks (session_id);
CREATE INDEX IF NOT EXISTS idx_links_child ON task_links (child_id);
CREATE INDEX IF NOT EXISTS idx_links_parent ON task_links (parent_id);
CREATE INDEX IF NOT EXISTS idx_comments_task ON task_comments (task_id, created_at);
CREATE INDEX IF NOT EXISTS idx_events_task ON task_events (task_id, created_at);
CREATE INDEX IF NOT EXISTS idx_events_run ON task_events (run_id, id);
CREATE INDEX IF NOT EXISTS idx_runs_task ON task_runs (task_id, started_at);
CREATE INDEX IF NOT EXISTS idx_runs_status ON task_runs (status);
CREATE INDEX IF NOT EXISTS idx_attachments_task ON task_attachments (task_id, created_at);
CREATE INDEX IF NOT EXISTS idx_notify_task ON kanban_notify_subs (task_id);
CREATE INDEX IF NOT EXISTS idx_tasks_order ON tasks (priority DESC, created_at);

-- name: has indexes
SELECT count(*) FROM sqlite_master WHERE type = 'index' AND name = 'idx_tasks_order';

-- name: tables
SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%';

-- name: status counts
SELECT status, count(*) FROM tasks GROUP BY status;

-- name: comment counts
SELECT task_id, count(*) FROM task_comments GROUP BY task_id;

-- name: latest summaries
SELECT task_id, summary FROM task_runs
WHERE id IN (SELECT max(id) FROM task_runs WHERE summary IS NOT NULL GROUP BY task_id);

-- name: running by assignee
SELECT coalesce(t.assignee, r.profile) AS name, count(*)
FROM tasks AS t LEFT JOIN task_runs AS r ON r.id = t.current_run_id
WHERE t.status = 'running' AND name IS NOT NULL GROUP BY name;

-- name: parents
SELECT parent_id FROM task_links WHERE child_id = ? ORDER BY rowid;

-- name: children
SELECT child_id FROM task_links WHERE parent_id = ? ORDER BY rowid;

-- name: links
SELECT parent_id, child_id FROM task_links ORDER BY rowid;

-- name: add link
INSERT OR IGNORE INTO task_links (parent_id, child_id) VALUES (?, ?);

-- name: remove link
DELETE FROM task_links WHERE parent_id = ? AND child_id = ?;

-- name: open parents
SELECT l.parent_id FROM task_links AS l JOIN tasks AS p ON p.id = l.parent_id
WHERE l.child_id = ? AND p.status NOT IN ('done', 'archived') ORDER BY l.rowid;

-- name: promotable
SELECT t.id FROM tasks AS t WHERE t.status = 'todo' AND NOT EXISTS (
    SELECT 1 FROM task_links AS l JOIN tasks AS p ON p.id = l.parent_id
    WHERE l.child_id = t.id AND p.status NOT IN ('done', 'archived'))
ORDER BY t.priority DESC, t.created_at;

-- name: add comment
INSERT INTO task_comments (task_id, author, body, created_at) VALUES (?, ?, ?, ?) RETURNING id;

-- name: add event
INSERT INTO task_events (task_id, kind, created_at, payload, run_id)
VALUES (?, ?, ?, ?, ?) RETURNING id;

-- name: last event
SELECT coalesce(max(id), 0) FROM task_events;

-- name: remove attachment
DELETE FROM task_attachments WHERE id = ?;

-- name: remove subscription
DELETE FROM kanban_notify_subs
WHERE task_id = ? AND platform = ? AND chat_id = ? AND thread_id = ?;

-- name: move cursor
UPDATE kanban_notify_subs SET last_event_id = max(last_event_id, ?)
WHERE task_id = ? AND platform = ? AND chat_id = ? AND thread_id = ?;

-- name: delete events
DELETE FROM task_events WHERE created_at < ?
    AND task_id IN (SELECT id FROM tasks WHERE status IN ('done', 'archived'));
