"""A real platform for the tests: started by e2e/support/serve-platform.ts, and ended with its standard input."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


class Platform:
    def __init__(self, **edge_settings: object) -> None:
        node = os.environ.get("DSEC_NODE") or (ROOT / ".dsec/node-path").read_text().strip()
        # In a session of its own: an interrupt of the tests is not the platform's, which ends with its input.
        self._process = subprocess.Popen(
            [
                node,
                "--disable-warning=ExperimentalWarning",
                str(ROOT / "e2e/support/serve-platform.ts"),
                json.dumps({"edgeSettings": edge_settings}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        told = self._line()
        self.endpoint: str = told["endpoint"]
        self.api_key: str = told["apiKey"]
        self.edge: str = told["edges"][0]

    def kill_edge(self) -> None:
        self._say({"kill": f"edge-{self.edge}"})

    def start_edge(self) -> None:
        self._say({"start": f"edge-{self.edge}"})

    def env(self) -> dict[str, str]:
        """For a program that finds the platform by itself."""
        source = str(ROOT / "python/libdsec/src")
        return {**os.environ, "PYTHONPATH": source, "DSEC_ENDPOINT": self.endpoint, "DSEC_API_KEY": self.api_key}

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.stdout is not None
        self._process.stdout.read()
        self._process.stdout.close()
        assert self._process.wait(60) == 0

    def _say(self, what: dict[str, str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        self._line()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the platform did not start: status {self._process.wait(60)}")
        told: dict[str, Any] = json.loads(line)
        return told
