"""Describes the schema tidemill in a canonical form, from the catalogs, without the weekly partitions."""

from typing import Any

import psycopg

_RELATIONS = "pg_class c WHERE c.relnamespace = 'tidemill'::regnamespace AND NOT c.relispartition"
_FUNCTIONS = "pg_proc p WHERE p.pronamespace = 'tidemill'::regnamespace"

QUERIES = {
    "relation": f"""
        SELECT c.relname, c.relkind, c.relpersistence, array_to_string(c.reloptions, ','),
            pg_get_partkeydef(c.oid), obj_description(c.oid, 'pg_class') FROM {_RELATIONS}""",
    "column": f"""
        SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
            a.attgenerated, (SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d
                             WHERE d.adrelid = c.oid AND d.adnum = a.attnum)
        FROM pg_attribute a, {_RELATIONS} AND c.relkind IN ('r', 'p', 'v')
          AND a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped""",
    "constraint": f"""
        SELECT c.relname, k.conname, pg_get_constraintdef(k.oid)
        FROM pg_constraint k, {_RELATIONS} AND k.conrelid = c.oid""",
    "index": f"SELECT c.relname, pg_get_indexdef(c.oid) FROM {_RELATIONS} AND c.relkind IN ('i', 'I')",
    "view": f"SELECT c.relname, pg_get_viewdef(c.oid) FROM {_RELATIONS} AND c.relkind = 'v'",
    "trigger": f"""
        SELECT c.relname, pg_get_triggerdef(t.oid)
        FROM pg_trigger t, {_RELATIONS} AND t.tgrelid = c.oid AND NOT t.tgisinternal""",
    "function": f"SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid) FROM {_FUNCTIONS} AND p.prokind = 'f'",
    "aggregate": f"""
        SELECT p.oid::regprocedure::text, g.aggtransfn::text, g.aggtranstype::regtype::text, g.agginitval
        FROM pg_aggregate g, {_FUNCTIONS} AND p.oid = g.aggfnoid""",
    "sequence": """
        SELECT sequencename, data_type::text, start_value, min_value, max_value, increment_by, cycle
        FROM pg_sequences WHERE schemaname = 'tidemill'""",
    "duty": "SELECT name FROM tidemill.duty",
}


def describe(conn: psycopg.Connection[Any]) -> list[str]:
    """Return the facts about the schema as sorted lines."""
    facts = [(kind, row) for kind, query in QUERIES.items() for row in conn.execute(query.encode())]
    return sorted(" | ".join([kind, *map(str, row)]) for kind, row in facts)
