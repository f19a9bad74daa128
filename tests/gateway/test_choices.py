"""Several choices, several prompts, and the prompt told back."""

from typing import Any

from kvroll.v1 import inference_pb2 as inf
from tests.gateway.conftest import StartBench, read_events
from tests.gateway.fake_session import MODEL, Script, expected_ids, text_of

PROMPTS = [[11, 22, 33], [44, 55]]
BODY: dict[str, Any] = {"model": MODEL, "prompt": PROMPTS, "max_tokens": 4}


def texts(prompt: list[int], count: int = 4) -> str:
    return "".join(map(text_of, expected_ids(prompt, count)))


async def test_prompts_times_n_in_openais_order_and_a_prompt_counts_once(start: StartBench) -> None:
    bench = await start()
    body = (await bench.http.post("/v1/completions", json={**BODY, "n": 2, "seed": 7})).json()
    assert [(one["index"], one["text"]) for one in body["choices"]] == [
        (0, texts(PROMPTS[0])), (1, texts(PROMPTS[0])), (2, texts(PROMPTS[1])), (3, texts(PROMPTS[1])),
    ]  # fmt: skip
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 16, "total_tokens": 21}
    assert [message.submit.sampling.seed for message in bench.workers[0].got("submit")] == [7, 8, 7, 8]
    assert len({one["kvroll"]["session_id"] for one in body["choices"]}) == 4
    await bench.until(lambda: not bench.workers[0].copies)


async def test_a_stream_of_several_choices(start: StartBench) -> None:
    bench = await start()
    request = {"model": MODEL, "messages": [{"role": "user", "content": "a bc"}], "n": 3, "max_tokens": 5}
    asked = {**request, "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    *events, usage, done = read_events((await bench.http.post("/v1/chat/completions", json=asked)).text)
    assert done.data == "[DONE]"
    found = dict.fromkeys(range(3), "")
    for event in events:
        (choice,) = event.data["choices"]
        found[choice["index"]] += choice["delta"]["content"]
    assert found == dict.fromkeys(range(3), texts([1, 2], 5))
    assert not any(event.id for event in events), "an id stands for one session"
    assert usage.data["usage"] == {"prompt_tokens": 2, "completion_tokens": 15, "total_tokens": 17}
    assert events[-1].data["usage"]["completion_tokens"] == 15


async def test_one_choice_that_fails_ends_the_answer_and_frees_the_others(start: StartBench) -> None:
    bench = await start(Script(fail_at_index=2))
    answer = await bench.http.post("/v1/completions", json={**BODY, "max_tokens": 10_000})
    assert answer.status_code == 500
    await bench.until(lambda: not bench.workers[0].copies)
    bench.workers[0].script.fail_at_index = None
    bench.workers[0].script.reject = inf.REJECT_CODE_INVALID
    assert (await bench.http.post("/v1/completions", json=BODY)).status_code == 400


async def test_echo_with_logprobs_as_lm_eval_asks(start: StartBench) -> None:
    bench = await start()
    request = {**BODY, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0, "seed": 1234}
    body = (await bench.http.post("/v1/completions", json=request)).json()
    for choice, prompt in zip(body["choices"], PROMPTS, strict=True):
        ids = [*prompt, *expected_ids(prompt, 1)]
        told = choice["logprobs"]
        assert choice["text"] == "".join(map(text_of, ids))
        assert told["tokens"] == [text_of(one) for one in ids]
        assert told["token_logprobs"] == [None, *[-2.0] * (len(prompt) - 1), -0.5]
        assert told["top_logprobs"][:2] == [None, {text_of(prompt[1]): -2.0, text_of(0): -1.0}]
        assert told["text_offset"] == [len("".join(map(text_of, ids[:at]))) for at in range(len(ids))]
    assert body["usage"]["completion_tokens"] == 2


async def test_prompt_logprobs_in_vllms_shape(start: StartBench) -> None:
    bench = await start()
    request = {**BODY, "prompt": [9, 1, 8], "prompt_logprobs": 2, "n": 1}
    (choice,) = (await bench.http.post("/v1/completions", json=request)).json()["choices"]
    first, of_a_likely_one, of_another = choice["prompt_logprobs"]

    def told(token: int, logprob: float, rank: int | None) -> dict[str, object]:
        return {"logprob": logprob, "rank": rank, "decoded_token": text_of(token)}

    assert first is None
    assert list(of_a_likely_one) == ["1", "0"]
    assert of_a_likely_one["1"]["rank"] == 2
    assert of_another == {"8": told(8, -2.0, None), "0": told(0, -1.0, 1), "1": told(1, -2.0, 2)}
    assert choice["text"] == "".join(map(text_of, expected_ids([9, 1, 8], 4)))
    assert choice["logprobs"] is None


async def test_prompt_logprobs_and_echo_each_have_as_many_as_they_ask_for(start: StartBench) -> None:
    bench = await start()
    request = {**BODY, "prompt": [9, 8], "prompt_logprobs": 2, "echo": True, "logprobs": 1, "n": 1}
    (choice,) = (await bench.http.post("/v1/completions", json=request)).json()["choices"]
    assert choice["logprobs"]["top_logprobs"][1] == {text_of(8): -2.0, text_of(0): -1.0}
    assert list(choice["prompt_logprobs"][1]) == ["8", "0", "1"]
    request = {**BODY, "prompt": [9, 8], "prompt_logprobs": 0, "echo": True, "n": 1}
    (choice,) = (await bench.http.post("/v1/completions", json=request)).json()["choices"]
    assert (choice["logprobs"], list(choice["prompt_logprobs"][1])) == (None, ["8"])


async def test_prompt_logprobs_are_not_for_streams(start: StartBench) -> None:
    bench = await start()
    refused = await bench.http.post("/v1/completions", json={**BODY, "prompt_logprobs": 1, "stream": True})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "prompt_logprobs")


async def test_max_tokens_0_tells_the_prompt_alone(start: StartBench) -> None:
    bench = await start()
    request = {**BODY, "prompt": "a bc def", "echo": True, "logprobs": 0, "max_tokens": 0, "return_token_ids": True}
    body = (await bench.http.post("/v1/completions", json=request)).json()
    (choice,) = body["choices"]
    assert (choice["text"], choice["finish_reason"], choice["token_ids"]) == ("a bc def", "length", [])
    assert choice["logprobs"]["token_logprobs"] == [None, -2.0, -2.0]
    assert body["usage"]["completion_tokens"] == 0
    *events, _ = read_events((await bench.http.post("/v1/completions", json={**request, "stream": True})).text)
    assert [event.data["choices"][0]["text"] for event in events] == ["a bc def"]
    refused = await bench.http.post("/v1/completions", json={**BODY, "max_tokens": 0})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "max_tokens")


async def test_offsets_of_a_stream_go_on_from_chunk_to_chunk(start: StartBench) -> None:
    bench = await start()
    request = {**BODY, "prompt": PROMPTS[0], "logprobs": 1, "stream": True}
    *events, _ = read_events((await bench.http.post("/v1/completions", json=request)).text)
    ids = expected_ids(PROMPTS[0], 4)
    offsets = [event.data["choices"][0]["logprobs"]["text_offset"] for event in events]
    assert offsets == [[len("".join(map(text_of, ids[:at])))] for at in range(4)]


async def test_a_chat_without_a_limit_is_the_workers_to_bound(start: StartBench) -> None:
    bench = await start()
    request = {"model": MODEL, "messages": [{"role": "user", "content": "a bc"}]}
    body = (await bench.http.post("/v1/chat/completions", json=request)).json()
    assert bench.workers[0].got("submit")[0].submit.sampling.max_tokens == 0
    assert body["usage"]["total_tokens"] == 64
