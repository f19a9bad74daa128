"""Text to ids and back: the model's tokenizer.json, its chat template, its end-of-sequence ids."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import tokenizers
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kvroll_worker.models.spec import ModelSpec, UnsupportedModelError, read_json


class ChatTemplateError(ValueError):
    """The model has no chat template, or the template refused the messages."""


class Tokenizer:
    """The tokenizer of a model folder; stateless, safe to share between threads."""

    def __init__(self, folder: Path, spec: ModelSpec) -> None:
        path = folder / "tokenizer.json"
        if not path.exists():
            raise UnsupportedModelError(f"expected {path}, found none; only `tokenizers` files are read")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        self._config = read_json(folder / "tokenizer_config.json") or {}
        self.chat_template = _chat_template(folder, self._config)
        self.eos_token_ids = frozenset(spec.eos_token_ids)
        self.vocab_size = spec.shape.vocab

    def encode(self, text: str) -> list[int]:
        """Ids of a plain prompt, with the special tokens that the model wants in front."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ids without special tokens; bytes that are no UTF-8 (yet) become U+FFFD."""
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return text

    def token_text(self, token_id: int) -> str:
        """One token as people see it in logprobs, special tokens too."""
        text: str = self._tokenizer.decode([token_id], skip_special_tokens=False)
        return text

    def render_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Ids of a conversation with the assistant's turn opened, through the model's own template.

        Raises:
            ChatTemplateError: no template, or it refuses these messages.
        """
        if self.chat_template is None:
            raise ChatTemplateError(
                "this model has no chat template; use /v1/completions, or add chat_template to tokenizer_config.json"
            )
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
        special = {
            name: _token_string(self._config.get(name)) for name in ("bos_token", "eos_token", "pad_token", "unk_token")
        }
        try:
            text = environment.from_string(self.chat_template).render(
                messages=messages, add_generation_prompt=True, **special
            )
        except TemplateError as error:
            raise ChatTemplateError(f"the chat template refused the messages: {error}") from error
        # The template writes the special tokens itself.
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _chat_template(folder: Path, config: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.exists():
        return path.read_text()
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("default")
    return template


def _token_string(token: Any) -> str:
    if isinstance(token, dict):
        return str(token.get("content", ""))
    return str(token or "")


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
