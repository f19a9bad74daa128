"""The OpenAI face over a healthy worker."""

from typing import Any

import pytest

from tests.gateway.conftest import StartBench, read_events
from tests.gateway.fake_session import MODEL, Script, expected_ids, text_of

PROMPT = [11, 22, 33]
BODY = {"model": MODEL, "prompt": PROMPT, "max_tokens": 8}


async def test_completion_as_json_has_every_token_and_the_right_usage(start: StartBench) -> None:
    bench = await start()
    answer = await bench.http.post("/v1/completions", json={**BODY, "return_token_ids": True})
    assert answer.status_code == 200
    body = answer.json()
    ids = expected_ids(PROMPT, 8)
    assert body["object"] == "text_completion"
    assert body["choices"][0]["text"] == "".join(map(text_of, ids))
    assert body["choices"][0]["token_ids"] == ids
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11}
    assert body["kvroll"]["record"]["completion_tokens"] == 8
    await bench.until(lambda: not bench.workers[0].copies)  # the last acknowledgement frees it


async def test_stream_ids_count_from_zero_and_the_last_chunk_carries_the_record(start: StartBench) -> None:
    bench = await start()
    request = {**BODY, "stream": True, "return_token_ids": True, "stream_options": {"include_usage": True}}
    answer = await bench.http.post("/v1/completions", json=request)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *tokens, usage, done = read_events(answer.text)
    assert done.data == "[DONE]"
    assert usage.data["choices"] == []
    assert usage.data["usage"]["completion_tokens"] == 8
    assert [event.index for event in tokens] == list(range(8))
    assert [event.data["choices"][0]["token_ids"] for event in tokens] == [[one] for one in expected_ids(PROMPT, 8)]
    token, epoch, _ = tokens[0].id.split(".")
    assert epoch == "1-gw-test-1"
    assert bench.gateway.key.verify(token) == tokens[-1].data["kvroll"]["session_id"]
    assert tokens[-1].data["kvroll"]["precision_epochs"] == [
        {"from_token": 0, "weights": "bf16", "kv_cache": "bf16", "mode": "Start"}
    ]
    assert tokens[0].data["kvroll"] == {
        "session_id": bench.gateway.key.verify(token),
        "worker": bench.workers[0].instance_id,
    }
    assert not [event for event in tokens[1:-1] if "kvroll" in event.data], "said once, until the owner changes"
    assert all(event.data["usage"] is None for event in tokens)


async def test_chat_stream_opens_with_the_role(start: StartBench) -> None:
    bench = await start()
    request = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "a bc def"}],
        "max_completion_tokens": 3,
        "stream": True,
    }
    first, *rest = read_events((await bench.http.post("/v1/chat/completions", json=request)).text)
    assert first.data["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert first.id == ""
    text = "".join(event.data["choices"][0]["delta"]["content"] for event in rest[:-1])
    assert text == "".join(map(text_of, expected_ids([1, 2, 3], 3)))
    assert "token_ids" not in rest[0].data["choices"][0]


async def test_what_the_worker_is_asked(start: StartBench) -> None:
    bench = await start()
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    request = {
        "model": MODEL,
        "messages": messages,
        "max_tokens": 2,
        "temperature": 0,
        "top_k": -1,
        "stop": "x",
        "logprobs": True,
    }
    body = (await bench.http.post("/v1/chat/completions", json={**request, "seed": -1, "top_logprobs": 2})).json()
    (submit,) = [message.submit for message in bench.workers[0].got("submit")]
    assert [(one.role, one.content) for one in submit.messages] == [("system", "be brief"), ("user", "a\nb")]
    sampling = submit.sampling
    assert (sampling.temperature, sampling.top_k, sampling.seed, list(sampling.stop)) == (0.0, 0, 2**64 - 1, ["x"])
    assert sampling.logprobs == 2
    content = body["choices"][0]["logprobs"]["content"]
    assert len(content) == 2
    assert len(content[0]["top_logprobs"]) == 2


async def test_vllms_sampling_parameters_reach_the_worker(start: StartBench) -> None:
    bench = await start()
    asked = {
        "repetition_penalty": 1.5,
        "presence_penalty": -0.5,
        "frequency_penalty": 0.25,
        "logit_bias": {"9": 1, "7": -100},
        "min_tokens": 2,
        "stop_token_ids": [3, 5],
        "stop": [str(n) for n in range(16)],
        "include_stop_str_in_output": True,
    }
    assert (await bench.http.post("/v1/completions", json={**BODY, **asked})).status_code == 200
    (sampling,) = [message.submit.sampling for message in bench.workers[0].got("submit")]
    assert (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) == (1.5, -0.5, 0.25)
    assert [(one.token_id, one.bias) for one in sampling.logit_bias] == [(7, -100), (9, 1)]
    assert (sampling.min_tokens, list(sampling.stop_token_ids), len(sampling.stop)) == (2, [3, 5], 16)
    assert sampling.include_stop_str_in_output


async def test_priority_and_cache_salt_reach_the_worker(start: StartBench) -> None:
    bench = await start()
    for asked in ({}, {"priority": -3, "cache_salt": "tenant"}):
        assert (await bench.http.post("/v1/completions", json={**BODY, **asked})).status_code == 200
    submits = [message.submit for message in bench.workers[0].got("submit")]
    assert [(one.priority, one.cache_salt) for one in submits] == [(0, ""), (-3, "tenant")]
    for bad in ({"priority": 2**31}, {"priority": 0.5}, {"cache_salt": ""}, {"cache_salt": "x" * 257}):
        answer = await bench.http.post("/v1/completions", json={**BODY, **bad})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(bad)))


async def test_an_unset_seed_is_drawn_anew_for_each_session(start: StartBench) -> None:
    bench = await start()
    for _ in range(2):
        await bench.http.post("/v1/completions", json={**BODY, "max_tokens": 1})
    first, second = [message.submit.sampling.seed for message in bench.workers[0].got("submit")]
    assert first != second


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"tools": [{"type": "function"}]}, "tools", "unsupported_parameter"),
        ({"n": 0}, "n", "invalid_value"),
        ({"echo": True}, "echo", "unsupported_parameter"),
        ({"frequency_penalty": 2.5}, "frequency_penalty", "invalid_value"),
        ({"repetition_penalty": 0}, "repetition_penalty", "invalid_value"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "invalid_value"),
        ({"logit_bias": {"7": 101}}, "logit_bias", "invalid_value"),
        ({"stop_token_ids": [-1]}, "stop_token_ids", "invalid_value"),
        ({"min_tokens": -1}, "min_tokens", "invalid_value"),
        ({"use_beam_search": True}, "use_beam_search", "unsupported_parameter"),
        ({"response_format": {"type": "json_object"}}, "response_format", "unsupported_parameter"),
        ({"temprature": 1}, "temprature", "unknown_parameter"),
        ({"temperature": 3}, "temperature", "invalid_value"),
        ({"top_p": 0}, "top_p", "invalid_value"),
        ({"stop": ["a"] * 17}, "stop", "invalid_value"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"max_tokens": "many"}, "max_tokens", "invalid_value"),
        ({"model": None}, "model", "missing_required_parameter"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "user", "content": "x", "name": 5}]}, "messages[0].name", "invalid_value"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content", "invalid_value"),
        ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
    ],
)
async def test_what_is_not_understood_is_refused_by_name(
    start: StartBench, change: dict[str, Any], param: str, code: str
) -> None:
    bench = await start()
    request = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **change}
    answer = await bench.http.post("/v1/chat/completions", json=request)
    error = answer.json()["error"]
    assert answer.status_code == 400, error
    assert error["type"] == "invalid_request_error"
    assert (error["param"].startswith(param), error["code"]) == (True, code), error
    assert not bench.workers[0].got("submit")


async def test_fields_that_ask_for_nothing_are_taken(start: StartBench) -> None:
    bench = await start()
    neutral = {
        "n": 1,
        "tools": [],
        "response_format": {"type": "text"},
        "logit_bias": None,
        "presence_penalty": 0.0,
        "user": "me",
    }
    answer = await bench.http.post(
        "/v1/chat/completions",
        json={"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, **neutral},
    )
    assert answer.status_code == 200, answer.text


async def test_errors_keep_openais_shape(start: StartBench) -> None:
    bench = await start()
    unknown = await bench.http.post("/v1/completions", json={**BODY, "model": "gpt-9"})
    assert (unknown.status_code, unknown.json()["error"]["code"], unknown.json()["error"]["param"]) == (
        404,
        "model_not_found",
        "model",
    )
    resumed = await bench.http.post("/v1/completions", json=BODY, headers={"Last-Event-ID": "x.1-g-1.4"})
    assert (resumed.status_code, resumed.json()["error"]["code"]) == (501, "resume_not_supported")
    broken = await bench.http.post("/v1/completions", content=b"{")
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_json")
    nowhere = await bench.http.get("/v2/models")
    assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "not_found")
    empty = await bench.http.post("/v1/completions", json={**BODY, "prompt": ["a", ""]})
    assert (empty.status_code, empty.json()["error"]["param"]) == (400, "prompt")


async def test_a_request_that_a_worker_calls_invalid_is_the_clients_fault(start: StartBench) -> None:
    from kvroll.v1 import inference_pb2 as inf

    bench = await start(Script(reject=inf.REJECT_CODE_INVALID))
    answer = await bench.http.post("/v1/completions", json=BODY)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "scripted refusal")


async def test_models_health_and_metrics(start: StartBench) -> None:
    bench = await start()
    assert [one["id"] for one in (await bench.http.get("/v1/models")).json()["data"]] == [MODEL]
    assert (await bench.http.get(f"/v1/models/{MODEL}")).json()["object"] == "model"
    assert (await bench.http.get("/v1/models/none")).status_code == 404
    assert (await bench.http.get("/healthz")).status_code == 200
    assert (await bench.http.get("/readyz")).status_code == 200
    assert (await bench.http.get("/health")).status_code == 200
    await bench.http.post("/v1/completions", json=BODY)
    text = (await bench.http.get("/metrics")).text
    assert f'kvroll_gateway_tokens_delivered_total{{model="{MODEL}"}} 8.0' in text
    assert f'kvroll_gateway_time_to_first_token_seconds_count{{model="{MODEL}"}} 1.0' in text
