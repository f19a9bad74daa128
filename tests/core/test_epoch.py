"""Epochs order the owners of a session; their text survives gateway ids that look like epochs themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_core.epoch import Epoch

counts = st.integers(0, 2**63)
gateway_ids = st.text(
    st.characters(codec="ascii", categories=("L", "N"), include_characters="-._"), min_size=1, max_size=40
)
epochs = st.builds(Epoch, counts, gateway_ids, counts)


@given(epoch=epochs)
def test_the_text_reads_back(epoch: Epoch) -> None:
    assert Epoch.parse(str(epoch)) == epoch


@pytest.mark.parametrize("gateway_id", ["kvroll-gateway-6d5f-x2-7", "-", "1-2-3", "--7"])
def test_dashes_in_the_gateway_id_do_not_confuse_the_reader(gateway_id: str) -> None:
    assert Epoch.parse(f"4-{gateway_id}-12") == Epoch(4, gateway_id, 12)


BAD = [
    "",
    "1",
    "1-2",
    "1--2",
    "a-gw-2",
    "1-gw-b",
    "-gw-2",
    "1-gw-",
    "1-gw-2 ",
    " 1-gw-2",
    "+1-gw-2",
    "1.0-gw-2",
    "²-gw-1",
]


@pytest.mark.parametrize("text", BAD)
def test_other_text_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected an epoch `<reign>-<gateway id>-<step>`, found") as caught:
        Epoch.parse(text)
    assert repr(text) in str(caught.value)


@given(epoch=epochs)
def test_the_next_owner_is_higher_and_under_the_same_reign(epoch: Epoch) -> None:
    following = epoch.next_step()
    assert following > epoch
    assert (following.reign, following.gateway_id) == (epoch.reign, epoch.gateway_id)


@given(low=epochs, high=epochs)
def test_a_higher_reign_beats_every_step(low: Epoch, high: Epoch) -> None:
    assert low._replace(reign=1, step=2**63) < high._replace(reign=2, step=0)


def test_order_is_by_reign_then_gateway_then_step() -> None:
    ordered = [Epoch(1, "a", 9), Epoch(1, "b", 0), Epoch(1, "b", 10), Epoch(2, "a", 0), Epoch(10, "a", 0)]
    assert sorted(set(ordered)) == ordered
