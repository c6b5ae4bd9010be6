"""Search attributes of Peloton's workflows. Other modules name an attribute by these constants."""

from __future__ import annotations

from temporalio.common import SearchAttributeKey

JOB_ID = SearchAttributeKey.for_keyword("PelotonJob")
JOB_NAME = SearchAttributeKey.for_keyword("PelotonJobName")
POOL = SearchAttributeKey.for_keyword("PelotonPool")
"""Path of the job's pool. Jobs of earlier releases have its id."""
OWNER = SearchAttributeKey.for_keyword("PelotonOwner")
TYPE = SearchAttributeKey.for_keyword("PelotonType")
STATE = SearchAttributeKey.for_keyword("PelotonState")
UPDATE = SearchAttributeKey.for_keyword("PelotonUpdate")
HOST = SearchAttributeKey.for_keyword("PelotonHost")
CLUSTER = SearchAttributeKey.for_keyword("PelotonCluster")
SCHEDULED_TIME = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
"""Temporal's own attribute of workflows that a schedule starts."""
SCHEDULED_BY = SearchAttributeKey.for_keyword("TemporalScheduledById")
"""Temporal's own attribute of workflows that a schedule starts."""
SEARCH_ATTRIBUTES = (JOB_ID, JOB_NAME, POOL, OWNER, TYPE, STATE, UPDATE, HOST, CLUSTER)
"""Attributes that Peloton registers, all of type keyword. With visibility in SQL, a namespace may have ten of them."""
