"""Ids to the text that is certain: whole UTF-8 characters only, nothing that may still become a stop string.

What is emitted after n tokens is a function of the ids and the parameters alone: a copy that is fed the same ids
stands at the same character.
"""

from collections.abc import Iterable

from kvroll_worker.models.tokenizer import Tokenizer
from kvroll_worker.request import Sampling

_UNFINISHED = "�"


class TextStream:
    """The text of one session's outputs; `emitted_chars` of it were given out."""

    def __init__(
        self, tokenizer: Tokenizer, sampling: Sampling, output_ids: Iterable[int] = (), emitted_chars: int = 0
    ) -> None:
        self._tokenizer = tokenizer
        self._stop = [text for text in sampling.stop if text]
        self._min_tokens = sampling.min_tokens
        self._keep_stop = sampling.include_stop_str_in_output
        self._unstoppable = 0  # characters of the text within min_tokens: a stop string must end behind them
        self._ids: list[int] = []
        # ids[:context] is behind us; ids[context:done] is context for the tokenizer; ids[done:] has no certain text yet.
        self._context = 0
        self._done = 0
        self._text = ""
        for token_id in output_ids:
            self._feed(token_id)
        self.emitted_chars = emitted_chars

    def push(self, token_id: int) -> tuple[str, bool]:
        """The text that became certain with this token, and whether a stop string was completed.

        The text ends before the stop string that begins first, or behind it if the session wants it included.
        """
        self._feed(token_id)
        found = [span for span in (self._find(stop) for stop in self._stop) if span is not None]
        if found:
            begin, end = min(found)
            return self._emit(self._text[self.emitted_chars : end if self._keep_stop else begin]), True
        pending = self._text[self.emitted_chars :]
        return self._emit(pending[: len(pending) - self._held_back(pending)]), False

    def finish(self) -> str:
        """All that was still held back, unfinished characters as U+FFFD."""
        rest = self._tokenizer.decode(self._ids[self._context :])
        known = self._tokenizer.decode(self._ids[self._context : self._done])
        self._text += rest[len(known) :]
        return self._emit(self._text[self.emitted_chars :])

    def _emit(self, text: str) -> str:
        self.emitted_chars += len(text)
        return text

    def _find(self, stop: str) -> tuple[int, int] | None:
        begin = self._text.find(stop, max(self.emitted_chars, self._unstoppable - len(stop) + 1))
        return (begin, begin + len(stop)) if begin >= 0 else None

    def _feed(self, token_id: int) -> None:
        self._decode(token_id)
        if len(self._ids) <= self._min_tokens:
            self._unstoppable = len(self._text)

    def _decode(self, token_id: int) -> None:
        self._ids.append(token_id)
        # Decoded together with the tokens before it: some decoders treat the first token of a text differently.
        window = self._tokenizer.decode(self._ids[self._context :])
        if window.endswith(_UNFINISHED):
            return
        known = self._tokenizer.decode(self._ids[self._context : self._done])
        if len(window) > len(known):
            self._text += window[len(known) :]
            self._context, self._done = self._done, len(self._ids)

    def _held_back(self, pending: str) -> int:
        """Length of the longest end of `pending` that begins a stop string."""
        longest = 0
        for stop in self._stop:
            for length in range(min(len(stop) - 1, len(pending)), longest, -1):
                if pending.endswith(stop[:length]):
                    longest = length
                    break
        return longest
