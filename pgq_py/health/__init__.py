"""Whether the log of a database is in good health, and if not, who is to blame and what mends it.

`examine` judges what a log needs all the time, and is behind `pgq status`; `diagnose` looks at everything around it as
well, once, and is behind `pgq doctor`.
"""

from __future__ import annotations

from pgq_py.health.details import Eviction, consumer_details, queue_details
from pgq_py.health.doctor import Finding, diagnose
from pgq_py.health.findings import Problem
from pgq_py.health.judgement import Health, Limits, examine

__all__ = [
    "Eviction",
    "Finding",
    "Health",
    "Limits",
    "Problem",
    "consumer_details",
    "diagnose",
    "examine",
    "queue_details",
]
