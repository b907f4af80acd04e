// What one event of a chat completion stream carries.
import type { ChunkKind, Usage } from "./record.js";

export interface Delta {
  kind: ChunkKind;
  text: string;
  reasoning: string;
  usage: Usage | null;
  finish: string | null;
  model: string | null;
  error: string | null;
}

type Json = Record<string, unknown>;
const object = (value: unknown): Json => (value !== null && typeof value === "object" ? (value as Json) : {});
const text = (value: unknown): string => (typeof value === "string" ? value : "");

/** Read an event's data; null for what is no JSON object. */
export function readDelta(data: string): Delta | null {
  const none: Delta = { kind: "done", text: "", reasoning: "", usage: null, finish: null, model: null, error: null };
  if (data.trim() === "[DONE]") return none;
  let raw: unknown;
  try {
    raw = JSON.parse(data);
  } catch {
    return null;
  }
  if (raw === null || typeof raw !== "object" || Array.isArray(raw)) return null;
  const body = raw as Json;
  if (body["error"]) return { ...none, kind: "error", error: text(object(body["error"])["message"]) || text(body["error"]) || "error" };
  const choice = object((body["choices"] as unknown[] | undefined)?.[0]);
  const delta = object(choice["delta"] ?? choice["message"]);
  const said = text(delta["content"]) || text(delta["refusal"]);
  const reasoning = text(delta["reasoning_content"]) || text(delta["reasoning"]);
  const tool = Array.isArray(delta["tool_calls"]) && delta["tool_calls"].length > 0;
  const usage = body["usage"] ? readUsage(object(body["usage"])) : null;
  const kind: ChunkKind = said ? "content" : reasoning ? "reasoning" : tool ? "tool" : usage ? "usage" : "role";
  return { kind, text: said, reasoning, usage, finish: text(choice["finish_reason"]) || null, model: text(body["model"]) || null, error: null };
}

function readUsage(raw: Json): Usage {
  const usage: Usage = {};
  for (const key of ["prompt_tokens", "completion_tokens"] as const) {
    const value = raw[key];
    if (typeof value === "number") usage[key] = value;
  }
  const cached = object(raw["prompt_tokens_details"])["cached_tokens"];
  if (typeof cached === "number") usage.cached_tokens = cached;
  return usage;
}
