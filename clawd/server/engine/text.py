"""From sampled tokens to the text that may be shown: whole characters only, and never a part of a stop string."""

from __future__ import annotations

from clawd.model.vocab import TextDecoder


class ShownText:
    """The text of one answer as it grows. What might begin a stop string is held back until that is decided."""

    def __init__(self, stop: tuple[str, ...]) -> None:
        self._stop = tuple(text for text in stop if text)
        self._decoder = TextDecoder()
        self._held = ""
        self.matched: str | None = None  # the stop string that ended the answer

    @property
    def stopped(self) -> bool:
        return self.matched is not None

    def feed(self, data: bytes) -> str:
        """Text that may be shown now. Nothing more is once it has `stopped`: the stop string itself is not shown."""
        return self._release(self._decoder.feed(data))

    def finish(self) -> str:
        """What was held back and belongs to the answer after all; "" if a stop string ended it."""
        if self.stopped:
            return ""
        text = self._release(self._decoder.finish())
        text, self._held = text + self._held, ""
        return text

    def _release(self, text: str) -> str:
        if not self._stop:
            return text
        text = self._held + text
        found = [(at, stop) for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            first, self.matched = min(found)
            self._held = ""
            return text[:first]
        hold = max((self._overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """Length of the longest end of `text` that begins `stop`."""
        for length in range(min(len(text), len(stop) - 1), 0, -1):
            if stop.startswith(text[-length:]):
                return length
        return 0
