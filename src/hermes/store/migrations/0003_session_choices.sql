ALTER TABLE sessions ADD COLUMN effort TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN personality TEXT NOT NULL DEFAULT '';

DROP VIEW whole_sessions;
CREATE VIEW whole_sessions AS
SELECT
    s.id, s.started_at, s.source, s.principal, s.key, s.title, s.model, s.provider, p.system,
    o.id AS parent, s.cwd, s.ended_at, s.end_reason, s.effort, s.personality, s.last_at,
    s.messages, s.tool_calls, s.preview, s.model_calls, s.input, s.output, s.cache_read,
    s.cache_write, s.reasoning, s.cost, s.unpriced, s.n
FROM sessions AS s
LEFT JOIN prompts AS p ON p.session = s.n
LEFT JOIN sessions AS o ON o.n = s.parent;
