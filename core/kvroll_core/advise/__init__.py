"""What to turn on for a traffic, in which order: paging, prefix cache, KV dtype, weight dtype, replicas, or nothing.

`profile_of` reads a trace's requests, `order` decides. Pure; whoever may import `kvroll_core` may import this, by
this name alone.
"""

from kvroll_core.advise.order import Decision, Room, Step, helps, order
from kvroll_core.advise.traffic import Lengths, Profile, Request, TraceError, profile_of

__all__ = ["Decision", "Lengths", "Profile", "Request", "Room", "Step", "TraceError", "helps", "order", "profile_of"]
