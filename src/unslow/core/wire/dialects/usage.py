"""Token counts as providers name them, brought to one meaning.

In `Usage`, `prompt_tokens` includes what a cache served and `completion_tokens` includes reasoning. OpenAI counts so;
Anthropic leaves cached tokens out of its input, Gemini and xAI leave thoughts out of their output: those are added.
"""

from __future__ import annotations

from unslow.core.timeline import Usage
from unslow.core.wire.dialects.fields import Object, a_count, an_object, first_count


def openai_usage(value: object) -> Usage | None:
    """`usage` of chat, completions and Responses, and of those who speak like them.

    DeepSeek names its cache hits `prompt_cache_hit_tokens`, Moonshot `cached_tokens`, xAI
    `cached_prompt_text_tokens`. Where the total says that
    reasoning was counted beside the completion (xAI), it is added.
    """
    usage = an_object(value)
    prompt = first_count(usage.get("prompt_tokens"), usage.get("input_tokens"))
    completion = first_count(usage.get("completion_tokens"), usage.get("output_tokens"))
    if prompt is None and completion is None:
        return None
    output_details = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    reasoning = first_count(an_object(output_details).get("reasoning_tokens"), usage.get("reasoning_tokens"))
    total = a_count(usage.get("total_tokens"))
    if reasoning and completion is not None and total == (prompt or 0) + completion + reasoning:
        completion += reasoning
    return Usage(prompt, completion, reasoning, _openai_cached(usage))


def _openai_cached(usage: Object) -> int | None:
    details = an_object(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    names = ("prompt_cache_hit_tokens", "cached_tokens", "cached_prompt_text_tokens")
    return first_count(details.get("cached_tokens"), *map(usage.get, names))


def anthropic_usage(value: object) -> Usage | None:
    """`usage` of Messages: `input_tokens` counts only what no cache read or wrote."""
    usage = an_object(value)
    uncached = a_count(usage.get("input_tokens"))
    completion = a_count(usage.get("output_tokens"))
    if uncached is None and completion is None:
        return None
    read = a_count(usage.get("cache_read_input_tokens"))
    prompt = None
    if uncached is not None:
        prompt = uncached + (read or 0) + (a_count(usage.get("cache_creation_input_tokens")) or 0)
    return Usage(prompt, completion, None, read)


def gemini_usage(value: object) -> Usage | None:
    """`usageMetadata` of generateContent: thoughts are counted beside the candidates."""
    usage = an_object(value)
    prompt = a_count(usage.get("promptTokenCount"))
    candidates = a_count(usage.get("candidatesTokenCount"))
    thoughts = a_count(usage.get("thoughtsTokenCount"))
    if prompt is None and candidates is None and thoughts is None:
        return None
    tool_prompt = a_count(usage.get("toolUsePromptTokenCount"))
    return Usage(
        _sum(prompt, tool_prompt), _sum(candidates, thoughts), thoughts, a_count(usage.get("cachedContentTokenCount"))
    )


def interactions_usage(value: object) -> Usage | None:
    """`usage` of Gemini's Interactions."""
    usage = an_object(value)
    prompt = a_count(usage.get("total_input_tokens"))
    output, thoughts = a_count(usage.get("total_output_tokens")), a_count(usage.get("total_thought_tokens"))
    if prompt is None and output is None:
        return None
    return Usage(prompt, _sum(output, thoughts), thoughts, a_count(usage.get("total_cached_tokens")))


def ollama_usage(frame: Object) -> Usage | None:
    """Counts of Ollama's last line; a prompt that its cache served whole is left out by it, so unknown."""
    prompt, completion = a_count(frame.get("prompt_eval_count")), a_count(frame.get("eval_count"))
    return None if prompt is None and completion is None else Usage(prompt, completion)


def bedrock_usage(value: object) -> Usage | None:
    """`usage` of Converse."""
    usage = an_object(value)
    uncached, completion = a_count(usage.get("inputTokens")), a_count(usage.get("outputTokens"))
    if uncached is None and completion is None:
        return None
    read = a_count(usage.get("cacheReadInputTokens"))
    prompt = _sum(_sum(uncached, read), a_count(usage.get("cacheWriteInputTokens")))
    return Usage(prompt, completion, None, read)


def llama_usage(value: object) -> Usage | None:
    """Counts in llama.cpp's `timings`: `prompt_n` leaves out what the cache served (`cache_n`)."""
    timings = an_object(value)
    prompt, completion = a_count(timings.get("prompt_n")), a_count(timings.get("predicted_n"))
    if prompt is None and completion is None:
        return None
    cached = a_count(timings.get("cache_n"))
    return Usage(_sum(prompt, cached), completion, None, cached)


def _sum(first: int | None, second: int | None) -> int | None:
    return first if second is None else (first or 0) + second
