"""The encoding of a session's state: bytes that older versions wrote stay readable, and nothing that a newer one wrote is half read.

`golden/session_state_v<format version>.<n>.binpb` is FULL as it was encoded when its fields were those; n counts the times that fields
were added without a new version. Whoever adds a field sets it in FULL, decides whether an older worker may go on without it (a number
from 1000 on) or not, names it under LATER for the files before it, and writes a new file: `python tests/worker/test_snapshot_golden.py`.
"""

import re
import sys
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroll.v1 import common_pb2 as pb
from kvroll_worker.request import PrecisionEpoch, Sampling, SessionState
from kvroll_worker.wire.codec import (
    FIRST_OPTIONAL_FIELD,
    STATE_VERSION,
    StateFormatError,
    state_from_wire,
    state_to_wire,
)

GOLDEN = Path(__file__).parent / "golden"
FULL = SessionState(
    session_id="session-7",
    model="chat",
    prompt_token_ids=[1, 300, 49151],
    output_token_ids=[7, 0, 2**31],
    sampling=Sampling(
        temperature=0.75,
        top_p=0.875,
        top_k=40,
        min_p=0.0625,
        seed=2**64 - 2,
        max_tokens=1000,
        stop=("\n\n", "Ende — 終"),
        stop_token_ids=(2, 5),
        ignore_eos=True,
        logprobs=0,
        reproducible=True,
        repetition_penalty=1.25,
        presence_penalty=-0.5,
        frequency_penalty=0.25,
        logit_bias=((3, -100.0), (9, 1.5)),
        min_tokens=4,
        include_stop_str_in_output=True,
        echo=True,
        prompt_logprobs=20,
    ),
    emitted_chars=5,
    precision_epochs=[PrecisionEpoch(1, "bf16", "bf16", "Start"), PrecisionEpoch(2, "int8", "fp8_e4m3", "Replay")],
    created_unix_seconds=1764450000.25,
    same_revision_moves=1,
    cache_salt="tenant-3",
    priority=-2,
    kv_converted=True,
)
LATER: dict[str, dict[str, Any]] = {
    "v1.0": {
        "cache_salt": "",
        "priority": 0,
        "kv_converted": False,
    },  # an engine before the prefix cache shared nothing
    "v1.1": {},
}
"""For each file the fields of SessionState that came after it, with what their absence means."""


def encoded(state: SessionState) -> bytes:
    return state_to_wire(state).SerializeToString(deterministic=True)


def files() -> list[tuple[int, int, Path]]:
    """Format version, count and path of every golden file, oldest first."""
    found = []
    for path in GOLDEN.glob("session_state_v*.binpb"):
        name = re.fullmatch(r"session_state_v(\d+)\.(\d+)", path.stem)
        assert name is not None, path
        found.append((int(name[1]), int(name[2]), path))
    return sorted(found)


def test_the_newest_file_is_what_is_written_today() -> None:
    version, _, path = files()[-1]
    assert version == STATE_VERSION
    assert path.read_bytes() == encoded(FULL), "the encoding changed: see the top of this file for what to decide"


@pytest.mark.parametrize(("version", "count", "path"), files(), ids=lambda value: getattr(value, "stem", None))
def test_what_any_version_wrote_is_read_whole(version: int, count: int, path: Path) -> None:
    state = state_from_wire(pb.SessionState.FromString(path.read_bytes()))
    assert state == replace(FULL, **LATER[f"v{version}.{count}"])


def test_no_field_of_the_domain_is_left_out_of_the_golden_state() -> None:
    """So a new field with a default fails here, and once it is set, fails above."""
    for value in (FULL, FULL.sampling, FULL.precision_epochs[0]):
        for field in fields(value):
            default = field.default_factory() if field.default_factory is not MISSING else field.default
            assert getattr(value, field.name) != default, f"set {type(value).__name__}.{field.name} in FULL"


def test_no_field_of_the_wire_is_left_out() -> None:
    def walk(message: Message) -> None:
        absent = {field.name for field in message.DESCRIPTOR.fields} - {field.name for field, _ in message.ListFields()}
        assert not absent, f"state_to_wire writes nothing into {message.DESCRIPTOR.name}.{', '.join(sorted(absent))}"

    wire = state_to_wire(FULL)
    for one in (wire, wire.sampling, wire.sampling.logit_bias[0], wire.precision_epochs[0]):
        walk(one)


def test_a_state_from_before_there_were_versions_is_version_one() -> None:
    wire = state_to_wire(FULL)
    wire.ClearField("format_version")
    assert state_from_wire(wire) == FULL


def test_a_newer_version_is_refused() -> None:
    wire = state_to_wire(FULL)
    wire.format_version = STATE_VERSION + 1
    with pytest.raises(
        StateFormatError, match=f"session-7 in format version {STATE_VERSION} or older, found {STATE_VERSION + 1}"
    ):
        state_from_wire(wire)


def unknown(number: int, value: bytes = b"x") -> bytes:
    """A length-delimited field of that number (protobuf's encoding guide)."""
    tag, out = number << 3 | 2, b""
    while tag > 0x7F:
        out, tag = out + bytes([tag & 0x7F | 0x80]), tag >> 7
    return out + bytes([tag, len(value)]) + value


PLACES = ("SessionState", "Sampling", "LogitBias", "PrecisionEpoch")


def with_unknown(place: str, number: int) -> pb.SessionState:
    """FULL with a field that nobody knows in that message."""
    wire = state_to_wire(FULL)
    inner: dict[str, Message] = {
        "SessionState": wire,
        "Sampling": wire.sampling,
        "LogitBias": wire.sampling.logit_bias[1],
        "PrecisionEpoch": wire.precision_epochs[1],
    }
    inner[place].MergeFromString(unknown(number))
    return pb.SessionState.FromString(wire.SerializeToString())


@pytest.mark.parametrize("place", PLACES)
def test_an_unknown_field_is_refused_wherever_it_stands_unless_it_is_optional(place: str) -> None:
    with pytest.raises(StateFormatError, match=rf"found also {place}\.{FIRST_OPTIONAL_FIELD - 1};"):
        state_from_wire(with_unknown(place, FIRST_OPTIONAL_FIELD - 1))
    assert state_from_wire(with_unknown(place, FIRST_OPTIONAL_FIELD)) == FULL


_single = st.floats(-100, 100, width=32)
_samplings = st.builds(
    Sampling,
    temperature=_single, top_p=_single, top_k=st.integers(0, 2**32 - 1), min_p=_single, seed=st.integers(0, 2**64 - 1),
    max_tokens=st.integers(0, 2**32 - 1), stop=st.tuples(st.text(st.characters(exclude_categories=["Cs"]))), ignore_eos=st.booleans(),
    logprobs=st.none() | st.integers(0, 20), reproducible=st.booleans(), repetition_penalty=st.floats(0.125, 100, width=32),
    presence_penalty=_single, frequency_penalty=_single, logit_bias=st.tuples(st.tuples(st.integers(0, 2**32 - 1), _single)),
    min_tokens=st.integers(0, 2**32 - 1), echo=st.booleans(), prompt_logprobs=st.none() | st.integers(0, 20),
)  # fmt: skip


@settings(deadline=None)
@given(_samplings, st.lists(st.integers(0, 2**32 - 1)), st.lists(st.integers(0, 2**32 - 1)), st.integers(0, 2**32 - 1))
def test_any_state_comes_back_the_same(sampling: Sampling, prompt: list[int], outputs: list[int], emitted: int) -> None:
    state = replace(FULL, prompt_token_ids=prompt, output_token_ids=outputs, sampling=sampling, emitted_chars=emitted)
    assert state_from_wire(pb.SessionState.FromString(encoded(state))) == state


if __name__ == "__main__":
    newest = [count for version, count, _ in files() if version == STATE_VERSION]
    target = GOLDEN / f"session_state_v{STATE_VERSION}.{max(newest, default=-1) + 1}.binpb"
    target.write_bytes(encoded(FULL))
    print(f"wrote {target}; name it in LATER of {Path(__file__).name}", file=sys.stderr)
