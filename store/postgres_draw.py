"""A draw from a purse in Postgres: one function on the server, in one round trip.

The accounts are locked only while the function runs, so clients of one purse wait neither for each
other's network nor for each other's disk: a draw commits without waiting for the disk, and then
waits until its commit is on disk. Commits reach the disk in order, so no transaction that relies on
a draw can be on disk without it.
"""

FUNCTIONS = """
CREATE OR REPLACE FUNCTION costada_held(account costada_account) RETURNS NUMERIC
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN account.is_closed = 1 THEN account.spent::numeric
        ELSE greatest(account.budget::numeric, account.spent::numeric) END
$$;
CREATE OR REPLACE FUNCTION costada_draw(
    payer BIGINT, called TEXT, billed TEXT, most TEXT, known TEXT, begins BOOLEAN
) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
DECLARE
    path costada_account[] := ARRAY(
        WITH RECURSIVE above (id, parent) AS (
            SELECT id, parent FROM costada_account WHERE id = payer
            UNION ALL
            SELECT up.id, up.parent FROM costada_account AS up JOIN above ON up.id = above.parent
        )
        SELECT account FROM costada_account AS account WHERE id IN (SELECT id FROM above)
        ORDER BY id FOR UPDATE);
    own costada_account := path[array_length(path, 1)];
    free NUMERIC := own.budget::numeric - own.committed::numeric;
    spent_more NUMERIC := billed::numeric + most::numeric;
    committed_more NUMERIC;
    held NUMERIC;
    recorded NUMERIC := (
        SELECT cost::numeric + bound::numeric FROM costada_entry
        WHERE account = payer AND key = called);
    changed costada_account;
BEGIN
    IF begins AND (own.is_closed = 1 OR recorded IS NOT NULL OR free <= 0
            OR own.policy = 'hard' AND free < spent_more) THEN
        RETURN FALSE;
    END IF;
    INSERT INTO costada_entry (account, key, cost, bound, facts)
        VALUES (payer, called, billed, most, known)
        ON CONFLICT (account, key) DO UPDATE SET cost = EXCLUDED.cost, bound = EXCLUDED.bound,
            facts = EXCLUDED.facts, rowid = EXCLUDED.rowid;
    spent_more := spent_more - coalesce(recorded, 0);
    committed_more := spent_more;
    FOR place IN REVERSE array_length(path, 1)..1 LOOP
        EXIT WHEN spent_more = 0 AND committed_more = 0;
        held := costada_held(path[place]);
        UPDATE costada_account
            SET spent = spent::numeric + spent_more, committed = committed::numeric + committed_more
            WHERE id = path[place].id RETURNING * INTO changed;
        committed_more := costada_held(changed) - held;
    END LOOP;
    RETURN TRUE;
END $$;
"""
"""Writes an entry and books it on the accounts from the payer up, as `Purse` does in a file.

Returns whether it did: nothing is written where a call may not begin.
"""

DRAW = b"SELECT costada_draw($1, $2, $3, $4, $5, $6)"

WAIT_FOR_DISK = b"""
SELECT set_config('synchronous_commit', 'on', TRUE), pg_logical_emit_message(TRUE, 'costada', '')
"""
"""A transaction whose commit waits until it and all before it are on disk.

The message makes it one that writes; nothing reads it.
"""
