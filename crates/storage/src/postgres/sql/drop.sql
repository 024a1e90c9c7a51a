-- Removes a part of a queue: entries, notes, and together with the last of them the queue's own row. It runs beside the
-- batches of the slot, and has no number of its own.
WITH record AS (
    SELECT slot FROM records
    WHERE slot = $1::int2 AND pool = $2::uuid AND generation = $3::int8 AND transaction = $4::int8
    FOR UPDATE
), part AS (
    SELECT e.aside, e.id
    FROM record, entries e
    WHERE e.queue = $5::uuid AND (e.aside, e.id) >= (false, COALESCE(
        (SELECT q.low FROM queues q WHERE q.queue = $5::uuid), '00000000-0000-0000-0000-000000000000'::uuid))
    ORDER BY e.aside, e.id
    LIMIT $6::int8
), gone AS (
    DELETE FROM entries e
    USING part p
    WHERE e.queue = $5::uuid AND e.aside = p.aside AND e.id = p.id
    RETURNING e.aside, e.id, e.state, octet_length(e.body)::int8 AS bytes
), names AS (
    SELECT n.kind, n.key FROM record, notes n WHERE n.queue = $5::uuid ORDER BY n.kind, n.key LIMIT $6::int8
), unnoted AS (
    DELETE FROM notes n
    USING names
    WHERE n.queue = $5::uuid AND n.kind = names.kind AND n.key = names.key
    RETURNING 1
), sums AS (
    SELECT count(*) AS messages, COALESCE(sum(bytes), 0)::int8 AS bytes, count(*) FILTER (WHERE state = 1) AS scheduled,
        count(*) FILTER (WHERE state > 1) AS aside,
        count(*) < $6::int8 AND (SELECT count(*) FROM unnoted) < $6::int8 AS is_last
    FROM gone
), ended AS (
    DELETE FROM queues q USING record, sums s WHERE q.queue = $5::uuid AND s.is_last
), counted AS (
    UPDATE queues q
    SET messages = q.messages - s.messages, bytes = q.bytes - s.bytes, scheduled = q.scheduled - s.scheduled,
        aside = q.aside - s.aside,
        low = GREATEST(q.low, COALESCE((SELECT id FROM gone WHERE NOT aside ORDER BY id DESC LIMIT 1), q.low))
    FROM record, sums s
    WHERE q.queue = $5::uuid AND NOT s.is_last
)
SELECT s.is_last FROM record, sums s
