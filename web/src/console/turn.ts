// <unslow-turn>: one question, its answer, and the answer's time beside it.
import { h, icon, say } from "../core/dom.js";
import { duration, maybe, rate } from "../core/format.js";
import { changes, t } from "../core/i18n.js";
import { MarkdownSink, copyButton } from "../core/markdown.js";
import { laidOut, overlaid } from "../core/page.js";
import { tokensPerSecond, type Exchange } from "../core/record.js";
import { View } from "../core/view.js";
import { headline } from "../core/words.js";
import { figure } from "../parts/exchange.js";
import "../parts/tokens.js";
import type { Tokens } from "../parts/tokens.js";
import "../parts/waterfall.js";
import type { Waterfall } from "../parts/waterfall.js";
import { Answer, type Message } from "./answer.js";
import { addTimeline, getExchange } from "./api.js";

const FRAME_BUDGET_MS = 8;
const DRAW_EVERY_MS = 120;
const HISTORY_TRIES = 6;

export class Turn extends HTMLElement {
  text = "";
  answer: Answer | null = null;
  /** The stream is over: the next message can go out, whatever is still drawn here. */
  onover: () => void = () => undefined;
  /** Somebody wants the same question asked again. */
  onretry: () => void = () => undefined;
  private shown: Exchange | null = null;
  private readonly words = h("div", { class: "answer md" });
  private readonly thoughts = h("details", { class: "thoughts", hidden: true }, h("summary", { t: "c.thinking" }));
  private readonly thoughtText = document.createTextNode("");
  private readonly state = h("p", { class: "waiting", role: "status", t: "c.waiting" });
  private readonly foot = h("div", { class: "reply-foot" });
  private readonly figures = h("dl", { class: "figures" });
  private readonly verdict = h("p", { class: "side-verdict" });
  private readonly note = h("p", { class: "hint" });
  private readonly open = h("a", { class: "side-open", hidden: true }, h("span", { t: "c.open" }), icon("next"));
  private readonly waterfall = document.createElement("unslow-waterfall") as Waterfall;
  private readonly tokens = document.createElement("unslow-tokens") as Tokens;
  private readonly sink = new MarkdownSink(this.words, copyButton);
  private frame = 0;
  private drawn_at = 0;
  private joined_ns: number | null = null;
  private thoughtQueue = "";
  private settled: (() => void) | null = null;
  private readonly relabel = () => {
    this.figure();
    this.told();
  };

  build(question: string): void {
    this.waterfall.view = this.tokens.view = new View();
    for (const plot of [this.waterfall, this.tokens]) plot.toggleAttribute("dense", true);
    this.thoughts.append(h("div", { class: "thought-text" }, this.thoughtText));
    const side = h("details", { class: "side", open: true }, h("summary", { t: "c.details" }), this.figures, this.verdict, this.waterfall, this.tokens,
      h("div", { class: "side-foot" }, this.note, this.open));
    this.append(
      h("div", { class: "question" }, h("span", { class: "who", t: "c.you" }), h("p", {}, question)),
      h("div", { class: "reply-text" }, this.thoughts, this.words, this.state, this.foot), side);
    this.tokens.toggleAttribute("live", true);
    say(this.note, "c.live");
  }

  connectedCallback(): void {
    changes.addEventListener("change", this.relabel);
  }

  disconnectedCallback(): void {
    changes.removeEventListener("change", this.relabel);
    cancelAnimationFrame(this.frame);
  }

  /** Stream one answer; resolves when it is complete, shown, drawn and joined with what the others saw. */
  async run(gateway: string, model: string, messages: Message[], key: string): Promise<void> {
    const answer = new Answer(gateway, {
      text: (piece) => {
        this.text += piece;
        this.sink.push(piece);
      },
      reasoning: (piece) => {
        this.thoughtQueue += piece;
      },
      over: () => this.onover(),
    });
    this.answer = answer;
    this.tick();
    await answer.run(model, messages, key);
    this.sink.end();
    await this.painted();
    answer.settle();
    this.close(answer);
    await this.joinHistory(answer);
  }

  /** Once per frame: text within its budget, drawing ten times a second. */
  private tick(): void {
    this.frame = requestAnimationFrame(() => {
      const answer = this.answer;
      if (!answer) return;
      const start = performance.now();
      if (this.thoughtQueue) this.think();
      const all = this.sink.pump(start + FRAME_BUDGET_MS);
      if (this.text && !this.state.hidden) this.state.hidden = true;
      if (all && this.settled) return this.settled();
      if (start - this.drawn_at > DRAW_EVERY_MS && answer.record.end_ns === null) {
        this.drawn_at = start;
        this.show(answer.record.exchange(answer.now_ns));
      }
      this.tick();
    });
  }

  /** Resolves when all text is in the document and a frame with it was painted (at once in a hidden tab). */
  private painted(): Promise<void> {
    if (document.hidden) return Promise.resolve();
    return new Promise((resolve) => {
      const hidden = () => document.hidden && resolve();
      document.addEventListener("visibilitychange", hidden, { once: true });
      this.settled = () => {
        document.removeEventListener("visibilitychange", hidden);
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = () => {
          if (this.answer && !document.hidden && this.checkVisibility()) this.answer.record.painted_ns = this.answer.now_ns;
          port1.close();
          resolve();
        };
        port2.postMessage(null);
      };
    });
  }

  private close(answer: Answer): void {
    if (!this.settled || document.hidden) this.catchUp();
    this.settled = null;
    this.ended(answer);
    const page = answer.record.exchange(answer.now_ns);
    const { ledger, record } = answer;
    if (!ledger) {
      this.show(page);
      return say(this.note, "c.pageonly");
    }
    const inner = { end_ns: ledger.end_ns, rows: ledger.rows, bars: laidOut(ledger.rows) };
    const { exchange, error_ns } = overlaid(page, inner, record.browser?.request_ns ?? 0, record.end_ns ?? ledger.end_ns);
    this.joined(exchange, error_ns);
  }

  /** How it ended, below the text. */
  private ended(answer: Answer): void {
    this.state.hidden = true;
    this.tokens.removeAttribute("live");
    const said = (key: "c.stopped" | "c.empty" | "c.limit") => h("span", { class: "hint", t: key });
    const { facts, outcome } = answer.record;
    if (answer.error) {
      const retry = h("button", { type: "button", class: "link", t: "e.retry", onclick: () => this.onretry() });
      this.state.replaceWith(h("p", { class: "notice bad", role: "alert" }, answer.error, " ", retry));
    }
    if (this.text.trim()) this.foot.append(copyButton(() => this.text));
    if (outcome.end === "aborted") this.foot.append(said("c.stopped"));
    else if (!answer.error && facts["finish_reason"] === "length") this.foot.append(said("c.limit"));
    else if (!answer.error && !this.text.trim()) this.foot.append(said("c.empty"));
  }

  private catchUp(): void {
    cancelAnimationFrame(this.frame);
    while (!this.sink.pump(performance.now() + FRAME_BUDGET_MS));
    this.think();
  }

  private think(): void {
    if (this.thoughtQueue) this.thoughts.hidden = false;
    this.thoughtText.appendData(this.thoughtQueue);
    this.thoughtQueue = "";
  }

  /** Give the console's server what this page saw, and show what it makes of that, the gateway's and the engine's
   * records. It has theirs a moment after the stream's end; until then the comment's ledger stands. */
  private async joinHistory(answer: Answer): Promise<void> {
    const id = answer.record.facts.request_id;
    if (!id) return;
    await addTimeline(answer.record.timeline(answer.now_ns)).catch(() => undefined); // history off, or a session that ended
    for (let n = 0; n < HISTORY_TRIES; n++) {
      await new Promise((resolve) => setTimeout(resolve, 150 * 2 ** n));
      const found = await getExchange(id).catch(() => null);
      const clocks = found?.timeline.clocks ?? [];
      if (!found || found.timeline.party !== "page" || !clocks.length) continue;
      this.open.href = `#/requests/${encodeURIComponent(id)}`;
      this.open.hidden = false;
      return this.joined(found, Math.max(...clocks.map((clock) => clock.error_ns ?? 0)));
    }
  }

  private joined(exchange: Exchange, error_ns: number): void {
    this.joined_ns = error_ns;
    this.note.removeAttribute("data-t");
    this.told();
    this.show(exchange);
  }

  private told(): void {
    if (this.joined_ns !== null) this.note.textContent = t("c.joined", { error: duration(this.joined_ns) });
  }

  private show(exchange: Exchange): void {
    this.shown = exchange;
    this.waterfall.data = exchange;
    this.tokens.data = exchange;
    this.figure();
  }

  private figure(): void {
    const shown = this.shown;
    if (!shown) return;
    const m = shown.metrics;
    this.figures.replaceChildren(figure("m.ttft", maybe(m.ttft_ns)), figure("m.rate", this.speed(shown)), figure("m.total", duration(m.e2e_ns)));
    this.verdict.textContent = this.answer?.record.end_ns === null ? "" : headline(shown);
  }

  /** While no usage has come, events stand for tokens: close, and marked so. */
  private speed(shown: Exchange): string {
    const known = tokensPerSecond(shown.metrics);
    if (known !== null) return rate(known);
    const median = shown.metrics.icl_p50_ns;
    const { ttft_ns } = shown.metrics;
    const stamps = shown.timeline.chunks.arrival_ns;
    const last = stamps[stamps.length - 1];
    if (median === null || ttft_ns === null || last === undefined || last <= ttft_ns) return "–";
    return `≈ ${rate((stamps.length - 1) / ((last - ttft_ns) / 1e9))}`;
  }
}

customElements.define("unslow-turn", Turn);
