// The JSON that Python's `show.report.payload` writes. Fields at their default are left out there; `read*` put them back.

export const PHASES = [
  "caller", "dns", "connect", "proxy", "tls", "send", "wait", "queue", "prefill", "thinking", "decode", "drain", "render",
] as const;
export type Phase = (typeof PHASES)[number];
export type Hop = "page" | "caller" | "resolver" | "client" | "proxy" | "edge" | "gateway" | "engine" | "provider";
export type Source = "measured" | "reported" | "inferred";
export type ChunkKind = "role" | "reasoning" | "content" | "tool" | "usage" | "done" | "error" | "keepalive";

export interface Row {
  phase: Phase | null;
  duration_ns: number;
  hop: Hop | null;
  source: Source | null;
  attempt: number;
  won: boolean;
}
export interface Bar {
  start_ns: number;
  end_ns: number;
  row: number;
}
export interface Span {
  phase: Phase;
  hop: Hop;
  start_ns: number;
  end_ns: number;
}
/** Sums over events that were seen but not kept. */
export interface Beyond {
  count: number;
  size_bytes: number;
  kinds: Partial<Record<ChunkKind, number>>;
  last_ns: number;
  max_gap_ns: number;
  last_token_ns?: number;
  first_token_ns?: number;
  first_output_ns?: number;
}
/** A clock, and how far off its readings can be on the Timeline's axis. */
export interface Clock {
  id: string;
  error_ns?: number;
}
export interface Chunks {
  arrival_ns: number[];
  size_bytes: number[];
  kind: ChunkKind[];
  tokens: (number | null)[];
  error_ns: number[];
  beyond: Beyond | null;
}
export interface Usage {
  prompt_tokens?: number;
  completion_tokens?: number;
  reasoning_tokens?: number;
  cached_tokens?: number;
}
export type Facts = Record<string, unknown> & {
  status?: number;
  model?: string;
  upstream?: string;
  url?: string;
  usage?: Usage;
  request_id?: string;
};
export interface Outcome {
  end: "completed" | "aborted" | "failed";
  phase: Phase | null;
  kind: string | null;
  detail: string | null;
}
export interface Timeline {
  trace_id: string;
  party: Hop;
  started_at: number;
  end_ns: number;
  spans: Span[];
  chunks: Chunks;
  facts: Facts;
  outcome: Outcome;
  clock?: Clock;
  clocks?: Clock[];
}
export interface Metrics {
  e2e_ns: number;
  ttfb_ns: number | null;
  ttfe_ns: number | null;
  ttft_ns: number | null;
  ttfot_ns: number | null;
  icl_p50_ns: number | null;
  icl_p95_ns: number | null;
  icl_max_ns: number | null;
  tpot_ns: number | null;
  tpot_star_ns: number | null;
  completion_tokens: number | null;
  ttft_error_ns: number | null;
}
export interface Exchange {
  id: string;
  timeline: Timeline;
  rows: Row[];
  bars: Bar[];
  metrics: Metrics;
}
export interface Target {
  url: string;
  model: string | null;
  dialect: string | null;
}
export interface Report {
  unslow_version: string;
  created_at: number;
  target: Target;
  exchanges: Exchange[];
}

type Json = Record<string, unknown>;
const object = (value: unknown): Json => (value !== null && typeof value === "object" ? (value as Json) : {});
const list = <T>(value: unknown): T[] => (Array.isArray(value) ? (value as T[]) : []);
const number = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);
const text = (value: unknown): string | null => (typeof value === "string" ? value : null);

export const NO_CHUNKS: Chunks = { arrival_ns: [], size_bytes: [], kind: [], tokens: [], error_ns: [], beyond: null };
export const COMPLETED: Outcome = { end: "completed", phase: null, kind: null, detail: null };

export function readRow(value: unknown): Row {
  const raw = object(value);
  return {
    phase: text(raw["phase"]) as Phase | null,
    duration_ns: number(raw["duration_ns"]) ?? 0,
    hop: text(raw["hop"]) as Hop | null,
    source: text(raw["source"]) as Source | null,
    attempt: number(raw["attempt"]) ?? 0,
    won: raw["won"] !== false,
  };
}

function readChunks(value: unknown): Chunks {
  const raw = object(value);
  const beyond = object(raw["beyond"]);
  return {
    arrival_ns: list(raw["arrival_ns"]),
    size_bytes: list(raw["size_bytes"]),
    kind: list(raw["kind"]),
    tokens: list(raw["tokens"]),
    error_ns: list(raw["error_ns"]),
    beyond: raw["beyond"]
      ? {
          count: number(beyond["count"]) ?? 0, size_bytes: number(beyond["size_bytes"]) ?? 0, kinds: object(beyond["kinds"]) as Beyond["kinds"],
          last_ns: number(beyond["last_ns"]) ?? 0, max_gap_ns: number(beyond["max_gap_ns"]) ?? 0,
        }
      : null,
  };
}

function readOutcome(value: unknown): Outcome {
  const raw = object(value);
  const end = text(raw["end"]);
  return {
    end: end === "aborted" || end === "failed" ? end : "completed",
    phase: text(raw["phase"]) as Phase | null,
    kind: text(raw["kind"]),
    detail: text(raw["detail"]),
  };
}

function readMetrics(value: unknown): Metrics {
  const raw = object(value);
  const at = (key: string) => number(raw[key]);
  return {
    e2e_ns: at("e2e_ns") ?? 0,
    ttfb_ns: at("ttfb_ns"),
    ttfe_ns: at("ttfe_ns"),
    ttft_ns: at("ttft_ns"),
    ttfot_ns: at("ttfot_ns"),
    icl_p50_ns: at("icl_p50_ns"),
    icl_p95_ns: at("icl_p95_ns"),
    icl_max_ns: at("icl_max_ns"),
    tpot_ns: at("tpot_ns"),
    tpot_star_ns: at("tpot_star_ns"),
    completion_tokens: at("completion_tokens"),
    ttft_error_ns: at("ttft_error_ns"),
  };
}

export function readExchange(value: unknown): Exchange {
  const raw = object(value);
  const timeline = object(raw["timeline"]);
  return {
    id: text(raw["id"]) ?? "",
    timeline: {
      trace_id: text(timeline["trace_id"]) ?? "",
      party: (text(timeline["party"]) ?? "client") as Hop,
      started_at: number(timeline["started_at"]) ?? 0,
      end_ns: number(timeline["end_ns"]) ?? 0,
      spans: list(timeline["spans"]),
      chunks: readChunks(timeline["chunks"]),
      facts: object(timeline["facts"]) as Facts,
      outcome: readOutcome(timeline["outcome"]),
      clocks: list(timeline["clocks"]),
    },
    rows: list(raw["rows"]).map(readRow),
    bars: list<Bar>(raw["bars"]),
    metrics: readMetrics(raw["metrics"]),
  };
}

export function readReport(value: unknown): Report {
  const raw = object(value);
  const target = object(raw["target"]);
  return {
    unslow_version: text(raw["unslow_version"]) ?? "",
    created_at: number(raw["created_at"]) ?? 0,
    target: { url: text(target["url"]) ?? "", model: text(target["model"]), dialect: text(target["dialect"]) },
    exchanges: list(raw["exchanges"]).map(readExchange),
  };
}

const TOKENS = new Set<ChunkKind>(["reasoning", "content", "tool"]);
export const carriesTokens = (kind: ChunkKind | undefined): boolean => kind !== undefined && TOKENS.has(kind);

/** Tokens a second between the first token and the last, where the record tells. */
export function tokensPerSecond(metrics: Metrics): number | null {
  const per = metrics.tpot_star_ns ?? metrics.tpot_ns;
  return per !== null && per > 0 ? 1e9 / per : null;
}
