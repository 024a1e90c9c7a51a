-- Removes a part of a queue: entries, notes, and together with the last of them the queue's own row. It runs beside the
-- batches of the slot, and has no number of its own. Rows are removed by their places: for a join by keys the planner may
-- scan the queue for each row. A part is the last one by the rows that it finds: an earlier attempt may have removed some of
-- them meanwhile.
WITH record AS (
    SELECT slot FROM records
    WHERE slot = $1::int2 AND pool = $2::uuid AND generation = $3::int8 AND transaction = $4::int8
    FOR UPDATE
), part AS (
    SELECT e.ctid AS place
    FROM record, entries e
    WHERE e.queue = $5::uuid AND (e.aside, e.id) >= (false, COALESCE(
        (SELECT q.low FROM queues q WHERE q.queue = $5::uuid), '00000000-0000-0000-0000-000000000000'::uuid))
    ORDER BY e.aside, e.id
    LIMIT $6::int8
), gone AS (
    DELETE FROM entries e
    USING part p
    WHERE e.ctid = p.place
    RETURNING e.aside, e.id, e.state, COALESCE(octet_length(e.body), e.size)::int8 AS bytes, e.shared
), lowered AS (
    -- As in commit.sql, for the batches that ran while this statement waited for the record.
    SELECT b.id, b.readers - g.readers AS readers, l.queue AS lender, b.bytes
    FROM (SELECT shared, count(*)::int4 AS readers FROM gone WHERE shared IS NOT NULL GROUP BY shared) AS g
        CROSS JOIN LATERAL (
            SELECT o.id, o.readers, o.lender, octet_length(o.body)::int8 AS bytes FROM bodies o WHERE o.id = g.shared
            FOR UPDATE) AS b
        LEFT JOIN LATERAL (
            SELECT q.queue FROM queues q WHERE q.queue = b.lender AND b.readers <= g.readers
            FOR UPDATE) AS l ON true
), counted_down AS (
    INSERT INTO bodies (id, readers)
    SELECT id, readers FROM lowered WHERE readers > 0
    ON CONFLICT (id) DO UPDATE SET readers = excluded.readers
), unread AS (
    DELETE FROM bodies WHERE id = ANY (ARRAY(SELECT id FROM lowered WHERE readers <= 0))
), repaid AS (
    -- Other lenders: the dropped queue is changed below, and a statement may change a row only once. Each row is there
    -- and locked here too.
    INSERT INTO queues AS q (queue, messages, bytes, scheduled, aside, lent, low)
    SELECT lender, 0, 0, 0, 0, -sum(bytes)::int8, '00000000-0000-0000-0000-000000000000'::uuid
    FROM lowered
    WHERE lender <> $5::uuid
    GROUP BY lender
    ON CONFLICT (queue) DO UPDATE SET lent = GREATEST(q.lent + excluded.lent, 0)
), names AS (
    SELECT n.ctid AS place FROM record, notes n WHERE n.queue = $5::uuid ORDER BY n.kind, n.key LIMIT $6::int8
), unnoted AS (
    DELETE FROM notes n
    USING names
    WHERE n.ctid = names.place
    RETURNING 1
), sums AS (
    SELECT count(*) AS messages, COALESCE(sum(bytes), 0)::int8 AS bytes, count(*) FILTER (WHERE state = 1) AS scheduled,
        count(*) FILTER (WHERE state BETWEEN 2 AND 4) AS aside, count(*) FILTER (WHERE state > 4) AS kept,
        COALESCE(sum(bytes) FILTER (WHERE shared IS NOT NULL), 0)::int8 AS shared,
        COALESCE((SELECT sum(bytes) FROM lowered WHERE lender = $5::uuid), 0)::int8 AS lent,
        (SELECT count(*) FROM part) < $6::int8 AND (SELECT count(*) FROM names) < $6::int8 AS is_last
    FROM gone
), ended AS (
    DELETE FROM queues q USING record, sums s WHERE q.queue = $5::uuid AND s.is_last
), counted AS (
    UPDATE queues q
    SET messages = q.messages - s.messages, bytes = q.bytes - s.bytes, scheduled = q.scheduled - s.scheduled,
        aside = q.aside - s.aside, kept = q.kept - s.kept, shared = q.shared - s.shared,
        lent = GREATEST(q.lent - s.lent, 0),
        low = GREATEST(q.low, COALESCE((SELECT id FROM gone WHERE NOT aside ORDER BY id DESC LIMIT 1), q.low))
    FROM record, sums s
    WHERE q.queue = $5::uuid AND NOT s.is_last
)
SELECT s.is_last FROM record, sums s
