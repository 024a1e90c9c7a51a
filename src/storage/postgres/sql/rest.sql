-- What a batch may do beside posts and deletes: updates and notes. It is put into commit.sql.
), updated AS (
    UPDATE entries e
    SET aside = u.state <> 0, state = u.state, created = u.created, ready = u.ready, expires = u.expires,
        ttl = u.ttl, attempts = u.attempts, size = u.size, client = u.client, peer = u.peer
    FROM record, (
        SELECT u.*, place.aside AS was
        FROM unnest($30::uuid[], $31::uuid[], $32::int2[], $33::int8[], $34::int8[], $35::int8[], $36::int4[], $37::int4[],
            $38::int4[], $39::uuid[], $40::bytea[])
            AS u (queue, id, state, created, ready, expires, ttl, attempts, size, client, peer),
            unnest('{f,t}'::boolean[]) AS place (aside)
        OFFSET 0) AS u, entries o
    WHERE o.queue = u.queue AND o.aside = u.was AND o.id = u.id
        AND e.queue = u.queue AND e.aside = u.was AND e.id = u.id
    RETURNING e.queue,
        (e.state = 1)::int4 - (o.state = 1)::int4 AS scheduled, (e.state > 1)::int4 - (o.state > 1)::int4 AS aside
), noted AS (
    INSERT INTO notes (queue, kind, key, value, expires)
    SELECT n.queue, n.kind, n.key, n.value, n.expires
    FROM record, unnest($41::uuid[], $42::int2[], $43::bytea[], $44::bytea[], $45::int8[])
        AS n (queue, kind, key, value, expires)
    ON CONFLICT (queue, kind, key) DO UPDATE SET value = excluded.value, expires = excluded.expires
), unnoted AS (
    DELETE FROM notes n
    USING record, unnest($46::uuid[], $47::int2[], $48::bytea[]) AS r (queue, kind, key)
    WHERE n.queue = r.queue AND n.kind = r.kind AND n.key = r.key
