"""Every difference between the emulated Kubernetes and the recordings that is accepted, each with its reason.

A difference that is not here fails the suite, and so does an entry that nothing needs any more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Accepted:
    """`steps` and `path` are regular expressions."""

    scenario: str
    steps: str
    path: str
    reason: str

    def covers(self, scenario: str, step: str, path: str) -> bool:
        return (
            self.scenario == scenario
            and re.fullmatch(self.steps, step) is not None
            and re.fullmatch(self.path, path) is not None
        )


NULLS = 'what a client does not send is left out, where the real one writes null, "" or {}'
UNCHECKED = "fields that no client of ours sends wrongly are not checked"
EMULATED = (
    Accepted("create-refused", "no name", r"body\.details\.name", NULLS),
    Accepted("create-refused", "an unknown restart policy", r"body.*message", "the values are listed in another order"),
    Accepted("create-refused", "a negative grace", r"body\.spec\..*", UNCHECKED),
    Accepted("create-refused", "a port that cannot be|a field that is none, strictly", ".*", UNCHECKED),
    Accepted("create-refused", "another kind", r"body\.message", "one text for all kinds"),
    Accepted("create-filled-in", "amounts in other forms", r".*memory", "amounts stay in the form in which they came"),
    Accepted("other-objects", "a bad key|no base64|an event about another namespace", ".*", UNCHECKED),
    Accepted(
        "other-objects", ".*", r"body\.metadata\.(uid|resourceVersion)", "numbered after those that are not refused"
    ),
    Accepted("other-objects", "an event", ".*", NULLS),
    Accepted("other-objects", "an unknown group", "body", "a Status where the real one has a text"),
    Accepted("evict", "a budget", r"body\.status", "budgets are counted at evictions"),
    Accepted("delete-held", "no new finalizer|what a watch saw", ".*", UNCHECKED),
    Accepted("delete-many", "with grace|at once", r"body\.pods\..*", "the answer has the pods after it, not before it"),
    Accepted("patch", "with another uid", ".*", "409 for 422"),
    Accepted("may-not-change", "a later deadline|but not go", ".*", UNCHECKED),
    Accepted("status", ".*", r"body\.status\..*", NULLS),
    Accepted("status", "of another uid", ".*", "409 for 422"),
    Accepted("leases", "a bad duration", ".*", UNCHECKED),
    Accepted("pages", "a negative limit", ".*", UNCHECKED),
    Accepted("versions", "exactly then", ".*", "the store has no history but the events for watches"),
    Accepted("versions", "match.*", ".*", UNCHECKED),
    Accepted("watch-ends", "from a word", "status|body", "400 for 500"),
    Accepted("nodes", "a bad effect", ".*", UNCHECKED),
)
