"""What to turn on for a traffic, in which order: paging, prefix cache, KV dtype, weight dtype, replicas, or nothing.

`profile_of` reads a trace's requests, `order` decides. Pure; whoever may import `kvroll_core` may import this, by
this name alone.
"""

from kvroll_core.advise.order import AdvisedStep, LeverDecision, Room, helps, order
from kvroll_core.advise.traffic import Lengths, Profile, TracedRequest, TraceError, profile_of

__all__ = [
    "AdvisedStep",
    "Lengths",
    "LeverDecision",
    "Profile",
    "Room",
    "TraceError",
    "TracedRequest",
    "helps",
    "order",
    "profile_of",
]
