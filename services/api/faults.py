"""Bounded collection of faults, listed in the order of their stages."""

from __future__ import annotations

from collections import defaultdict

FAULTS_MAX = 20
"""Maximum number of faults spelled out in one answer; the rest is counted."""


class Faults:
    """Fault texts by stage. Equal texts count once, and memory is bounded."""

    def __init__(self) -> None:
        self.count = 0
        self._texts: defaultdict[int, dict[str, None]] = defaultdict(dict)

    def add(self, stage: int, text: str) -> None:
        texts = self._texts[stage]
        if text in texts:
            return
        self.count += 1
        if len(texts) < FAULTS_MAX:
            texts[text] = None

    def extend(self, others: Faults) -> None:
        """Add faults after existing ones of the same stage."""
        listed = 0
        for stage, texts in others._texts.items():
            listed += len(texts)
            for text in texts:
                self.add(stage, text)
        self.count += others.count - listed

    def __bool__(self) -> bool:
        return self.count > 0

    def lines(self) -> list[str]:
        return [text for stage in sorted(self._texts) for text in self._texts[stage]][:FAULTS_MAX]

    def message(self) -> str:
        """Return one fault per line; "" when there is none."""
        lines = self.lines()
        if self.count > len(lines):
            lines.append(f"and {self.count - len(lines)} more faults")
        return "\n".join(lines)
