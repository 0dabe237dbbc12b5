"""The shape of every verb's `--json`, as JSON Schema (draft 2020-12): what programs may rely on.

Every object is closed: a field that is not listed here does not come. A verb that may answer in several forms, as with
`--dry-run`, has them under `anyOf`. `pgq tail`, `pgq status --watch` and `pgq jobs watch` write one such value per
line. `pgq run`, and `pgq ticker` without `--once`, answer nothing.
"""

from __future__ import annotations

from typing import Any

__all__ = ["SCHEMAS"]

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
ID: Schema = {"type": "string", "pattern": "^[0-9]+$"}
TIME: Schema = {"type": "string", "format": "date-time"}
ANYTHING: Schema = {}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(**fields: Schema) -> Schema:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _one_of(*values: str) -> Schema:
    return {"enum": list(values)}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


_STEPS = _list(_object(step=STRING))
_INSTALLED = _object(schema=STRING, version=STRING, changed=BOOLEAN, steps=_list(STRING))
_CHANGED = _object(queue=STRING, changed=BOOLEAN)

_QUEUE = {
    "queue": STRING,
    "last_tick": _maybe(ID),
    "tick_age_seconds": _maybe(NUMBER),
    "events_per_second": _maybe(NUMBER),
    "paused": BOOLEAN,
    "external_ticker": BOOLEAN,
    "rotation_period_seconds": _maybe(NUMBER),
    "slots": INTEGER,
    "current_slot": INTEGER,
    "switched_at": _maybe(TIME),
}
_DELAYS = {"delayed": INTEGER, "retries": INTEGER, "next_due": _maybe(TIME), "dead_letters": INTEGER}
_EVICTION = {"consumer": STRING, "evicted_at": TIME, "last_tick": ID, "lag_seconds": NUMBER}
_CONSUMER = {
    "queue": STRING,
    "consumer": STRING,
    "last_tick": _maybe(ID),
    "position_age_seconds": _maybe(NUMBER),
    "last_seen_seconds": _maybe(NUMBER),
    "pending_events": _maybe(INTEGER),
    "open_batch": _maybe(ID),
    "next_tick": _maybe(ID),
}
_POLICY = _object(
    consumer=_maybe(STRING),
    max_retries=INTEGER,
    kind=_one_of("fixed", "exponential", "list"),
    base_seconds=NUMBER,
    cap_seconds=NUMBER,
    jitter=NUMBER,
    delays_seconds=_maybe(_list(NUMBER)),
)
_SETTINGS = _object(
    rotation_period_seconds=_maybe(NUMBER),
    retention_seconds=NUMBER,
    max_consumer_lag_seconds=_maybe(NUMBER),
    max_retries=INTEGER,
    disable_insert=BOOLEAN,
    ticker_paused=BOOLEAN,
    external_ticker=BOOLEAN,
    ticker_max_count=_maybe(INTEGER),
    ticker_max_lag_seconds=_maybe(NUMBER),
    ticker_idle_period_seconds=_maybe(NUMBER),
)
_QUEUE_DETAILS = _object(
    **_QUEUE,
    settings=_SETTINGS,
    delays=_object(**_DELAYS),
    consumers=_list(
        _object(consumer=STRING, pending_events=_maybe(INTEGER), last_seen_seconds=_maybe(NUMBER), last_tick=_maybe(ID))
    ),
    retry_policies=_list(_POLICY),
    grants=_list(_object(role=STRING, may=_one_of("produce", "consume", "work"), consumer=_maybe(STRING))),
    evictions=_list(_object(**_EVICTION)),
)
_CONSUMER_DETAILS = _object(
    **_CONSUMER,
    waiting_retries=INTEGER,
    dead_letters=INTEGER,
    batch=_maybe(_object(first_tick=ID, last_tick=ID, from_time=TIME, to_time=TIME, age_seconds=NUMBER)),
    retry_policy=_maybe(_POLICY),
    roles=_list(STRING),
)

_STATS = {
    "queue": STRING,
    "pending": INTEGER,
    "pending_exact": BOOLEAN,
    "oldest_pending_seconds": _maybe(NUMBER),
    "running": INTEGER,
    "scheduled": INTEGER,
    "retrying": INTEGER,
    "completed": INTEGER,
    "failed": INTEGER,
    "cancelled": INTEGER,
    "retried": INTEGER,
    "lost": INTEGER,
    "dead_letters": INTEGER,
}
_LANE = {
    "queue": STRING,
    "priority": INTEGER,
    "next_job": _maybe(ID),
    "waiting_seconds": _maybe(NUMBER),
    "last_claim": _maybe(TIME),
}
_WORKER = {
    "worker": STRING,
    "state": _one_of("alive", "silent", "stopped", "lost"),
    "jobs": INTEGER,
    "claims": INTEGER,
    "started_at": TIME,
    "last_beat": _maybe(TIME),
    "ended_at": _maybe(TIME),
    "lease_seconds": NUMBER,
}
_JOB_STATE = _one_of("scheduled", "pending", "running", "retrying", "completed", "failed", "cancelled")
_JOB = {
    "id": ID,
    "type": _maybe(STRING),
    "state": _JOB_STATE,
    "priority": INTEGER,
    "attempt": INTEGER,
    "percent": _maybe(NUMBER),
    "created_at": TIME,
    "run_at": _maybe(TIME),
    "claimed_at": _maybe(TIME),
    "finished_at": _maybe(TIME),
    "error": _maybe(STRING),
}
_WATCHED = _object(
    **_STATS,
    jobs=_list(
        _object(
            id=ID,
            type=_maybe(STRING),
            attempt=INTEGER,
            worker=_maybe(STRING),
            percent=_maybe(NUMBER),
            stage=_maybe(STRING),
        )
    ),
)
_JOB_DETAILS = _object(
    **_JOB,
    queue=STRING,
    max_attempts=INTEGER,
    losses=INTEGER,
    key=_maybe(STRING),
    worker=_maybe(STRING),
    claim=_maybe(ID),
    cancel_requested=BOOLEAN,
    stage=_maybe(STRING),
    payload=_maybe(STRING),
    options=_map(ANYTHING),
    progress=_maybe(_map(ANYTHING)),
)
_SCHEDULE = _object(
    schedule=STRING,
    queue=STRING,
    type=STRING,
    cron=STRING,
    tz=STRING,
    catch_up=_one_of("none", "latest", "all"),
    enabled=BOOLEAN,
    last_due=TIME,
    next_due=_maybe(TIME),
    overdue=BOOLEAN,
)

_STATUS = _object(
    healthy=BOOLEAN,
    version=STRING,
    parts=_list(STRING),
    queues=_list(
        _object(
            queue=STRING,
            events_waiting=INTEGER,
            tick_due=BOOLEAN,
            last_tick=_maybe(ID),
            tick_age_seconds=_maybe(NUMBER),
            events_per_second=_maybe(NUMBER),
            **_DELAYS,
            paused=BOOLEAN,
            external_ticker=BOOLEAN,
            rotation_period_seconds=_maybe(NUMBER),
        )
    ),
    consumers=_list(_object(**{name: field for name, field in _CONSUMER.items() if name != "next_tick"})),
    jobs=_list(_object(**_STATS)),
    lanes=_list(_object(**_LANE)),
    workers=_list(_object(**_WORKER)),
    rings=_list(
        _object(
            ring=STRING,
            queue=_maybe(STRING),
            generation=INTEGER,
            closed=BOOLEAN,
            slots=INTEGER,
            bytes=INTEGER,
            switched_at=_maybe(TIME),
            skipped=INTEGER,
        )
    ),
    blockers=_list(
        _object(
            slot=STRING,
            pid=_maybe(INTEGER),
            prepared=_maybe(STRING),
            user=_maybe(STRING),
            database=_maybe(STRING),
            application=_maybe(STRING),
            mode=STRING,
            age_seconds=_maybe(NUMBER),
        )
    ),
    evictions=_list(_object(queue=STRING, **_EVICTION)),
    problems=_list(
        _object(
            kind=_one_of("ticker", "consumer", "rotation", "jobs", "worker"), problem=STRING, advice=STRING, mend=STRING
        )
    ),
)
_FINDINGS = _list(
    _object(
        severity=_one_of("error", "warning", "info"),
        check=_one_of(
            "schema", "rights", "roles", "search_path", "ticker", "consumer", "rotation", "paused", "evicted",
            "dead_letters", "restored", "xmin", "catalog", "script", "pooler", "standby", "doctor",
            "jobs", "lane", "worker", "schedule",
        ),
        subject=STRING,
        what=STRING,
        mend=STRING,
    )
)  # fmt: skip

_EXTRAS = {f"extra{number}": _maybe(STRING) for number in range(1, 5)}
_EVENT = _object(id=ID, time=TIME, txid=ID, type=_maybe(STRING), data=_maybe(STRING), **_EXTRAS)
_DEAD = {
    "id": ID,
    "queue": STRING,
    "consumer": STRING,
    "type": _maybe(STRING),
    "attempts": INTEGER,
    "failed_at": TIME,
    "reason": _maybe(STRING),
}
_DEAD_LETTER = _object(
    **_DEAD, event_id=ID, event_time=_maybe(TIME), retry=_maybe(INTEGER), data=_maybe(STRING), **_EXTRAS
)
_RIGHTS = _object(queue=STRING, role=STRING, rights=_list(STRING), granted=BOOLEAN)

_DEMO = _object(
    ok=BOOLEAN,
    events=INTEGER,
    events_per_second=NUMBER,
    latency_ms=_map(NUMBER),
    rotations=INTEGER,
    dead_tuples=INTEGER,
    mirror_equal=BOOLEAN,
    transactions=INTEGER,
    jobs=INTEGER,
    seconds=NUMBER,
    clients=INTEGER,
    consumers=_map(INTEGER),
    dead_tuples_elsewhere=INTEGER,
    horizon_age=INTEGER,
    postgresql=STRING,
    promises=_list(_object(name=STRING, held=BOOLEAN, text=STRING)),
)
_RESULT: Schema = {
    # Each benchmark adds figures of its own; `format` changes when a reader would have to.
    **_object(
        format=INTEGER,
        benchmark=STRING,
        started_at=TIME,
        seconds=NUMBER,
        parameters=_map(ANYTHING),
        machine=_map(ANYTHING),
        server=_map(ANYTHING),
        ok=BOOLEAN,
        promises=_list(
            _object(name=STRING, measured=NUMBER, bound=NUMBER, at_least=BOOLEAN, note=STRING, kept=BOOLEAN)
        ),
    ),
    "additionalProperties": True,
}
_COMPARISON = _list(
    _object(
        figure=STRING,
        a=NUMBER,
        a_low=NUMBER,
        a_high=NUMBER,
        b=NUMBER,
        b_low=NUMBER,
        b_high=NUMBER,
        change=NUMBER,
        verdict=_one_of("same", "better", "worse"),
    )
)

SCHEMAS: dict[str, Schema] = {
    "install": {"anyOf": [_INSTALLED, _STEPS]},
    "upgrade": {"anyOf": [_INSTALLED, _STEPS]},
    "uninstall": {"anyOf": [_object(schema=STRING, dropped=BOOLEAN), _object(schema=STRING, queues=_list(STRING))]},
    "adopt": _object(
        queues=INTEGER,
        consumers=INTEGER,
        open_batches=INTEGER,
        retries=INTEGER,
        events=_maybe(INTEGER),
        triggers=INTEGER,
        parts=_list(STRING),
        executed=BOOLEAN,
    ),
    "status": _STATUS,
    "doctor": _FINDINGS,
    "ticker": {"anyOf": [_object(ticks=INTEGER), _object(ticks=INTEGER, databases=INTEGER)]},
    "dev": _object(dsn=STRING),
    "demo": _DEMO,
    "send": _object(queue=STRING, sent=INTEGER, id=_maybe(ID)),
    "tail": _EVENT,
    "queue ls": _list(_object(**_QUEUE)),
    "queue show": _QUEUE_DETAILS,
    "queue create": _object(queue=STRING, created=BOOLEAN),
    "queue set": _object(queue=STRING, settings=_map(_maybe(STRING))),
    "queue grant": _RIGHTS,
    "queue revoke": _RIGHTS,
    "queue pause": _CHANGED,
    "queue resume": _CHANGED,
    "queue rotate": _list(
        _object(queue=STRING, step=_one_of("closed", "truncated", "switched", "waiting", "idle", "busy"))
    ),
    "queue drop": _object(queue=STRING, dropped=BOOLEAN),
    "consumer ls": _list(_object(**_CONSUMER)),
    "consumer show": _CONSUMER_DETAILS,
    "capture add": _object(queue=STRING, table=STRING, added=BOOLEAN),
    "capture ls": _list(_object(queue=STRING, table=STRING, key=STRING, ignored=STRING, enabled=BOOLEAN)),
    "capture drop": _object(table=STRING, dropped=BOOLEAN),
    "consumer register": _object(queue=STRING, consumer=STRING, registered=BOOLEAN, last_tick=_maybe(ID)),
    "consumer unregister": _object(queue=STRING, consumer=STRING, unregistered=BOOLEAN),
    "consumer seek": _list(_object(queue=STRING, consumer=STRING, from_tick=ID, to_tick=ID, executed=BOOLEAN)),
    "jobs ls": _list(_object(**_JOB)),
    "jobs show": _JOB_DETAILS,
    "jobs enqueue": _object(queue=STRING, id=ID, created=BOOLEAN),
    "jobs retry": _object(queue=STRING, retried=INTEGER),
    "jobs cancel": _list(
        _object(id=ID, outcome=_one_of("cancelled", "cancel_requested", "completed", "failed", "unknown"))
    ),
    "jobs watch": _WATCHED,
    "jobs stats": _list(_object(**_STATS)),
    "cron ls": _list(_SCHEDULE),
    "cron next": _list(_object(schedule=STRING, due=TIME, local=STRING)),
    "cron run": _object(schedule=STRING, queue=STRING, id=ID),
    "worker ls": _list(_object(**_WORKER, info=_map(ANYTHING))),
    "dlq ls": _list(_object(**_DEAD)),
    "dlq show": _DEAD_LETTER,
    "dlq replay": _object(replayed=INTEGER),
    "dlq purge": _object(purged=INTEGER),
    "config show": _list(_object(setting=STRING, value=STRING, source=STRING)),
    "bench": {"anyOf": [_RESULT, _COMPARISON]},
}
"""By verb; `bench` is for all of its verbs."""
