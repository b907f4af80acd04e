// The console's own server: same origin, session cookie.
import { t } from "../core/i18n.js";
import { readExchange, readRow, type Exchange, type Row, type Timeline } from "../core/record.js";

export interface Config {
  version: string;
  gateway_url: string;
  models: string[];
  upstreams: { name: string; url: string; has_key: boolean }[];
  engine: Record<string, unknown> | null;
  history: Record<string, unknown> | null;
  settings: Record<string, unknown>;
}

export interface Summary {
  id: string;
  started_at: number;
  model: string | null;
  upstream: string | null;
  status: number | null;
  end: "completed" | "aborted" | "failed";
  kind: string | null;
  stream: boolean | null;
  e2e_ns: number;
  ttft_ns: number | null;
  tokens: number | null;
  rows: Row[];
}

export class ApiError extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

async function call(path: string, method = "GET", given?: unknown): Promise<unknown> {
  const headers: Record<string, string> = { accept: "application/json" };
  const sent = given === undefined ? null : JSON.stringify(given);
  if (sent !== null) headers["content-type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(path, { method, headers, body: sent, cache: "no-store" });
  } catch {
    throw new ApiError(0, t("e.away"));
  }
  if (response.status === 401 || response.status === 403) throw new ApiError(response.status, t("e.session"));
  if (response.status === 404) throw new ApiError(404, t("q.gone"));
  if (!response.ok) throw new ApiError(response.status, t("e.api", { why: `HTTP ${response.status}` }));
  const body = await response.text();
  return body ? (JSON.parse(body) as unknown) : null;
}

export async function getConfig(): Promise<Config> {
  const raw = (await call("/api/config")) as Partial<Config>;
  return {
    version: raw.version ?? "", gateway_url: (raw.gateway_url ?? "").replace(/\/+$/, "").replace(/\/v1$/, ""), models: raw.models ?? [], upstreams: raw.upstreams ?? [],
    engine: raw.engine ?? null, history: raw.history ?? null, settings: raw.settings ?? {},
  };
}

export function readSummary(value: unknown): Summary {
  const raw = value as Summary;
  return { ...raw, rows: (raw.rows ?? []).map((row) => withLabel(readRow(row), row as unknown as { label?: string })) };
}

/** A summary's rows have a label instead of `won` and `attempt`. */
function withLabel(row: Row, raw: { label?: string }): Row {
  const lost = /lost attempt (\d+)/.exec(raw.label ?? "");
  return lost ? { ...row, won: false, attempt: Number(lost[1]) - 1 } : row;
}

export async function listExchanges(limit: number, before: string | null): Promise<{ items: Summary[]; next: string | null }> {
  const query = new URLSearchParams({ limit: String(limit) });
  if (before) query.set("before", before);
  const raw = (await call(`/api/exchanges?${query}`)) as { items: unknown[]; next: string | number | null };
  return { items: raw.items.map(readSummary), next: raw.next === null ? null : String(raw.next) };
}

export async function getExchange(id: string): Promise<Exchange> {
  return readExchange(await call(`/api/exchanges/${encodeURIComponent(id)}`));
}

/** Add what this page saw of an exchange: `facts.request_id` names it. */
export async function addTimeline(timeline: Timeline): Promise<void> {
  await call("/api/exchanges", "POST", timeline);
}

export async function purge(): Promise<void> {
  await call("/api/exchanges", "DELETE");
}
