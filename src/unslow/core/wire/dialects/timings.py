"""Durations that servers report of their own work, as `ServerTimings`."""

from __future__ import annotations

from unslow.core.timeline import ServerTimings
from unslow.core.wire.dialects.fields import NS_PER_MS, NS_PER_S, Object, a_duration_ns, an_object

_NOTHING = ServerTimings()


def groq_timings(usage: object) -> ServerTimings | None:
    """Groq's `usage` (also under `x_groq`): `queue_time`, `prompt_time`, `completion_time`, `total_time` in seconds.

    Its total is prompt and completion without the queue. Cerebras reports the same names as `time_info`.
    """
    found = an_object(usage)
    if "total_time" not in found and "queue_time" not in found:
        return None
    return _known(
        ServerTimings(
            queue_ns=a_duration_ns(found.get("queue_time"), NS_PER_S),
            prefill_ns=a_duration_ns(found.get("prompt_time"), NS_PER_S),
            decode_ns=a_duration_ns(found.get("completion_time"), NS_PER_S),
            total_ns=a_duration_ns(found.get("total_time"), NS_PER_S),
        )
    )


def llama_timings(timings: object) -> ServerTimings | None:
    """llama.cpp's `timings`: `prompt_ms`, `predicted_ms`; our own engine adds `queue_ms`. All in milliseconds."""
    found = an_object(timings)
    return _known(
        ServerTimings(
            queue_ns=a_duration_ns(found.get("queue_ms"), NS_PER_MS),
            prefill_ns=a_duration_ns(found.get("prompt_ms"), NS_PER_MS),
            decode_ns=a_duration_ns(found.get("predicted_ms"), NS_PER_MS),
        )
    )


def ollama_timings(frame: Object) -> ServerTimings | None:
    """Ollama's last line: `load_duration`, `prompt_eval_duration`, `eval_duration`, `total_duration` in ns."""
    return _known(
        ServerTimings(
            load_ns=a_duration_ns(frame.get("load_duration")),
            prefill_ns=a_duration_ns(frame.get("prompt_eval_duration")),
            decode_ns=a_duration_ns(frame.get("eval_duration")),
            total_ns=a_duration_ns(frame.get("total_duration")),
        )
    )


def bedrock_timings(metrics: object) -> ServerTimings | None:
    """Bedrock's `metrics`: `latencyMs` of the whole call."""
    return _known(ServerTimings(total_ns=a_duration_ns(an_object(metrics).get("latencyMs"), NS_PER_MS)))


def _known(timings: ServerTimings) -> ServerTimings | None:
    return None if timings == _NOTHING else timings
