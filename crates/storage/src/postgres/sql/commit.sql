-- Applies batches of some slots, each slot once and in order. All writes of a slot depend on its record: if the record does
-- not match, nothing of the slot is written. The update of the records locks them to the end of the statement, so a fence
-- waits for a batch in progress, and a batch that waits for a fence reads the record again. An entry is in one of two parts
-- of the table, and both are looked up by their whole keys; then the row is changed by its place. OFFSET 0 keeps the planner
-- from a join instead: it would scan the whole table for that, if the table was empty when it planned.
-- This text posts and deletes, which is all that most batches do. rest.sql has the other changes, and is inserted at the two
-- marks: parts without any work cost as much as the work itself. An entry without a body of its own shares one, which has
-- as many bytes as the size of the entry.
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
        SELECT found.place
        FROM unnest($13::int2[], $14::uuid[], $15::uuid[]) AS r (slot, queue, id),
            unnest('{f,t}'::boolean[]) AS part (aside),
            LATERAL (
                SELECT o.ctid AS place FROM entries o WHERE o.queue = r.queue AND o.aside = part.aside AND o.id = r.id
                OFFSET 0) AS found
        WHERE get_bit((SELECT slots FROM matched), r.slot) = 1
        OFFSET 0) AS r
    WHERE e.ctid = r.place
    RETURNING e.queue, e.state, COALESCE(octet_length(e.body), e.size)::int8 AS bytes, e.shared
), lowered AS (
    -- The shared bodies of removed entries, and how many readers each keeps. A body without readers has its lender,
    -- unless that queue was dropped: then the queue has no row, and must get none again. A drop of another queue may
    -- have counted them while this statement waited for the record, after its snapshot: the locks read each row as it
    -- is now.
    SELECT b.id, b.readers - gone.readers AS readers, l.queue AS lender, b.bytes
    FROM (SELECT shared, count(*)::int4 AS readers FROM removed WHERE shared IS NOT NULL GROUP BY shared) AS gone
        CROSS JOIN LATERAL (
            SELECT o.id, o.readers, o.lender, octet_length(o.body)::int8 AS bytes FROM bodies o WHERE o.id = gone.shared
            FOR UPDATE) AS b
        LEFT JOIN LATERAL (
            SELECT q.queue FROM queues q WHERE q.queue = b.lender AND b.readers <= gone.readers
            FOR UPDATE) AS l ON true
), counted_down AS (
    -- Each row is there and locked, so each insert conflicts, and finds it by its key. For an update by a join the
    -- planner may scan the whole table, and the place of a row changes with each count.
    INSERT INTO bodies (id, readers)
    SELECT id, readers FROM lowered WHERE readers > 0
    ON CONFLICT (id) DO UPDATE SET readers = excluded.readers
), unread AS (
    DELETE FROM bodies WHERE id = ANY (ARRAY(SELECT id FROM lowered WHERE readers <= 0))
), appended AS (
    INSERT INTO entries (queue, aside, id, slot, state, created, ready, expires, ttl, attempts, size, client, peer,
        first_claimed, extras, grouped, body, shared)
    SELECT a.queue, a.state <> 0, a.id, a.slot, a.state, a.created, a.ready, a.expires, a.ttl, a.attempts, a.size,
        a.client, a.peer, a.first_claimed, a.extras, a.grouped, a.body, a.shared
    FROM unnest($16::int2[], $17::uuid[], $18::uuid[], $19::int2[], $20::int8[], $21::int8[], $22::int8[], $23::int4[],
            $24::int4[], $25::int4[], $26::uuid[], $27::bytea[], $28::int8[], $29::bytea[], $30::text[], $31::bytea[],
            $32::uuid[])
            AS a (slot, queue, id, state, created, ready, expires, ttl, attempts, size, client, peer, first_claimed, extras,
                grouped, body, shared)
    WHERE get_bit((SELECT slots FROM matched), a.slot) = 1
    RETURNING queue, state, COALESCE(octet_length(body), size)::int8 AS bytes, shared
-- and the rest
), now AS (
    SELECT queue, sum(messages)::int8 AS messages, sum(bytes)::int8 AS bytes, sum(scheduled)::int8 AS scheduled,
        sum(aside)::int8 AS aside, sum(kept)::int8 AS kept, sum(shared)::int8 AS shared, sum(lent)::int8 AS lent,
        (array_agg(low) FILTER (WHERE low IS NOT NULL))[1] AS low
    FROM (
        SELECT q.queue, LEAST(q.low, q.least) AS low, 0 AS messages, 0::int8 AS bytes, 0 AS scheduled, 0 AS aside,
            0 AS kept, 0::int8 AS shared, 0::int8 AS lent
        FROM unnest($9::int2[], $10::uuid[], $11::uuid[], $12::uuid[]) AS q (slot, queue, low, least)
        WHERE get_bit((SELECT slots FROM matched), q.slot) = 1
        UNION ALL
        SELECT queue, NULL, 1, bytes, (state = 1)::int4, (state BETWEEN 2 AND 4)::int4, (state > 4)::int4,
            CASE WHEN shared IS NULL THEN 0::int8 ELSE bytes END, 0::int8
        FROM appended
        UNION ALL
        SELECT queue, NULL, -1, -bytes, -(state = 1)::int4, -(state BETWEEN 2 AND 4)::int4, -(state > 4)::int4,
            CASE WHEN shared IS NULL THEN 0::int8 ELSE -bytes END, 0::int8
        FROM removed
        UNION ALL
        SELECT lender, NULL, 0, 0::int8, 0, 0, 0, 0::int8, -bytes FROM lowered WHERE lender IS NOT NULL
        -- and of the others
    ) AS change
    GROUP BY queue
), counted AS (
    -- A lender may be none of the queues of the batches, and has no bound of its head then.
    INSERT INTO queues AS q (queue, messages, bytes, scheduled, aside, kept, shared, lent, low)
    SELECT queue, messages, bytes, scheduled, aside, kept, shared, lent,
        COALESCE(low, '00000000-0000-0000-0000-000000000000'::uuid)
    FROM now
    ON CONFLICT (queue) DO UPDATE
    SET messages = q.messages + excluded.messages, bytes = q.bytes + excluded.bytes,
        scheduled = q.scheduled + excluded.scheduled, aside = q.aside + excluded.aside, kept = q.kept + excluded.kept,
        shared = q.shared + excluded.shared, lent = GREATEST(q.lent + excluded.lent, 0),
        -- The head moves on with the owner's bound, and back to an entry that becomes ready before it.
        low = LEAST(GREATEST(q.low, excluded.low), ($12::uuid[])[array_position($10::uuid[], excluded.queue)])
)
SELECT slot FROM record
