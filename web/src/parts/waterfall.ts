// <unslow-waterfall>: the ledger over time, one line a row.
import { h, s } from "../core/dom.js";
import { digitsOf, duration, exact, share } from "../core/format.js";
import { changes, t } from "../core/i18n.js";
import type { Bar, Exchange, Row } from "../core/record.js";
import { View } from "../core/view.js";
import { hopWord, phaseAbout, phaseClass, rowWord, sourceWord } from "../core/words.js";
import { Plot, hatch, zoomButtons } from "./plot.js";

const ROW = 28;
const ROW_DENSE = 22;
const TOP = 24;
const MARKS = 32;

export class Waterfall extends HTMLElement {
  view = new View();
  private exchange: Exchange | null = null;
  private plot: Plot | null = null;
  private readonly labels = h("div", { class: "wf-labels" });
  private readonly times = h("div", { class: "wf-times", "aria-hidden": "true" });
  private readonly tableBox = h("details", { class: "fallback", ontoggle: () => this.table() });
  private drawnRows = "";
  private readonly relabel = () => {
    this.drawnRows = "";
    this.shell();
    this.refresh();
  };

  set data(next: Exchange) {
    this.exchange = next;
    this.view.grow(next.timeline.end_ns); // redraws through the view's change
    if (this.isConnected) this.refresh();
  }

  connectedCallback(): void {
    this.shell();
    changes.addEventListener("change", this.relabel);
    this.refresh();
  }

  disconnectedCallback(): void {
    this.plot?.disconnect();
    this.plot = null;
    changes.removeEventListener("change", this.relabel);
  }

  private get row(): number {
    return this.hasAttribute("dense") ? ROW_DENSE : ROW;
  }

  private shell(): void {
    this.plot?.disconnect();
    const plot = new Plot(this.view, () => this.draw());
    this.plot = plot;
    plot.box.addEventListener("pointermove", (event) => this.hover(event));
    plot.box.addEventListener("pointerleave", () => plot.hush());
    const body = h("div", { class: "wf-body", role: "group", tabindex: 0, "t-aria-label": "w.keys", onkeydown: (e: KeyboardEvent) => plot.key(e) },
      this.labels, plot.box, this.times);
    this.tableBox.replaceChildren(h("summary", { t: "w.table" }));
    this.replaceChildren(
      h("div", { class: "part-head" }, h("h3", { t: "w.title" }), zoomButtons(this.view)),
      body,
      h("div", { class: "wf-foot" }, this.legend(), h("span", { class: "hint", t: "w.hint" })),
      this.tableBox, plot.tip);
    plot.connect();
  }

  private legend(): HTMLElement {
    const entry = (cls: string, key: "w.solid" | "w.hatched" | "w.dim") =>
      h("span", { class: "key" }, h("i", { class: `swatch ${cls}` }), h("span", { t: key }));
    const rows = this.exchange?.rows ?? [];
    return h("span", { class: "legend" },
      entry("", "w.solid"),
      rows.some((row) => row.source && row.source !== "measured") && entry("hatched", "w.hatched"),
      rows.some((row) => !row.won) && entry("dim", "w.dim"));
  }

  private refresh(): void {
    if (!this.exchange || !this.plot) return;
    this.rows(this.exchange);
    this.querySelector(".legend")?.replaceWith(this.legend());
    this.draw();
    this.table();
  }

  /** Labels and durations beside the plot; labels are rebuilt only when the rows are other ones. */
  private rows(shown: Exchange): void {
    const key = shown.rows.map((r) => `${r.phase}/${r.hop}/${r.attempt}/${r.source}`).join();
    if (key !== this.drawnRows) {
      this.drawnRows = key;
      this.labels.replaceChildren(...shown.rows.map((row, n) => this.label(row, n)));
    }
    const total = shown.timeline.end_ns;
    this.times.replaceChildren(...shown.rows.map((row) =>
      h("div", { class: row.won ? "wf-time" : "wf-time lost" }, h("b", {}, duration(row.duration_ns)), h("small", {}, share(row.duration_ns, total)))));
  }

  private label(row: Row, n: number): HTMLElement {
    const show = (event: Event) => {
      const rect = (event.currentTarget as HTMLElement).getBoundingClientRect();
      this.tell(n, null, rect.left + 24, rect.bottom - 12);
      this.plot?.svg.querySelectorAll(".bar").forEach((bar) => bar.classList.toggle("on", bar.getAttribute("data-row") === String(n)));
    };
    const hide = () => {
      this.plot?.hush();
      this.plot?.svg.querySelectorAll(".bar.on").forEach((bar) => bar.classList.remove("on"));
    };
    const alike = (this.exchange?.rows ?? []).filter((one) => one.phase === row.phase).length > 1;
    const cls = ["wf-label", row.won ? "" : "lost", alike ? "alike" : ""].filter(Boolean).join(" ");
    return h("button", { type: "button", class: cls, onfocus: show, onblur: hide, onmouseenter: show, onmouseleave: hide, onclick: () => this.zoomTo(n) },
      h("i", { class: `dot ${phaseClass(row.phase)}` }), h("span", { class: "wf-word" }, rowWord(row)),
      row.hop && hopWord(row) !== rowWord(row) ? h("small", {}, hopWord(row)) : "");
  }

  /** Zoom to where a row has its time; all of it again when it is already on show. */
  private zoomTo(n: number): void {
    const bars = this.exchange?.bars.filter((bar) => bar.row === n) ?? [];
    if (!bars.length) return;
    const start = Math.min(...bars.map((bar) => bar.start_ns));
    const end = Math.max(...bars.map((bar) => bar.end_ns));
    const room = (end - start) * 0.1;
    const [from, to] = [this.view.start, this.view.end];
    this.view.show(start - room, end + room);
    if (this.view.start === from && this.view.end === to) this.view.reset();
  }

  private draw(): void {
    const { plot, exchange } = this;
    if (!plot || !exchange) return;
    const height = TOP + exchange.rows.length * this.row + MARKS;
    plot.fresh(height);
    plot.svg.append(hatch(`${plot.id}h`));
    plot.axis(TOP, height - MARKS);
    const bars = s("g");
    for (const bar of exchange.bars) bars.append(...this.bar(bar, exchange, plot));
    plot.svg.append(bars);
    this.marks(exchange, plot, height);
    this.querySelector(".zoom")?.classList.toggle("active", this.view.zoomed);
  }

  private bar(bar: Bar, shown: Exchange, plot: Plot): SVGElement[] {
    const row = shown.rows[bar.row];
    if (!row || bar.end_ns < this.view.start || bar.start_ns > this.view.end) return [];
    const left = Math.max(-4, plot.x(bar.start_ns));
    const right = Math.min(plot.width + 4, plot.x(bar.end_ns));
    const width = Math.max(1.5, right - left);
    const at = { x: left.toFixed(2), y: TOP + bar.row * this.row + 5, width: width.toFixed(2), height: this.row - 10, rx: Math.min(2.5, width / 2) };
    const cls = `bar ${phaseClass(row.phase)}${row.won ? "" : " lost"}`;
    const solid = s("rect", { ...at, class: cls, "data-row": bar.row });
    if (row.source === "measured" || row.source === null) return [solid];
    return [solid, s("rect", { ...at, fill: `url(#${plot.id}h)`, class: "over" })];
  }

  private marks(shown: Exchange, plot: Plot, height: number): void {
    const { ttft_ns, ttfot_ns } = shown.metrics;
    const found = ([["TTFB", "ttfb_ns"], ["TTFT", "ttft_ns"], ["TTFOT", "ttfot_ns"]] as const)
      .filter(([name]) => name !== "TTFOT" || ttfot_ns !== ttft_ns) // named where it tells something new
      .map(([name, key]) => ({ name, at: shown.metrics[key] }))
      .filter((m): m is { name: "TTFB" | "TTFT" | "TTFOT"; at: number } => m.at !== null && m.at >= this.view.start && m.at <= this.view.end);
    const merged: { names: string[]; x: number }[] = [];
    for (const { name, at } of found) {
      const last = merged[merged.length - 1];
      if (last && plot.x(at) - last.x < 42) last.names.push(name);
      else merged.push({ names: [name], x: plot.x(at) });
      plot.svg.append(s("path", { class: "moment", d: `M${plot.x(at).toFixed(1)} ${TOP}V${height - MARKS + 4}` }));
    }
    const taken = [-Infinity, -Infinity];
    for (const { names, x } of merged) {
      const label = names.join(" · ");
      const half = label.length * 3.7;
      const middle = Math.min(plot.width - half, Math.max(half, x));
      const line = (taken[0] ?? 0) < middle - half - 4 ? 0 : 1;
      taken[line] = middle + half;
      plot.svg.append(s("text", { class: "moment-word", x: middle, y: height - MARKS + 15 + line * 13, "text-anchor": "middle" }, label));
    }
  }

  private hover(event: PointerEvent): void {
    const { plot, exchange } = this;
    if (!plot || !exchange || event.buttons > 0) return;
    const rect = plot.box.getBoundingClientRect();
    const n = Math.floor((event.clientY - rect.top - TOP) / this.row);
    if (n < 0 || n >= exchange.rows.length) return plot.hush();
    const at = plot.at(event.clientX - rect.left);
    const slack = (this.view.span / plot.width) * 4;
    const bar = exchange.bars.find((b) => b.row === n && b.start_ns - slack <= at && at <= b.end_ns + slack) ?? null;
    if (bar) this.tell(n, bar, event.clientX, event.clientY);
    else plot.hush();
  }

  private tell(n: number, bar: Bar | null, x: number, y: number): void {
    const row = this.exchange?.rows[n];
    if (!row || !this.plot || !this.exchange) return;
    const lines: [string, string][] = [
      [t("w.time"), exact(row.duration_ns)],
      [t("w.share"), share(row.duration_ns, this.exchange.timeline.end_ns)],
      [t("w.hop"), hopWord(row)],
      [t("w.source"), sourceWord(row)],
    ];
    if (bar) lines.push(["", ""], [duration(bar.end_ns - bar.start_ns), `${exact(bar.start_ns)} → ${exact(bar.end_ns)}`]);
    this.plot.tell(lines, rowWord(row), x, y, phaseAbout(row));
  }

  private table(): void {
    if (!this.tableBox.open || !this.exchange) return;
    const total = this.exchange.timeline.end_ns;
    const digits = digitsOf([total, ...this.exchange.rows.map((row) => row.duration_ns)]);
    const head = h("tr", {}, ...(["w.phase", "w.hop", "w.source", "w.time", "w.share"] as const).map((key, n) => h("th", { scope: "col", class: n > 2 ? "num" : "", t: key })));
    const lines = this.exchange.rows.map((row) => h("tr", {}, h("th", { scope: "row" }, rowWord(row)), h("td", {}, hopWord(row)), h("td", {}, sourceWord(row)),
      h("td", { class: "num" }, exact(row.duration_ns, digits)), h("td", { class: "num" }, share(row.duration_ns, total))));
    const foot = h("tr", {}, h("th", { scope: "row", colspan: 3, t: "w.sum" }), h("td", { class: "num" }, exact(total, digits)), h("td", { class: "num" }, "100%"));
    this.tableBox.querySelector("table")?.remove();
    this.tableBox.append(h("table", {}, h("thead", {}, head), h("tbody", {}, ...lines), h("tfoot", {}, foot)));
  }
}

customElements.define("unslow-waterfall", Waterfall);
