"""Identity of a revision: a canonical content, and a short name for it.

Revisions are *compared* by content; the short name only labels them, so another hash rule in a later version rolls nothing
(ai-dynamo/dynamo#12633 is what happens otherwise).
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

HASH_VERSION = 2
"""1: contents without empty selectors, which so lost their meaning."""
_NAME_CHARS = 8


def canonical(content: Mapping[str, Any], *, empties: bool = True) -> str:
    """One text for one content: sorted keys, no blanks, and neither nulls nor empty containers, so that a field that a later
    version adds and leaves unset does not change the revisions of an older one.

    A selector is the exception: an empty one selects everything, an absent one nothing or the own namespace. Without `empties` it goes,
    too.
    """
    return json.dumps(_pruned(content, empties), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def revision_name(canonical_content: str, taken: Mapping[str, str] | None = None) -> str:
    """Short name of a revision, usable in a label and a Pod name.

    `taken` maps names in use to their canonical content; a name that another content holds is not handed out again.
    """
    salt = 0
    while True:
        text = canonical_content if salt == 0 else f"{canonical_content}#{salt}"
        name = hashlib.sha256(text.encode()).hexdigest()[:_NAME_CHARS]
        if (taken or {}).get(name, canonical_content) == canonical_content:
            return name
        salt += 1


def _pruned(value: Any, empties: bool) -> Any:
    if isinstance(value, Mapping):
        pairs = ((key, _pruned(item, empties)) for key, item in value.items())
        return {
            key: item
            for key, item in pairs
            if item is not None and item != [] and (item != {} or (empties and _means_something_empty(key)))
        }
    if isinstance(value, (list, tuple)):
        return [_pruned(item, empties) for item in value]
    return value


def _means_something_empty(key: str) -> bool:
    return key.endswith("Selector") and key != "nodeSelector"
