// <unslow-exchange>: figures, waterfall, tokens, facts and outcome of one exchange, on one shared view.
import { h } from "../core/dom.js";
import { duration, maybe, rate } from "../core/format.js";
import { changes, t, type Key } from "../core/i18n.js";
import { tokensPerSecond, type Exchange } from "../core/record.js";
import { View } from "../core/view.js";
import { headline } from "../core/words.js";
import { facts } from "./facts.js";
import "./tokens.js";
import type { Tokens } from "./tokens.js";
import "./waterfall.js";
import type { Waterfall } from "./waterfall.js";

export function figure(key: Key, value: string): HTMLElement {
  return h("div", { class: "figure" }, h("dt", { t: key }), h("dd", {}, value));
}

/** Tokens a second; in words where all of them came in one piece, which a rate cannot say. */
const speed = (m: Exchange["metrics"]): string => (m.tpot_ns === 0 ? t("m.atonce") : rate(tokensPerSecond(m)));

export function figures(shown: Exchange): HTMLElement {
  const m = shown.metrics;
  const per = m.tpot_star_ns ?? m.tpot_ns;
  const list = h("dl", { class: "figures" }, figure("m.ttft", maybe(m.ttft_ns)));
  if (m.ttfot_ns !== null && m.ttfot_ns !== m.ttft_ns) list.append(figure("m.ttfot", maybe(m.ttfot_ns)));
  list.append(figure("m.total", duration(m.e2e_ns)), figure("m.rate", speed(m)), figure("m.tpot", maybe(per || null)));
  list.append(figure("m.tokens", m.completion_tokens === null ? "–" : m.completion_tokens.toLocaleString("en")));
  return list;
}

export class ExchangeView extends HTMLElement {
  private exchange: Exchange | null = null;
  private readonly redraw = () => this.fill();

  set data(next: Exchange) {
    this.exchange = next;
    if (this.isConnected) this.fill();
  }

  connectedCallback(): void {
    changes.addEventListener("change", this.redraw);
    this.fill();
  }

  disconnectedCallback(): void {
    changes.removeEventListener("change", this.redraw);
  }

  private fill(): void {
    const shown = this.exchange;
    if (!shown) return;
    const view = new View();
    const waterfall = document.createElement("unslow-waterfall") as Waterfall;
    const tokens = document.createElement("unslow-tokens") as Tokens;
    waterfall.view = tokens.view = view;
    waterfall.data = shown;
    tokens.data = shown;
    this.replaceChildren(
      h("p", { class: `verdict ${shown.timeline.outcome.end}` }, headline(shown)), figures(shown),
      h("section", { class: "panel" }, waterfall), h("section", { class: "panel" }, tokens), h("section", { class: "panel" }, facts(shown)));
  }
}

customElements.define("unslow-exchange", ExchangeView);
