-- name: put location
INSERT INTO session_locations (session, key, address, principal, role, asker)
VALUES (:session, :key, :address, :principal, :role, :asker)
ON CONFLICT (session) DO UPDATE SET key = excluded.key, address = excluded.address,
    principal = excluded.principal, role = excluded.role, asker = excluded.asker;

-- name: location
SELECT session, key, address, principal, role, asker FROM session_locations
WHERE session = :session;

-- name: add key
INSERT INTO session_keys (key, topic, chat) VALUES (:key, :topic, :chat)
ON CONFLICT DO NOTHING;

-- name: key
SELECT key, topic, chat FROM session_keys WHERE key = :key;

-- name: keys at
SELECT key FROM session_keys WHERE topic = :topic ORDER BY n DESC LIMIT :limit;

-- name: put question post
INSERT INTO question_posts (channel, chat, post, question, at)
VALUES (:channel, :chat, :post, :question, :at)
ON CONFLICT (channel, chat, post) DO UPDATE SET question = excluded.question, at = excluded.at;

-- name: question in
SELECT question FROM question_posts WHERE channel = :channel AND chat = :chat AND post = :post;

-- name: forget question posts
DELETE FROM question_posts WHERE at < :before;

-- name: add turn
INSERT INTO started_turns (message, principal, at) VALUES (:message, :principal, :at)
ON CONFLICT (message) DO UPDATE SET principal = excluded.principal, at = excluded.at;

-- name: turns
SELECT at FROM started_turns WHERE principal = :principal ORDER BY at DESC LIMIT :limit;

-- name: forget turns
DELETE FROM started_turns WHERE at < :before;

-- name: mark unreachable
INSERT OR REPLACE INTO unreachable_chats (topic, reason) VALUES (:topic, :reason);

-- name: forget unreachable
DELETE FROM unreachable_chats WHERE topic = :topic;

-- name: unreachable
SELECT topic, reason FROM unreachable_chats ORDER BY n DESC LIMIT :limit;
