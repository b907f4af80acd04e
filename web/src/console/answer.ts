// One streamed answer: the request, its stamps, its text. No DOM.
import { createParser } from "eventsource-parser";
import { readDelta } from "../core/delta.js";
import { t } from "../core/i18n.js";
import { PageRecord, type BrowserStamps } from "../core/page.js";
import { readRow, type Row } from "../core/record.js";

export interface Message {
  role: "user" | "assistant";
  content: string;
}

export interface Ledger {
  id: string;
  end_ns: number;
  rows: Row[];
}

export interface Told {
  text(piece: string): void;
  reasoning(piece: string): void;
  /** The stream is over, however it ended. */
  over(): void;
}

/** Stamps of the page are as fine as the browser lets them be (Chromium: 100 µs, 5 µs when isolated). */
const stampError = (): number => (globalThis.crossOriginIsolated ? 5_000 : 100_000);

const hex = (bytes: number): string => Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (one) => one.toString(16).padStart(2, "0")).join("");
const utf8 = new TextEncoder();

export class Answer {
  readonly record = new PageRecord(hex(16), Date.now() / 1000, stampError());
  ledger: Ledger | null = null;
  error: string | null = null;
  private readonly abort = new AbortController();
  private readonly zero = performance.now();
  private complete = false;

  constructor(private readonly gateway: string, private readonly told: Told) {}

  get now_ns(): number {
    return Math.round((performance.now() - this.zero) * 1e6);
  }

  stop(): void {
    this.abort.abort();
  }

  async run(model: string, messages: Message[], key: string): Promise<void> {
    this.record.facts = { model, stream: true, method: "POST", url: this.url };
    performance.clearResourceTimings(); // the browser keeps 250 entries and drops what comes after
    try {
      const response = await this.ask(model, messages, key);
      this.record.headers_ns = this.now_ns;
      this.record.facts.status = response.status;
      const id = response.headers.get("x-unslow-id");
      if (id) this.record.facts.request_id = id;
      if (!response.ok) this.fail(`http_${response.status}`, await refusal(response));
      else if (!response.body) this.fail("no_body", t("c.garbage"));
      else await this.read(response.body);
    } catch (error) {
      this.caught(error);
    }
    this.record.end_ns = this.now_ns;
    this.told.over();
  }

  /** Take the browser's own stamps; it has them a moment after the end. Without leave of the gateway they are zeros. */
  settle(): void {
    const entry = (performance.getEntriesByName(this.url, "resource") as PerformanceResourceTiming[]).find((one) => one.startTime >= this.zero - 1 && one.requestStart > 0);
    if (!entry || this.record.browser) return;
    this.record.browser = stamps(entry, (ms) => Math.max(0, Math.round((ms - this.zero) * 1e6)));
    if (entry.nextHopProtocol) this.record.facts["http_version"] = entry.nextHopProtocol.replace(/^http\//, "");
    this.record.facts["reused"] = entry.connectEnd === entry.connectStart;
  }

  private get url(): string {
    return `${this.gateway}/v1/chat/completions`;
  }

  private ask(model: string, messages: Message[], key: string): Promise<Response> {
    const headers: Record<string, string> = { "content-type": "application/json", "x-unslow-ledger": "1", traceparent: `00-${this.record.trace_id}-${hex(8)}-01` };
    if (key) headers["authorization"] = `Bearer ${key}`;
    const body = JSON.stringify({ model, messages, stream: true, stream_options: { include_usage: true } });
    this.record.facts["request_bytes"] = utf8.encode(body).length;
    return fetch(this.url, { method: "POST", headers, body, signal: this.abort.signal, cache: "no-store", credentials: "omit" });
  }

  private async read(body: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    const parser = createParser({ onEvent: (event) => this.event(event.data), onComment: (comment) => this.comment(comment) });
    const reader = body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      parser.feed(decoder.decode(value, { stream: true }));
    }
    parser.feed(decoder.decode() + "\n\n");
    if (this.error) return;
    if (!this.record.chunks.arrival_ns.length) this.fail("no_stream", t("c.garbage"));
    else if (!this.complete) this.fail("truncated", t("c.cut"));
  }

  private event(data: string): void {
    const delta = readDelta(data);
    if (!delta) return;
    this.record.add(this.now_ns, delta.kind, utf8.encode(data).length + 8);
    if (delta.usage) this.record.usage = this.record.facts.usage = delta.usage;
    if (delta.model) this.record.facts["model_answered"] = delta.model;
    if (delta.finish) this.record.facts["finish_reason"] = delta.finish;
    if (delta.finish || delta.kind === "done") this.complete = true;
    if (delta.error) this.fail("stream_error", t("c.refused", { status: this.record.facts.status ?? 200, why: delta.error }));
    if (delta.reasoning) this.told.reasoning(delta.reasoning);
    if (delta.text) this.told.text(delta.text);
  }

  /** The gateway's trailing comment: `unslow {"id", "end_ns", "rows"}`. */
  private comment(text: string): void {
    const found = /^\s*unslow\s+(\{.*\})\s*$/.exec(text);
    if (!found?.[1]) return;
    try {
      const raw = JSON.parse(found[1]) as { id?: unknown; end_ns?: unknown; rows?: unknown };
      if (typeof raw.end_ns !== "number" || !Array.isArray(raw.rows)) return;
      this.ledger = { id: String(raw.id ?? ""), end_ns: raw.end_ns, rows: raw.rows.map(readRow) };
      if (this.ledger.id) this.record.facts.request_id = this.ledger.id;
    } catch {
      // a comment that is not ours
    }
  }

  private fail(kind: string, why: string): void {
    this.error = why;
    this.record.outcome = { end: "failed", phase: null, kind, detail: null };
  }

  private caught(error: unknown): void {
    if (this.abort.signal.aborted) this.record.outcome = { end: "aborted", phase: null, kind: null, detail: null };
    else if (this.record.headers_ns !== null) this.fail("truncated", t("c.cut"));
    else this.fail("unreachable", t("c.unreachable", { url: this.gateway }));
    if (!(error instanceof Error)) throw error;
  }
}

function stamps(entry: PerformanceResourceTiming, at: (ms: number) => number): BrowserStamps {
  return {
    dns_ns: [at(entry.domainLookupStart), at(entry.domainLookupEnd)], connect_ns: [at(entry.connectStart), at(entry.connectEnd)],
    tls_ns: entry.secureConnectionStart > 0 ? at(entry.secureConnectionStart) : null, request_ns: at(entry.requestStart), first_byte_ns: at(entry.responseStart),
  };
}

async function refusal(response: Response): Promise<string> {
  const body = (await response.text().catch(() => "")).slice(0, 4000);
  let why = body.slice(0, 300);
  try {
    const raw = JSON.parse(body) as { error?: { message?: unknown } | string; message?: unknown };
    const said = typeof raw.error === "string" ? raw.error : (raw.error?.message ?? raw.message);
    if (typeof said === "string") why = said;
  } catch {
    // shown as it is
  }
  return response.status === 401 ? `${t("c.auth", { status: 401 })} ${why}` : t("c.refused", { status: response.status, why: why || response.statusText });
}
