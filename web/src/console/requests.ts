// The Requests page: the last exchanges, live, and one of them in full.
import { h, icon, retranslate, s, say } from "../core/dom.js";
import { duration, maybe, share } from "../core/format.js";
import { changes, language, t } from "../core/i18n.js";
import { rowWord, phaseClass } from "../core/words.js";
import "../parts/exchange.js";
import type { ExchangeView } from "../parts/exchange.js";
import { getExchange, listExchanges, purge, readSummary, type Summary } from "./api.js";

const PAGE = 50;
const MOST_KEPT = 1000;

interface Live {
  worker: number;
  active_requests?: number;
  open_connections?: number;
  requests_total?: number;
  dropped_total?: number;
}

export class RequestsPage extends HTMLElement {
  private items: Summary[] = [];
  private next: string | null = null;
  private state: "loading" | "ready" | "failed" = "loading";
  private why = "";
  private source: EventSource | null = null;
  private readonly workers = new Map<number, Live>();
  private readonly model = h("select", { id: "filter-model", onchange: () => this.list() });
  private readonly status = h("select", { id: "filter-status", onchange: () => this.list() },
    h("option", { value: "", t: "q.all" }), h("option", { value: "ok", t: "q.ok" }), h("option", { value: "bad", t: "q.bad" }));
  private readonly min = h("input", { type: "number", id: "filter-min", min: 0, step: 100, inputmode: "numeric", oninput: () => this.list() });
  private readonly live = h("p", { class: "live", role: "status" });
  private readonly body = h("div", { class: "req-list" });
  private readonly one = h("div", { class: "req-one", hidden: true });
  private readonly all = h("div", { class: "req-all" });
  private readonly sure = h("dialog", { class: "sure" }, h("p", { t: "q.sure" }),
    h("form", { method: "dialog" }, h("button", { value: "no", class: "quiet", t: "q.no" }), h("button", { value: "yes", class: "danger", t: "q.yes" })));
  private readonly purger = h("button", { type: "button", class: "quiet purge", onclick: () => this.sure.showModal() }, icon("trash"), h("span", { t: "q.purge" }));
  private wanted: string | null = null;

  connectedCallback(): void {
    if (this.firstChild) return;
    const filter = (key: "q.model" | "q.status" | "q.min", field: HTMLElement, unit?: "q.ms") =>
      h("label", { class: "filter" }, h("span", { t: key }), unit ? h("span", { class: "with-unit" }, field, h("span", { t: unit })) : field);
    this.all.append(
      h("div", { class: "page-head" }, h("h1", { t: "q.title" }), this.live),
      h("div", { class: "filters" }, filter("q.model", this.model), filter("q.status", this.status), filter("q.min", this.min, "q.ms"),
        h("span", { class: "spring" }), this.purger),
      this.body, this.sure);
    this.append(this.all, this.one);
    this.sure.addEventListener("close", () => this.sure.returnValue === "yes" && void this.purge());
    changes.addEventListener("change", () => {
      this.list();
      this.pulse();
    });
    void this.load();
  }

  /** Live while on show, quiet else. */
  set active(on: boolean) {
    if (on && !this.source) this.listen();
    else if (!on) {
      this.source?.close();
      this.source = null;
    }
  }

  show(id: string | null): void {
    this.wanted = id;
    this.all.hidden = id !== null;
    this.one.hidden = id === null;
    if (id) void this.detail(id);
    else this.one.replaceChildren();
  }

  private async detail(id: string): Promise<void> {
    const back = h("a", { href: "#/requests", class: "back" }, icon("back"), h("span", { t: "q.back" }));
    const place = h("div", {}, h("p", { class: "notice", t: "q.loading" }));
    this.one.replaceChildren(h("div", { class: "page-head" }, back), place);
    try {
      const exchange = await getExchange(id);
      if (this.wanted !== id) return;
      const { facts, started_at } = exchange.timeline;
      const title = h("div", { class: "one-head" }, h("h1", {}, facts.model ?? t("q.title")),
        h("p", { class: "hint" }, [facts.upstream, when(started_at, true), exchange.id].filter(Boolean).join(" · ")));
      const view = document.createElement("unslow-exchange") as ExchangeView;
      view.data = exchange;
      place.replaceChildren(title, view);
    } catch (error) {
      place.replaceChildren(h("p", { class: "notice bad", role: "alert" }, (error as Error).message));
    }
  }

  private async load(before: string | null = null): Promise<void> {
    try {
      const page = await listExchanges(PAGE, before);
      const known = new Set(this.items.map((item) => item.id));
      this.items = [...this.items, ...page.items.filter((item) => !known.has(item.id))];
      this.next = page.next;
      this.state = "ready";
    } catch (error) {
      this.state = "failed";
      this.why = (error as Error).message;
    }
    this.list();
  }

  /** Take the newest page anew: after a time without events, or when the server left some out. */
  private async renew(): Promise<void> {
    const page = await listExchanges(PAGE, null).catch(() => null);
    const known = new Set(this.items.map((item) => item.id));
    const fresh = page?.items.filter((item) => !known.has(item.id)) ?? [];
    this.items = [...fresh, ...this.items].sort((a, b) => b.started_at - a.started_at).slice(0, MOST_KEPT);
    this.list();
  }

  private listen(): void {
    this.source = new EventSource("/api/events");
    this.source.addEventListener("exchange", (event) => this.arrived(readSummary(JSON.parse((event as MessageEvent<string>).data))));
    this.source.addEventListener("live", (event) => {
      const raw = JSON.parse((event as MessageEvent<string>).data) as Live | Live[] | { workers: Live[]; skipped?: number };
      if (!Array.isArray(raw) && "skipped" in raw && Number(raw.skipped) > 0) void this.renew();
      for (const one of Array.isArray(raw) ? raw : "workers" in raw ? raw.workers : [raw]) this.workers.set(one.worker ?? 0, one);
      this.pulse();
    });
    this.source.onerror = () => this.pulse();
    this.source.onopen = () => {
      this.pulse();
      if (this.state === "ready") void this.renew();
    };
    this.pulse();
  }

  private arrived(item: Summary): void {
    if (this.items.some((one) => one.id === item.id)) return;
    this.items = [item, ...this.items].slice(0, MOST_KEPT);
    if (this.state === "failed") this.state = "ready";
    this.list();
  }

  private pulse(): void {
    const sum = (key: "active_requests" | "open_connections" | "requests_total" | "dropped_total") =>
      [...this.workers.values()].reduce((total, one) => total + (one[key] ?? 0), 0);
    const on = this.source?.readyState === EventSource.OPEN;
    const part = (n: number, word: string) => h("span", {}, h("b", {}, n.toLocaleString("en")), ` ${word}`);
    this.live.replaceChildren(h("span", { class: on ? "lamp on" : "lamp" }, t(on ? "q.live" : "q.offline")),
      ...(this.workers.size ? [part(sum("active_requests"), t("q.active")), part(sum("requests_total"), t("q.served"))] : []),
      ...(sum("dropped_total") ? [part(sum("dropped_total"), t("q.dropped"))] : []));
  }

  private async purge(): Promise<void> {
    try {
      await purge();
      this.items = [];
      this.next = null;
      this.list();
    } catch (error) {
      this.body.prepend(h("p", { class: "notice bad", role: "alert" }, (error as Error).message));
    }
  }

  private fits(item: Summary): boolean {
    if (this.model.value && item.model !== this.model.value) return false;
    if (this.status.value && (this.status.value === "ok") !== (item.end === "completed" && (item.status ?? 200) < 400)) return false;
    return item.e2e_ns >= (Number(this.min.value) || 0) * 1e6;
  }

  private list(): void {
    this.options();
    this.purger.disabled = this.state === "ready" && !this.items.length;
    const found = this.items.filter((item) => this.fits(item));
    const more = this.next !== null && h("button", { type: "button", class: "quiet more", t: "q.more", onclick: () => void this.load(this.next) });
    if (this.state === "failed") {
      this.body.replaceChildren(h("p", { class: "notice bad", role: "alert" }, this.why, " ", h("button", { type: "button", class: "link", t: "e.retry", onclick: () => void this.load() })));
    } else if (this.state === "loading") this.body.replaceChildren(h("p", { class: "notice", t: "q.loading" }));
    else if (!this.items.length) this.body.replaceChildren(h("div", { class: "empty" }, h("h2", { t: "q.empty" }), h("p", { t: "q.empty2" }),
      h("div", { class: "empty-links" }, h("a", { class: "quiet", href: "#/chat", t: "nav.chat" }), h("a", { class: "quiet", href: "#/connect", t: "nav.connect" }))));
    else if (!found.length) this.body.replaceChildren(h("p", { class: "notice", t: "q.nomatch" }), more || "");
    else this.body.replaceChildren(this.table(found), more || "");
    retranslate(this.body);
  }

  private options(): void {
    const names = [...new Set(this.items.map((item) => item.model).filter((name): name is string => Boolean(name)))].sort();
    const had = [...this.model.options].slice(1).map((option) => option.value);
    if (this.model.options.length && names.join("\n") === had.join("\n")) return;
    const chosen = this.model.value;
    this.model.replaceChildren(h("option", { value: "", t: "q.all" }), ...names.map((name) => h("option", { value: name }, name)));
    this.model.value = names.includes(chosen) ? chosen : "";
  }

  private table(found: Summary[]): HTMLElement {
    const head = h("tr", {}, ...(["q.when", "q.model", "q.split", "m.ttft", "m.total", "m.tokens", "q.status"] as const).map((key, n) => {
      const cell = h("th", { scope: "col", class: n > 2 && n < 6 ? "num" : "" });
      say(cell, key);
      return cell;
    }));
    return h("table", { class: "requests" }, h("thead", {}, head), h("tbody", {}, ...found.map(line)));
  }
}

function line(item: Summary): HTMLElement {
  const href = `#/requests/${encodeURIComponent(item.id)}`;
  const tokens = item.tokens === null || item.tokens === undefined ? "–" : item.tokens.toLocaleString("en");
  return h("tr", { onclick: () => (location.hash = href) },
    h("td", { class: "c-when" }, h("a", { href, "aria-label": t("q.open", { id: item.id }) }, when(item.started_at, false))),
    h("td", { class: "c-model" }, h("span", { class: "model-name", title: item.model }, item.model ?? "–"), item.upstream ? h("small", {}, item.upstream) : ""),
    h("td", { class: "c-split" }, miniBar(item)),
    h("td", { class: "num c-ttft", "data-label": "TTFT" }, maybe(item.ttft_ns)), h("td", { class: "num c-total" }, duration(item.e2e_ns)),
    h("td", { class: "num c-tokens" }, tokens), h("td", { class: "c-status" }, badge(item)));
}

function badge(item: Summary): HTMLElement {
  const failed = item.end === "failed" || (item.status ?? 200) >= 400;
  const cls = failed ? "end-failed" : `end-${item.end}`;
  const word = item.end === "completed" ? String(item.status ?? "") : item.end === "aborted" ? t("q.stopped") : (item.kind ?? t("f.failed"));
  return h("span", { class: `badge ${cls}`, title: item.kind }, word);
}

/** The ledger as one bar: every row's share of the request's own time. How long that was stands beside it. */
function miniBar(item: Summary): HTMLElement {
  const svg = s("svg", { class: "mini", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  let x = 0;
  for (const row of item.rows) {
    const width = item.e2e_ns > 0 ? (100 * row.duration_ns) / item.e2e_ns : 0;
    svg.append(s("rect", { x: x.toFixed(3), y: 0, width: width.toFixed(3), height: 10, class: `bar ${phaseClass(row.phase)}` }));
    x += width;
  }
  const biggest = item.rows.filter((row) => row.duration_ns * 100 >= item.e2e_ns).sort((a, b) => b.duration_ns - a.duration_ns).slice(0, 3);
  const said = biggest.map((row) => h("span", { class: "key" }, h("i", { class: `dot ${phaseClass(row.phase)}` }), `${rowWord(row)} ${share(row.duration_ns, item.e2e_ns)}`));
  const all = item.rows.map((row) => `${rowWord(row)} ${duration(row.duration_ns)}`).join("\n");
  return h("div", { class: "mini-box", title: all }, svg, h("div", { class: "mini-said" }, ...said));
}

function when(seconds: number, full: boolean): string {
  const date = new Date(seconds * 1000);
  const today = new Date().toDateString() === date.toDateString();
  const style: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  if (full || !today) Object.assign(style, { day: "numeric", month: "short" });
  return date.toLocaleString(language() === "zh" ? "zh-CN" : "en-GB", style);
}

customElements.define("unslow-requests", RequestsPage);
