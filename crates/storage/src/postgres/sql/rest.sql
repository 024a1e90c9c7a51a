-- The changes of a batch other than posts and deletes: updates and notes. It is inserted into commit.sql.
), updated AS (
    UPDATE entries e
    SET aside = u.state <> 0, state = u.state, created = u.created, ready = u.ready, expires = u.expires,
        ttl = u.ttl, attempts = u.attempts, size = u.size, client = u.client, peer = u.peer,
        first_claimed = u.first_claimed
    FROM (
        SELECT u.*, place.aside AS was
        FROM unnest($35::int2[], $36::uuid[], $37::uuid[], $38::int2[], $39::int8[], $40::int8[], $41::int8[], $42::int4[],
            $43::int4[], $44::int4[], $45::uuid[], $46::bytea[], $47::int8[])
            AS u (slot, queue, id, state, created, ready, expires, ttl, attempts, size, client, peer, first_claimed),
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
    FROM unnest($48::int2[], $49::uuid[], $50::int2[], $51::bytea[], $52::bytea[], $53::int8[])
        AS n (slot, queue, kind, key, value, expires)
    WHERE get_bit((SELECT slots FROM matched), n.slot) = 1
    ON CONFLICT (queue, kind, key) DO UPDATE SET value = excluded.value, expires = excluded.expires
), unnoted AS (
    DELETE FROM notes n
    USING (
        SELECT r.queue, r.kind, r.key
        FROM unnest($54::int2[], $55::uuid[], $56::int2[], $57::bytea[]) AS r (slot, queue, kind, key)
        WHERE get_bit((SELECT slots FROM matched), r.slot) = 1
        OFFSET 0) AS r
    WHERE n.queue = r.queue AND n.kind = r.kind AND n.key = r.key
