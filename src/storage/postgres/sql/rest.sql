-- What a batch may do beside posts and deletes: updates and notes. It is put into commit.sql.
), updated AS (
    UPDATE entries e
    SET aside = u.state <> 0, state = u.state, created = u.created, ready = u.ready, expires = u.expires,
        ttl = u.ttl, attempts = u.attempts, size = u.size, client = u.client, peer = u.peer
    FROM (
        SELECT u.*, place.aside AS was
        FROM unnest($33::int2[], $34::uuid[], $35::uuid[], $36::int2[], $37::int8[], $38::int8[], $39::int8[], $40::int4[],
            $41::int4[], $42::int4[], $43::uuid[], $44::bytea[])
            AS u (slot, queue, id, state, created, ready, expires, ttl, attempts, size, client, peer),
            unnest('{f,t}'::boolean[]) AS place (aside)
        WHERE get_bit((SELECT slots FROM matched), u.slot) = 1
        OFFSET 0) AS u, entries o
    WHERE o.queue = u.queue AND o.aside = u.was AND o.id = u.id
        AND e.queue = u.queue AND e.aside = u.was AND e.id = u.id
    RETURNING e.queue,
        (e.state = 1)::int4 - (o.state = 1)::int4 AS scheduled, (e.state > 1)::int4 - (o.state > 1)::int4 AS aside
), noted AS (
    INSERT INTO notes (queue, kind, key, value, expires)
    SELECT n.queue, n.kind, n.key, n.value, n.expires
    FROM unnest($45::int2[], $46::uuid[], $47::int2[], $48::bytea[], $49::bytea[], $50::int8[])
        AS n (slot, queue, kind, key, value, expires)
    WHERE get_bit((SELECT slots FROM matched), n.slot) = 1
    ON CONFLICT (queue, kind, key) DO UPDATE SET value = excluded.value, expires = excluded.expires
), unnoted AS (
    DELETE FROM notes n
    USING (
        SELECT r.queue, r.kind, r.key
        FROM unnest($51::int2[], $52::uuid[], $53::int2[], $54::bytea[]) AS r (slot, queue, kind, key)
        WHERE get_bit((SELECT slots FROM matched), r.slot) = 1
        OFFSET 0) AS r
    WHERE n.queue = r.queue AND n.kind = r.kind AND n.key = r.key
