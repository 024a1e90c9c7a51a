-- Applies batches of some slots, each slot once and in order. All writes of a slot depend on its record: if the record does
-- not match, nothing of the slot is written. The update of the records locks them to the end of the statement, so a fence
-- waits for a batch in progress, and a batch that waits for a fence reads the record again. An entry is in one of two parts
-- of the table, and both are looked up by their whole keys: OFFSET 0 keeps the planner from an index scan over a queue.
-- This text posts and deletes, which is all that most batches do. rest.sql has the other changes, and is inserted at the two
-- marks: parts without any work cost as much as the work itself.
WITH record AS (
    UPDATE records r
    SET seq = b.seq, last_id = GREATEST(r.last_id, b.last_id)
    FROM (
        SELECT *
        FROM unnest($1::int2[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::uuid[])
            AS b (slot, generation, transaction, seq, fences, last_id)
        OFFSET 0) AS b
    WHERE r.slot = b.slot AND r.pool = $2::uuid AND r.generation = b.generation AND r.transaction = b.transaction
        AND r.seq = b.seq - 1 AND (b.fences IS NULL OR r.fences = b.fences)
        -- For this statement only.
        AND (SELECT set_config('synchronous_commit', COALESCE($8::text, current_setting('synchronous_commit')), true)) <> ''
    RETURNING r.slot
), matched AS (
    -- A bit for each matched slot; null when no slot matched.
    SELECT bit_or(set_bit(repeat('0', 256)::bit(256), slot, 1)) AS slots FROM record
), removed AS (
    DELETE FROM entries e
    USING (
        SELECT r.queue, place.aside, r.id
        FROM unnest($17::int2[], $18::uuid[], $19::uuid[]) AS r (slot, queue, id), unnest('{f,t}'::boolean[]) AS place (aside)
        WHERE get_bit((SELECT slots FROM matched), r.slot) = 1
        OFFSET 0) AS r
    WHERE e.queue = r.queue AND e.aside = r.aside AND e.id = r.id
    RETURNING e.queue, e.state, octet_length(e.body)::int8 AS bytes
), appended AS (
    INSERT INTO entries (queue, aside, id, slot, state, created, ready, expires, ttl, attempts, size, client, peer,
        first_claimed, grouped, body)
    SELECT a.queue, a.state <> 0, a.id, a.slot, a.state, a.created, a.ready, a.expires, a.ttl, a.attempts, a.size,
        a.client, a.peer, a.first_claimed, a.grouped, a.body
    FROM unnest($20::int2[], $21::uuid[], $22::uuid[], $23::int2[], $24::int8[], $25::int8[], $26::int8[], $27::int4[],
            $28::int4[], $29::int4[], $30::uuid[], $31::bytea[], $32::int8[], $33::text[], $34::bytea[])
            AS a (slot, queue, id, state, created, ready, expires, ttl, attempts, size, client, peer, first_claimed, grouped,
                body)
    WHERE get_bit((SELECT slots FROM matched), a.slot) = 1
-- and the rest
), now AS (
    SELECT queue, sum(messages)::int8 AS messages, sum(bytes)::int8 AS bytes, sum(scheduled)::int8 AS scheduled,
        sum(aside)::int8 AS aside, (array_agg(low) FILTER (WHERE low IS NOT NULL))[1] AS low,
        (array_agg(least) FILTER (WHERE least IS NOT NULL))[1] AS least
    FROM (
        SELECT q.queue, q.low, q.least, q.messages, q.bytes, q.scheduled, q.aside
        FROM unnest($9::int2[], $10::uuid[], $11::uuid[], $12::uuid[], $13::int8[], $14::int8[], $15::int8[], $16::int8[])
            AS q (slot, queue, low, least, messages, bytes, scheduled, aside)
        WHERE get_bit((SELECT slots FROM matched), q.slot) = 1
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
