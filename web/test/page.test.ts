import { expect, test } from "vitest";
import { PageRecord, laidOut, overlaid, type Inner } from "../src/core/page.js";
import type { Exchange, Row } from "../src/core/record.js";

const MS = 1_000_000;
const TRACE = "0af7651916cd43dd8448eb211c80319c";
const row = (phase: Row["phase"], ms: number): Row => ({ phase, hop: "gateway", source: "measured", duration_ns: ms * MS, attempt: 0, won: true });
const sum = (exchange: Exchange) => exchange.rows.reduce((ns, one) => ns + one.duration_ns, 0);
const shown = (exchange: Exchange) => exchange.rows.map((one) => `${one.phase} ${one.hop} ${one.duration_ns / MS}`);
const spans = (record: PageRecord, now = 0) => record.timeline(now).spans.map((one) => `${one.phase} ${one.start_ns / MS}-${one.end_ns / MS}`);

function finished(): PageRecord {
  const record = new PageRecord(TRACE, 0, 100_000);
  record.headers_ns = 20 * MS;
  record.add(21 * MS, "role", 10);
  record.add(100 * MS, "reasoning", 10);
  record.add(150 * MS, "content", 10);
  record.add(160 * MS, "content", 10);
  record.add(161 * MS, "usage", 10);
  record.usage = { completion_tokens: 3 };
  record.end_ns = 165 * MS;
  record.painted_ns = 170 * MS;
  return record;
}

const BROWSER = { dns_ns: [1 * MS, 2 * MS], connect_ns: [2 * MS, 6 * MS], tls_ns: 4 * MS, request_ns: 9 * MS, first_byte_ns: 19 * MS } as const;
const withBrowser = (record: PageRecord) => Object.assign(record, { browser: { ...BROWSER } });

test("rows of what the page saw sum to its time", () => {
  const seen = finished().exchange(0);
  expect(seen.rows.map((one) => one.phase)).toEqual(["wait", "thinking", "decode", "drain", "render"]);
  expect(sum(seen)).toBe(seen.timeline.end_ns);
  expect(seen.metrics.ttft_ns).toBe(100 * MS);
  expect(seen.metrics.ttfot_ns).toBe(150 * MS);
  expect(seen.metrics.tpot_ns).toBe(30 * MS);
});

test("spans touch, in order, with a first byte and a frame that ends the answer", () => {
  expect(spans(finished())).toEqual(["wait 0-20", "wait 20-100", "thinking 100-150", "decode 150-161", "drain 161-165", "render 165-170"]);
});

test("the browser's own stamps divide what came before the request", () => {
  const record = withBrowser(finished());
  expect(spans(record).slice(0, 8)).toEqual(["caller 0-1", "dns 1-2", "connect 2-4", "tls 4-6", "caller 6-9", "send 9-9", "wait 9-19", "wait 19-100"]);
  expect(sum(record.exchange(0))).toBe(170 * MS);
  expect(record.exchange(0).metrics.ttfb_ns).toBe(19 * MS);
});

test("stamps out of order leave spans in order", () => {
  const record = finished();
  record.browser = { dns_ns: [0, 0], connect_ns: [0, 0], tls_ns: null, request_ns: 400 * MS, first_byte_ns: 1 * MS };
  const { spans: all, end_ns } = record.timeline(0);
  all.forEach((one, n) => expect(one.start_ns).toBe(n ? all[n - 1]!.end_ns : 0));
  expect(all[all.length - 1]!.end_ns).toBe(end_ns);
});

test("what was cut off has no drain", () => {
  const stopped = new PageRecord(TRACE, 0, 0);
  stopped.headers_ns = 5 * MS;
  stopped.add(9 * MS, "content", 1);
  stopped.end_ns = 20 * MS;
  stopped.outcome = { end: "aborted", phase: null, kind: null, detail: null };
  expect(spans(stopped)).toEqual(["wait 0-5", "wait 5-9", "decode 9-20"]);
});

test("while it runs, its rows sum to now", () => {
  const record = new PageRecord(TRACE, 0, 0);
  expect(sum(record.exchange(7 * MS))).toBe(7 * MS);
  record.headers_ns = 5 * MS;
  expect(sum(record.exchange(7 * MS))).toBe(7 * MS);
  record.add(9 * MS, "content", 1);
  expect(sum(record.exchange(11 * MS))).toBe(11 * MS);
});

test("with the gateway's ledger laid over it, rows and bars still sum to the page's time", () => {
  const page = withBrowser(finished()).exchange(0);
  const rows = [row("connect", 5), row("wait", 80), row("decode", 55), row(null, 3)];
  const inner: Inner = { end_ns: 143 * MS, rows, bars: laidOut(rows) };
  const { exchange, error_ns } = overlaid(page, inner, 9 * MS, 165 * MS);
  expect(shown(exchange)).toEqual(["caller page 4", "dns page 1", "connect page 2", "connect gateway 5", "tls page 2", "wait page 6.5", "wait gateway 80",
    "decode page 5.5", "decode gateway 55", "drain page 4", "render page 5"]);
  expect(error_ns).toBe(6.5 * MS);
  expect(sum(exchange)).toBe(170 * MS);
  exchange.rows.forEach((one, n) => {
    const bars = exchange.bars.filter((bar) => bar.row === n);
    expect(bars.reduce((ns, bar) => ns + bar.end_ns - bar.start_ns, 0)).toBe(one.duration_ns);
  });
});

test("a gateway whose record is longer than the page's is cut, never negative", () => {
  const rows = [row("wait", 100), row("drain", 100)];
  const { exchange, error_ns } = overlaid(finished().exchange(0), { end_ns: 200 * MS, rows, bars: laidOut(rows) }, 0, 165 * MS);
  expect(error_ns).toBe(35 * MS);
  expect(exchange.rows.every((one) => one.duration_ns >= 0)).toBe(true);
  expect(sum(exchange)).toBe(170 * MS);
});

test("only a bounded number of events is kept, and the rest is summed", () => {
  const record = new PageRecord(TRACE, 0, 0);
  for (let n = 0; n < 10_000; n++) record.add(n * MS, "content", 2);
  record.add(10_050 * MS, "done", 6);
  expect(record.chunks.arrival_ns.length).toBe(4096);
  expect(record.chunks.beyond).toEqual({
    count: 10_001 - 4096, size_bytes: 2 * (10_000 - 4096) + 6, kinds: { content: 10_000 - 4096, done: 1 }, last_ns: 10_050 * MS, max_gap_ns: MS,
    first_token_ns: 4096 * MS, first_output_ns: 4096 * MS, last_token_ns: 9_999 * MS,
  });
  record.end_ns = 10_060 * MS;
  expect(record.exchange(0).rows.map((one) => one.phase)).toEqual(["decode", "drain"]);
});

test("what goes to the console's server is stamps, counts and names", () => {
  const record = finished();
  record.facts = { model: "m", request_id: "r1" };
  const sent = record.timeline(0);
  expect(Object.keys(sent).sort()).toEqual(["chunks", "clock", "end_ns", "facts", "outcome", "party", "spans", "started_at", "trace_id"]);
  expect(sent).toMatchObject({ trace_id: TRACE, party: "page" });
  expect(sent.spans.every((one) => one.hop === "page")).toBe(true);
});
