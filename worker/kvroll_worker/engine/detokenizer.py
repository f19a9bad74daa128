"""Ids to the text that is certain: whole UTF-8 characters only, nothing that may still become a stop string.

What is emitted after n tokens is a function of the ids and the stop strings alone: a copy that is fed the same ids
stands at the same character.
"""

from collections.abc import Iterable

from kvroll_worker.models.tokenizer import Tokenizer

_UNFINISHED = "�"


class TextStream:
    """The text of one session's outputs; `emitted_chars` of it were given out."""

    def __init__(
        self, tokenizer: Tokenizer, stop: Iterable[str], output_ids: Iterable[int] = (), emitted_chars: int = 0
    ) -> None:
        self._tokenizer = tokenizer
        self._stop = [text for text in stop if text]
        self._ids: list[int] = []
        # ids[:context] is behind us; ids[context:done] is context for the tokenizer; ids[done:] has no certain text yet.
        self._context = 0
        self._done = 0
        self._text = ""
        for token_id in output_ids:
            self._feed(token_id)
        self.emitted_chars = emitted_chars

    def push(self, token_id: int) -> tuple[str, bool]:
        """The text that became certain with this token, and whether a stop string was completed (its text is left out)."""
        self._feed(token_id)
        pending = self._text[self.emitted_chars :]
        found = [at for at in (pending.find(stop) for stop in self._stop) if at >= 0]
        if found:
            return self._emit(pending[: min(found)]), True
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

    def _feed(self, token_id: int) -> None:
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
