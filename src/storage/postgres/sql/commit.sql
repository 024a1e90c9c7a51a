-- A batch. Everything hangs on the record of its slot: where that does not match, nothing is done. The update of the
-- record locks it to the end of the statement, so a fence waits for a batch under way, and a batch that waits for a fence
-- looks at the record anew. An entry is in one of two places, and both are looked up by their whole keys: OFFSET 0 keeps the
-- planner from an index scan over a queue.
WITH record AS (
    UPDATE records
    SET seq = $5::int8, last_id = GREATEST(last_id, $7::uuid)
    WHERE slot = $1::int2 AND pool = $2::uuid AND generation = $3::int8 AND transaction = $4::int8
        AND seq = $5::int8 - 1 AND ($6::int8 IS NULL OR fences = $6::int8)
        -- For this statement alone.
        AND set_config('synchronous_commit', COALESCE($8::text, current_setting('synchronous_commit')), true) <> ''
    RETURNING slot
), removed AS (
    DELETE FROM entries e
    USING record, (
        SELECT r.queue, place.aside, r.id
        FROM unnest($16::uuid[], $17::uuid[]) AS r (queue, id), unnest('{f,t}'::boolean[]) AS place (aside)
        OFFSET 0) AS r
    WHERE e.queue = r.queue AND e.aside = r.aside AND e.id = r.id
    RETURNING e.queue, e.state, octet_length(e.body)::int8 AS bytes
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
), appended AS (
    INSERT INTO entries (queue, aside, id, slot, state, created, ready, expires, ttl, attempts, size, client, peer, body)
    SELECT a.queue, a.state <> 0, a.id, record.slot, a.state, a.created, a.ready, a.expires, a.ttl, a.attempts, a.size,
        a.client, a.peer, a.body
    FROM record,
        unnest($18::uuid[], $19::uuid[], $20::int2[], $21::int8[], $22::int8[], $23::int8[], $24::int4[], $25::int4[],
            $26::int4[], $27::uuid[], $28::bytea[], $29::bytea[])
            AS a (queue, id, state, created, ready, expires, ttl, attempts, size, client, peer, body)
), now AS (
    SELECT queue, sum(messages)::int8 AS messages, sum(bytes)::int8 AS bytes, sum(scheduled)::int8 AS scheduled,
        sum(aside)::int8 AS aside, (array_agg(low) FILTER (WHERE low IS NOT NULL))[1] AS low,
        (array_agg(least) FILTER (WHERE least IS NOT NULL))[1] AS least
    FROM (
        SELECT q.*
        FROM record,
            unnest($9::uuid[], $10::uuid[], $11::uuid[], $12::int8[], $13::int8[], $14::int8[], $15::int8[])
                AS q (queue, low, least, messages, bytes, scheduled, aside)
        UNION ALL
        SELECT queue, NULL, NULL, -1, -bytes, -(state = 1)::int4, -(state > 1)::int4 FROM removed
        UNION ALL
        SELECT queue, NULL, NULL, 0, 0, scheduled, aside FROM updated
    ) AS change
    GROUP BY queue
), counted AS (
    UPDATE queues q
    SET messages = q.messages + n.messages, bytes = q.bytes + n.bytes, scheduled = q.scheduled + n.scheduled,
        aside = q.aside + n.aside, low = LEAST(GREATEST(q.low, n.low), n.least)
    FROM now n
    WHERE q.queue = n.queue
), begun AS (
    INSERT INTO queues (queue, messages, bytes, scheduled, aside, low)
    SELECT n.queue, n.messages, n.bytes, n.scheduled, n.aside, LEAST(n.low, n.least)
    FROM now n
    WHERE NOT EXISTS (SELECT FROM queues q WHERE q.queue = n.queue)
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
)
SELECT slot FROM record
