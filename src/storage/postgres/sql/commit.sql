-- A batch. Everything hangs on the record of its slot: where that does not match, nothing is done. The update of the
-- record locks it to the end of the statement, so a fence waits for a batch under way, and a batch that waits for a fence
-- looks at the record anew. An entry is in one of two places, and both are looked up by their whole keys: OFFSET 0 keeps the
-- planner from an index scan over a queue.
-- As it stands it posts and deletes, which is what most batches do. What else a batch may do is in rest.sql, and is put in
-- at the two places marked: parts that find nothing to do cost as much as the work.
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
), appended AS (
    INSERT INTO entries (queue, aside, id, slot, state, created, ready, expires, ttl, attempts, size, client, peer, body)
    SELECT a.queue, a.state <> 0, a.id, record.slot, a.state, a.created, a.ready, a.expires, a.ttl, a.attempts, a.size,
        a.client, a.peer, a.body
    FROM record,
        unnest($18::uuid[], $19::uuid[], $20::int2[], $21::int8[], $22::int8[], $23::int8[], $24::int4[], $25::int4[],
            $26::int4[], $27::uuid[], $28::bytea[], $29::bytea[])
            AS a (queue, id, state, created, ready, expires, ttl, attempts, size, client, peer, body)
-- and the rest
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
        -- and of updates
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
)
SELECT slot FROM record
