-- name: add view
INSERT INTO compaction_views (session, version, state) VALUES (:session, :version, :state)
ON CONFLICT DO NOTHING;

-- name: change view
UPDATE compaction_views SET version = :version, state = :state
WHERE session = :session AND version = :version - 1;

-- name: view
SELECT session, version, state FROM compaction_views WHERE session = :session;

-- name: add pin
INSERT INTO pins (id, session, text) VALUES (:id, :session, :text);

-- name: remove pin
DELETE FROM pins WHERE id = :id;

-- name: pins
SELECT id, session, text FROM pins WHERE session = :session ORDER BY n;

-- name: put failed
INSERT INTO failed_runs (run, session, outcome, reason, at)
VALUES (:run, :session, :outcome, :reason, :at)
ON CONFLICT (run) DO UPDATE SET outcome = excluded.outcome, reason = excluded.reason,
    at = excluded.at;

-- name: failed
SELECT run, session, outcome, reason, at FROM failed_runs WHERE session = :session ORDER BY at;

-- name: forget failed
DELETE FROM failed_runs WHERE at < :before;

-- name: add spend
INSERT INTO daily_spend (day, spender, dollars_before) VALUES (:day, :spender, :dollars)
ON CONFLICT DO NOTHING;

-- name: spend before
SELECT dollars_before FROM daily_spend WHERE day = :day AND spender = :spender;

-- name: forget spend
DELETE FROM daily_spend WHERE day < :before;

-- name: put runtime session
INSERT INTO runtime_sessions (runtime, id, session, at, state)
VALUES (:runtime, :id, :session, :at, :state)
ON CONFLICT (runtime, id) DO UPDATE SET session = excluded.session, at = excluded.at,
    state = excluded.state;

-- name: runtime session
SELECT runtime, id, session, at, state FROM runtime_sessions WHERE runtime = :runtime AND id = :id;

-- name: newest runtime sessions
SELECT runtime, id, session, at, state FROM runtime_sessions
WHERE runtime = :runtime ORDER BY at DESC LIMIT :limit;

-- name: put partial text
INSERT INTO partial_texts (run, session, text, holder) VALUES (:run, :session, :text, :holder)
ON CONFLICT (run) DO UPDATE SET text = excluded.text, holder = excluded.holder;

-- name: remove partial text
DELETE FROM partial_texts WHERE run = :run;

-- name: partial text
SELECT run, session, text, holder FROM partial_texts WHERE run = :run;

-- name: partial texts
SELECT run, session, text, holder FROM partial_texts WHERE session = :session ORDER BY run;

-- name: all partial texts
SELECT run, session, text, holder FROM partial_texts ORDER BY run;
