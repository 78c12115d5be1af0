"""Reports the phase of pods."""

import json
import os
import sys

config = json.loads(os.environ.get("DELTAROUTER_CONFIG", "{}"))

for line in sys.stdin:
    delta = json.loads(line)
    phase = delta["object"].get("status", {}).get("phase", "")
    before = delta.get("oldObject", {}).get("status", {}).get("phase", "")
    if phase == before:
        print(json.dumps({"drop": True}))
        continue
    print(f"{delta['name']}: {before} -> {phase}")  # no answer, so it is logged
    print(json.dumps({"events": [{"data": {"pod": delta["name"], "phase": phase, **config}}]}))

print("no more deltas", file=sys.stderr)
