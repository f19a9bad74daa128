"""Needle prompts: what stands where, told by the ids alone; and the borders of pieces in any tokenisation."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroll_worker.evaluate.needles import DEPTHS, RecalledNeedle, haystack, recall_of
from kvroll_worker.evaluate.pieces import ids_of_pieces


def letters(text: str) -> list[int]:
    """One id a character, behind one that begins every text."""
    return [0, *map(ord, text)]


def pairs(text: str) -> list[int]:
    """Two characters an id: pieces of odd length share a token."""
    return [hash(text[at : at + 2]) & 0xFFFF for at in range(0, len(text), 2)]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1000), st.sampled_from([100, 700, 2000]), st.sampled_from([DEPTHS, (0.0,), (0.5, 1.0)]))
def test_each_answer_stands_in_the_text_at_its_depth_and_after_its_question(
    seed: int, length: int, depths: tuple[float, ...]
) -> None:
    made = haystack(letters, length, seed, depths)
    assert made == haystack(letters, length, seed, depths)
    text = "".join(map(chr, made.token_ids[1:]))
    told = text.split("\n\n")[0]
    assert {answer.depth for answer in made.answers} == set(depths)
    for answer in made.answers:
        word = "".join(map(chr, made.token_ids[answer.first : answer.last + 1]))
        question = text[text[: answer.first - 1].rindex("\n") + 1 : answer.first - 1]
        assert word.startswith(" ")
        assert f"{question}{word}." in told
        assert text[answer.last :].startswith(".")
        assert told.count(word) == 1, "nothing but the needle tells the answer"
        longest_sentence = 120
        assert abs(told.index(question) - answer.depth * length) <= longest_sentence * len(depths)
    # The first sentence has no space in front, and `letters` puts an id of its own before every sentence that is counted.
    assert len(told) >= length - 1 - told.count(".")


def test_other_seeds_and_lengths_ask_for_other_things() -> None:
    made = [haystack(letters, 300, seed) for seed in range(20)]
    assert len({tuple(one.token_ids) for one in made}) == 20
    orders = {tuple(answer.depth for answer in one.answers) for one in made}
    assert len(orders) > 10, "an order that is always the same could be learnt from"


def test_depths_that_make_no_sense_are_refused() -> None:
    for depths in ((0.5,) * 9, (1.5,), (-0.1,)):
        with pytest.raises(ValueError, match="depths from 0 to 1"):
            haystack(letters, 100, 0, depths)


@settings(deadline=None)
@given(st.lists(st.text(max_size=9), min_size=1, max_size=6))
def test_pieces_cover_the_ids_in_order(pieces: list[str]) -> None:
    for encode in (letters, pairs):
        ids, begins = ids_of_pieces(encode, pieces)
        assert ids == encode("".join(pieces))
        assert len(begins) == len(pieces)
        assert all(one <= other for one, other in pairwise([*begins, len(ids)]))


def test_a_token_across_a_border_belongs_to_the_later_piece() -> None:
    assert ids_of_pieces(pairs, ["abc", "defg"])[1] == [0, 1], "c alone is another token than cd"
    assert ids_of_pieces(pairs, ["abcd", "efg"])[1] == [0, 2]
    assert ids_of_pieces(letters, ["ab", "c"])[1] == [0, 3]


def test_recall_of_nothing_is_no_number() -> None:
    assert recall_of([RecalledNeedle(0.1, True), RecalledNeedle(0.5, False)]) == 0.5
    assert math.isnan(recall_of([]))
