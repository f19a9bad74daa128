"""Text that is certain: whole characters, no beginnings of stop strings, the same at every restart."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroll_worker.engine.text.detokenizer import TextStream
from kvroll_worker.models.spec import load_spec
from kvroll_worker.models.tokenizer import ChatTemplateError, Tokenizer
from kvroll_worker.request import Sampling
from tests.worker.tiny_model import write_model


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = write_model(tmp_path_factory.mktemp("text"))
    return Tokenizer(folder, load_spec(folder))


def pieces(stream: TextStream, ids: list[int]) -> list[str]:
    return [stream.push(token_id)[0] for token_id in ids]


def test_a_character_comes_with_its_last_byte(tokenizer: Tokenizer) -> None:
    assert pieces(TextStream(tokenizer, Sampling()), tokenizer.encode("aé€😀")) == [
        "a",
        "",
        "é",
        "",
        "",
        "€",
        "",
        "",
        "",
        "😀",
    ]


def test_unfinished_bytes_come_out_at_the_end(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, Sampling())
    assert pieces(stream, tokenizer.encode("x€")[:3]) == ["x", "", ""]
    assert stream.finish() == "\ufffd"
    assert stream.emitted_chars == 2


def test_special_tokens_are_no_text(tokenizer: Tokenizer) -> None:
    assert pieces(TextStream(tokenizer, Sampling()), [256, *tokenizer.encode("a"), 257]) == ["", "a", ""]


def test_the_beginning_of_a_stop_string_is_held_back(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, Sampling(stop=("END", "NO")))
    assert pieces(stream, tokenizer.encode("aENxE")) == ["a", "", "", "ENx", ""]
    assert stream.push(tokenizer.encode("N")[0]) == ("", False)
    assert stream.push(tokenizer.encode("O")[0]) == ("E", True)


def test_the_earliest_stop_string_wins(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, Sampling(stop=("bc", "abcd")))
    assert [stream.push(i) for i in tokenizer.encode("xabc")][-1] == ("a", True)


def test_a_stop_string_is_kept_if_asked_for(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, Sampling(stop=("bcd", "bc"), include_stop_str_in_output=True))
    assert [stream.push(i) for i in tokenizer.encode("xabc")] == [("x", False), ("a", False), ("", False), ("bc", True)]


def test_a_stop_string_must_end_behind_min_tokens(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, Sampling(stop=("ab", "xabcd"), min_tokens=3))
    assert pieces(stream, tokenizer.encode("abxab")) == ["", "ab", "", "", "x"]
    stream = TextStream(tokenizer, Sampling(stop=("ab", "xabcd"), min_tokens=6))
    pushed = [stream.push(i) for i in tokenizer.encode("abxabcz")]
    assert ("".join(text for text, _ in pushed), [stopped for _, stopped in pushed]) == ("abxabcz", [False] * 7)
    stream = TextStream(tokenizer, Sampling(stop=("abc",), min_tokens=2))
    assert [stream.push(i) for i in tokenizer.encode("abc")] == [("", False), ("", False), ("", True)]


@settings(deadline=None, max_examples=60)
@given(text=st.text(alphabet="aé€😀STOP ", max_size=20), cut=st.integers(0, 60), min_tokens=st.integers(0, 9))
def test_a_restart_at_any_token_goes_on_at_the_same_character(
    tokenizer: Tokenizer, text: str, cut: int, min_tokens: int
) -> None:
    ids = tokenizer.encode(text)
    cut = min(cut, len(ids))
    sampling = Sampling(stop=("STOPP", "€€"), min_tokens=min_tokens, include_stop_str_in_output=bool(cut % 2))
    first = TextStream(tokenizer, sampling)
    before: list[str] = []
    for token_id in ids[:cut]:
        piece, stopped = first.push(token_id)
        before.append(piece)
        if stopped:
            return
    second = TextStream(tokenizer, sampling, ids[:cut], first.emitted_chars)
    assert pieces(first, ids[cut:]) == pieces(second, ids[cut:])
    assert first.finish() == second.finish()


def test_chat_is_rendered_by_the_models_template(tokenizer: Tokenizer) -> None:
    ids = tokenizer.render_chat([{"role": "user", "content": "hi"}])
    assert ids == [256, *tokenizer.encode("user:hi"), 257, 256, *tokenizer.encode("assistant:")]


def test_no_chat_template_is_said_so(tokenizer: Tokenizer) -> None:
    bare = object.__new__(Tokenizer)
    bare.__dict__.update({**tokenizer.__dict__, "chat_template": None})
    with pytest.raises(ChatTemplateError, match="no chat template"):
        bare.render_chat([{"role": "user", "content": "hi"}])


def test_a_template_that_refuses_is_an_error_with_its_words(tokenizer: Tokenizer) -> None:
    strict = object.__new__(Tokenizer)
    strict.__dict__.update({**tokenizer.__dict__, "chat_template": "{{ raise_exception('roles must alternate') }}"})
    with pytest.raises(ChatTemplateError, match="roles must alternate"):
        strict.render_chat([])
