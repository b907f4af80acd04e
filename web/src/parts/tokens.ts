// <unslow-tokens>: every stream event at its arrival, the gaps between tokens below.
import { h, s } from "../core/dom.js";
import { bytes, digitsOf, duration, exact } from "../core/format.js";
import { gaps, nearest, quantile, type Gap } from "../core/gaps.js";
import { changes, t, type Key } from "../core/i18n.js";
import type { Chunks, ChunkKind, Exchange } from "../core/record.js";
import { carriesTokens } from "../core/record.js";
import { View } from "../core/view.js";
import { Plot } from "./plot.js";

const TOP = 24;
const TICK = 26;
const GAP_TOP = TOP + TICK + 12;
const GAP_HEIGHT = 64;
const HEIGHT = GAP_TOP + GAP_HEIGHT + 4;
const MOST_LINES = 500;

export class Tokens extends HTMLElement {
  view = new View();
  private exchange: Exchange | null = null;
  private gaps: Gap[] = [];
  private plot: Plot | null = null;
  private picked = -1;
  private readonly levels = h("div", { class: "tk-levels", "aria-hidden": "true" });
  private readonly tableBox = h("details", { class: "fallback", ontoggle: () => this.table() });
  private readonly relabel = () => this.shell();

  set data(next: Exchange) {
    this.exchange = next;
    this.gaps = gaps(next.timeline.chunks);
    if (this.view.total !== Math.max(1, next.timeline.end_ns)) this.view.grow(next.timeline.end_ns);
    if (this.isConnected) this.refresh();
  }

  connectedCallback(): void {
    this.shell();
    changes.addEventListener("change", this.relabel);
  }

  disconnectedCallback(): void {
    this.plot?.disconnect();
    this.plot = null;
    changes.removeEventListener("change", this.relabel);
  }

  private shell(): void {
    this.plot?.disconnect();
    const plot = new Plot(this.view, () => this.draw());
    this.plot = plot;
    plot.box.addEventListener("pointermove", (event) => this.hover(event));
    plot.box.addEventListener("pointerleave", () => plot.hush());
    const body = h("div", { class: "tk-body", role: "group", tabindex: 0, "t-aria-label": "k.keys",
      onkeydown: (e: KeyboardEvent) => this.step(e) || plot.key(e), onblur: () => plot.hush() },
      h("div", { class: "tk-lanes", "aria-hidden": "true" }, h("span", { t: "k.arrivals" }), h("span", { t: "k.gaps" })), plot.box, this.levels);
    this.tableBox.replaceChildren(h("summary", { t: "k.table" }));
    this.replaceChildren(
      h("div", { class: "part-head" }, h("h3", { t: "k.title" }), h("div", { class: "tk-figures" })),
      body, h("p", { class: "tk-none", t: "k.none", hidden: true }), h("div", { class: "legend" }), this.tableBox, plot.tip);
    plot.connect();
    this.refresh();
  }

  private refresh(): void {
    const chunks = this.exchange?.timeline.chunks;
    if (!chunks || !this.plot) return;
    const some = chunks.arrival_ns.length > 0 || this.hasAttribute("live");
    for (const [selector, hidden] of [[".tk-body", !some], [".tk-none", some], [".legend", !some]] as const) {
      const node = this.querySelector<HTMLElement>(selector);
      if (node) node.hidden = hidden;
    }
    this.tableBox.hidden = !chunks.arrival_ns.length;
    this.figures(chunks);
    this.querySelector(".legend")?.replaceChildren(...this.legend(chunks));
    this.draw();
    this.table();
  }

  private figures(chunks: Chunks): void {
    const widths = this.gaps.map((gap) => gap.end_ns - gap.start_ns);
    const max = Math.max(chunks.beyond?.max_gap_ns ?? 0, widths.reduce((a, b) => Math.max(a, b), 0));
    const figure = (key: Key, ns: number | null) => h("span", { class: "figure-inline" }, h("small", {}, t(key)), h("b", {}, ns === null ? "–" : duration(ns)));
    this.querySelector(".tk-figures")?.replaceChildren(...(widths.length
      ? [figure("k.p50", quantile(widths, 0.5)), figure("k.p95", quantile(widths, 0.95)), figure("k.max", max)] : []));
  }

  private legend(chunks: Chunks): HTMLElement[] {
    const counts = new Map<ChunkKind, number>();
    for (const kind of chunks.kind) counts.set(kind, (counts.get(kind) ?? 0) + 1);
    const keys = [...counts].map(([kind, n]) =>
      h("span", { class: "key" }, h("i", { class: `swatch k-${kind}` }), `${t(`kind.${kind}` as Key)} ${n}`));
    if (chunks.beyond) keys.push(h("span", { class: "key" }, t("k.beyond", { n: chunks.beyond.count })));
    return keys;
  }

  private draw(): void {
    const { plot, exchange } = this;
    if (!plot || !exchange) return;
    const { chunks } = exchange.timeline;
    plot.fresh(HEIGHT);
    plot.axis(TOP, HEIGHT - 2);
    this.drawGaps(plot);
    const paths = new Map<ChunkKind, string[]>();
    const errors: string[] = [];
    chunks.arrival_ns.forEach((at, n) => {
      if (at < this.view.start || at > this.view.end) return;
      const kind = chunks.kind[n] ?? "content";
      const x = plot.x(at);
      const tall = carriesTokens(kind) ? TICK : TICK * 0.6;
      let path = paths.get(kind);
      if (!path) paths.set(kind, (path = []));
      path.push(`M${x.toFixed(1)} ${TOP + TICK + 4 - tall}v${tall}`);
      const error = chunks.error_ns[n] ?? 0;
      const width = (error / this.view.span) * plot.width;
      if (width >= 1.5) errors.push(`M${(x - width).toFixed(1)} ${TOP + TICK + 7}h${(2 * width).toFixed(1)}m0 -2v4m${(-2 * width).toFixed(1)} 0v-4`);
    });
    for (const [kind, d] of paths) plot.svg.append(s("path", { class: `tick k-${kind}`, d: d.join("") }));
    if (errors.length) plot.svg.append(s("path", { class: "error-bar", d: errors.join("") }));
    this.drawPicked(plot, chunks);
  }

  private drawGaps(plot: Plot): void {
    const widths = this.gaps.map((gap) => gap.end_ns - gap.start_ns);
    const max = widths.reduce((a, b) => Math.max(a, b), 1);
    const p95 = quantile(widths, 0.95) ?? 0;
    const floor = GAP_TOP + GAP_HEIGHT;
    const normal: string[] = [];
    const wide: string[] = [];
    for (const gap of this.gaps) {
      if (gap.end_ns < this.view.start || gap.start_ns > this.view.end) continue;
      const ns = gap.end_ns - gap.start_ns;
      const left = plot.x(gap.start_ns);
      const width = Math.max(0.6, plot.x(gap.end_ns) - left - (plot.x(gap.end_ns) - left > 3 ? 1 : 0));
      const tall = Math.max(1, (ns / max) * GAP_HEIGHT);
      (ns > p95 ? wide : normal).push(`M${left.toFixed(1)} ${floor}v${(-tall).toFixed(1)}h${width.toFixed(1)}v${tall.toFixed(1)}z`);
    }
    plot.svg.append(s("path", { class: "gap", d: normal.join("") }), s("path", { class: "gap wide", d: wide.join("") }));
    this.drawLevels(plot, floor, max, [["p50", quantile(widths, 0.5)], ["p95", quantile(widths, 0.95)]]);
  }

  /** Where the usual gaps end: a line, and its name beside the plot. Two lines too close for two names share one. */
  private drawLevels(plot: Plot, floor: number, max: number, levels: [string, number | null][]): void {
    const words: { name: string; y: number }[] = [];
    for (const [name, at] of levels) {
      if (at === null) continue;
      const y = Math.round(floor - (at / max) * GAP_HEIGHT) + 0.5;
      plot.svg.append(s("path", { class: "level", d: `M0 ${y}H${plot.width}` }));
      const last = words[words.length - 1];
      if (last && Math.abs(last.y - y) < 12) last.name += ` · ${name}`;
      else words.push({ name, y });
    }
    this.levels.replaceChildren(...words.map(({ name, y }) => {
      const word = h("span", {}, name);
      word.style.top = `${Math.min(y, floor - 6) - 8}px`;
      return word;
    }));
  }

  private drawPicked(plot: Plot, chunks: Chunks): void {
    const at = chunks.arrival_ns[this.picked];
    if (at === undefined) return;
    const x = plot.x(at).toFixed(1);
    plot.svg.append(s("path", { class: "picked", d: `M${x} ${TOP}V${HEIGHT}` }));
  }

  private step(event: KeyboardEvent): boolean {
    const by = event.key === "." ? 1 : event.key === "," ? -1 : 0;
    const chunks = this.exchange?.timeline.chunks;
    if (!by || !chunks || !this.plot || event.ctrlKey || event.metaKey) return false;
    this.picked = Math.min(chunks.arrival_ns.length - 1, Math.max(0, this.picked + by));
    const at = chunks.arrival_ns[this.picked] ?? 0;
    if (at < this.view.start || at > this.view.end) this.view.show(at - this.view.span / 2, at + this.view.span / 2);
    this.draw();
    const rect = this.plot.box.getBoundingClientRect();
    this.tell(this.picked, rect.left + this.plot.x(at), rect.top + TOP + TICK);
    event.preventDefault();
    return true;
  }

  private hover(event: PointerEvent): void {
    const { plot, exchange } = this;
    if (!plot || !exchange || event.buttons > 0) return;
    const x = event.clientX - plot.box.getBoundingClientRect().left;
    const n = nearest(exchange.timeline.chunks.arrival_ns, plot.at(x));
    const at = exchange.timeline.chunks.arrival_ns[n];
    if (at === undefined || Math.abs(plot.x(at) - x) > 24) return plot.hush();
    if (n !== this.picked) {
      this.picked = n;
      this.draw();
    }
    this.tell(n, event.clientX, event.clientY);
  }

  private tell(n: number, x: number, y: number): void {
    const chunks = this.exchange?.timeline.chunks;
    if (!chunks || !this.plot) return;
    const error = chunks.error_ns[n];
    this.plot.tell([
      [t("k.at"), exact(chunks.arrival_ns[n] ?? 0) + (error ? ` ± ${exact(error)}` : "")],
      [t("k.gap"), n > 0 ? exact((chunks.arrival_ns[n] ?? 0) - (chunks.arrival_ns[n - 1] ?? 0)) : ""],
      [t("m.tokens"), chunks.tokens[n] == null ? "" : String(chunks.tokens[n])],
      [t("k.size"), bytes(chunks.size_bytes[n] ?? 0)],
    ], `${n + 1} · ${t(`kind.${chunks.kind[n] ?? "content"}` as Key)}`, x, y);
  }

  private table(): void {
    const chunks = this.exchange?.timeline.chunks;
    if (!this.tableBox.open || !chunks) return;
    const head = h("tr", {}, ...(["k.event", "k.kind", "k.at", "k.error", "k.gap", "k.size"] as const).map((key, n) => h("th", { scope: "col", class: n > 1 ? "num" : "", t: key })));
    const digits = digitsOf([...chunks.arrival_ns, ...chunks.error_ns]);
    const lines = chunks.arrival_ns.slice(0, MOST_LINES).map((at, n) => h("tr", {},
      h("th", { scope: "row" }, String(n + 1)), h("td", {}, t(`kind.${chunks.kind[n] ?? "content"}` as Key)), h("td", { class: "num" }, exact(at, digits)),
      h("td", { class: "num" }, chunks.error_ns[n] ? `± ${exact(chunks.error_ns[n] ?? 0, digits)}` : ""),
      h("td", { class: "num" }, n ? exact(at - (chunks.arrival_ns[n - 1] ?? 0), digits) : ""), h("td", { class: "num" }, bytes(chunks.size_bytes[n] ?? 0))));
    this.tableBox.querySelectorAll("table, p").forEach((node) => node.remove());
    this.tableBox.append(h("table", {}, h("thead", {}, head), h("tbody", {}, ...lines)));
    if (chunks.arrival_ns.length > MOST_LINES) this.tableBox.append(h("p", { class: "hint" }, t("k.shown", { n: MOST_LINES })));
  }
}

customElements.define("unslow-tokens", Tokens);
