-- The changes of a batch other than posts and deletes: updates, notes, and bodies that its posts share. It is inserted
-- into commit.sql.
), updated AS (
    UPDATE entries e
    SET aside = u.state <> 0, state = u.state, created = u.created, ready = u.ready, expires = u.expires,
        ttl = u.ttl, attempts = u.attempts, size = u.size, client = u.client, peer = u.peer,
        first_claimed = u.first_claimed, extras = u.extras
    FROM (
        SELECT u.*, found.place, found.state AS old
        FROM unnest($33::int2[], $34::uuid[], $35::uuid[], $36::int2[], $37::int8[], $38::int8[], $39::int8[], $40::int4[],
            $41::int4[], $42::int4[], $43::uuid[], $44::bytea[], $45::int8[], $46::bytea[])
            AS u (slot, queue, id, state, created, ready, expires, ttl, attempts, size, client, peer, first_claimed, extras),
            unnest('{f,t}'::boolean[]) AS part (aside),
            LATERAL (
                SELECT o.ctid AS place, o.state FROM entries o
                WHERE o.queue = u.queue AND o.aside = part.aside AND o.id = u.id
                OFFSET 0) AS found
        WHERE get_bit((SELECT slots FROM matched), u.slot) = 1
        OFFSET 0) AS u
    WHERE e.ctid = u.place
    RETURNING e.queue, (e.state = 1)::int4 - (u.old = 1)::int4 AS scheduled,
        (e.state BETWEEN 2 AND 4)::int4 - (u.old BETWEEN 2 AND 4)::int4 AS aside,
        (e.state > 4)::int4 - (u.old > 4)::int4 AS kept
), new_bodies AS (
    INSERT INTO bodies (id, readers, lender, body)
    SELECT b.id, b.readers, b.lender, b.body
    FROM unnest($57::int2[], $58::uuid[], $59::int4[], $60::uuid[], $61::bytea[]) AS b (slot, id, readers, lender, body)
    WHERE get_bit((SELECT slots FROM matched), b.slot) = 1
    RETURNING lender, octet_length(body)::int8 AS bytes
), noted AS (
    INSERT INTO notes (queue, kind, key, value, expires)
    SELECT n.queue, n.kind, n.key, n.value, n.expires
    FROM unnest($47::int2[], $48::uuid[], $49::int2[], $50::bytea[], $51::bytea[], $52::int8[])
        AS n (slot, queue, kind, key, value, expires)
    WHERE get_bit((SELECT slots FROM matched), n.slot) = 1
    ON CONFLICT (queue, kind, key) DO UPDATE SET value = excluded.value, expires = excluded.expires
), unnoted AS (
    DELETE FROM notes n
    USING (
        SELECT found.place
        FROM unnest($53::int2[], $54::uuid[], $55::int2[], $56::bytea[]) AS r (slot, queue, kind, key),
            LATERAL (
                SELECT o.ctid AS place FROM notes o WHERE o.queue = r.queue AND o.kind = r.kind AND o.key = r.key
                OFFSET 0) AS found
        WHERE get_bit((SELECT slots FROM matched), r.slot) = 1
        OFFSET 0) AS r
    WHERE n.ctid = r.place
