// <unslow-turn>: one question, its answer, and the answer's time beside it.
import { h, say } from "../core/dom.js";
import { duration, maybe, rate } from "../core/format.js";
import { changes, t } from "../core/i18n.js";
import { MarkdownSink, copyButton } from "../core/markdown.js";
import { joined, laidOut } from "../core/page.js";
import { tokensPerSecond, type Exchange } from "../core/record.js";
import { View } from "../core/view.js";
import { headline } from "../core/words.js";
import { figure } from "../parts/exchange.js";
import "../parts/tokens.js";
import type { Tokens } from "../parts/tokens.js";
import "../parts/waterfall.js";
import type { Waterfall } from "../parts/waterfall.js";
import { Answer, type Message } from "./answer.js";
import { getExchange } from "./api.js";

const FRAME_BUDGET_MS = 8;
const DRAW_EVERY_MS = 120;
const HISTORY_TRIES = 6;

export class Turn extends HTMLElement {
  text = "";
  answer: Answer | null = null;
  private shown: Exchange | null = null;
  private readonly words = h("div", { class: "answer md" });
  private readonly thoughts = h("details", { class: "thoughts", hidden: true }, h("summary", { t: "c.thinking" }));
  private readonly thoughtText = document.createTextNode("");
  private readonly state = h("p", { class: "waiting", role: "status", t: "c.waiting" });
  private readonly figures = h("dl", { class: "figures" });
  private readonly verdict = h("p", { class: "side-verdict" });
  private readonly note = h("p", { class: "hint" });
  private readonly waterfall = document.createElement("unslow-waterfall") as Waterfall;
  private readonly tokens = document.createElement("unslow-tokens") as Tokens;
  private readonly sink = new MarkdownSink(this.words, (text) => copyButton(text, { idle: t("x.copy"), done: t("x.copied") }));
  private frame = 0;
  private drawn_at = 0;
  private thoughtQueue = "";
  private settled: (() => void) | null = null;
  private readonly relabel = () => this.figure();

  build(question: string): void {
    const view = new View();
    this.waterfall.view = this.tokens.view = view;
    this.thoughts.append(h("div", { class: "thought-text" }, this.thoughtText));
    const side = h("details", { class: "side", open: true }, h("summary", { t: "c.details" }), this.figures, this.verdict, this.waterfall, this.tokens, this.note);
    this.append(
      h("div", { class: "question" }, h("span", { class: "who", t: "c.you" }), h("p", {}, question)),
      h("div", { class: "reply" }, h("div", { class: "reply-text" }, this.thoughts, this.words, this.state), side));
    say(this.note, "c.live");
  }

  connectedCallback(): void {
    changes.addEventListener("change", this.relabel);
  }

  disconnectedCallback(): void {
    changes.removeEventListener("change", this.relabel);
    cancelAnimationFrame(this.frame);
  }

  /** Stream one answer; resolves when it is complete, shown and drawn. */
  async run(gateway: string, model: string, messages: Message[], key: string): Promise<void> {
    const answer = new Answer(gateway, {
      text: (piece) => {
        this.text += piece;
        this.sink.push(piece);
      },
      reasoning: (piece) => {
        this.thoughtQueue += piece;
      },
    });
    this.answer = answer;
    this.tick();
    await answer.run(model, messages, key);
    this.sink.end();
    await this.painted();
    this.close(answer);
    await this.joinHistory(answer);
  }

  /** Once per frame: text within its budget, drawing ten times a second. */
  private tick(): void {
    this.frame = requestAnimationFrame(() => {
      const answer = this.answer;
      if (!answer) return;
      const start = performance.now();
      if (this.thoughtQueue) {
        this.thoughts.hidden = false;
        this.thoughtText.appendData(this.thoughtQueue);
        this.thoughtQueue = "";
      }
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
          if (this.answer && !document.hidden) this.answer.record.painted_ns = this.answer.now_ns;
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
    const { end } = answer.record.outcome;
    this.state.hidden = true;
    if (answer.error) {
      this.state.replaceWith(h("p", { class: "notice bad", role: "alert" }, answer.error));
    } else if (end === "aborted") {
      this.state.replaceWith(h("p", { class: "hint", t: "c.stopped" }));
    } else if (!this.text.trim()) {
      this.state.replaceWith(h("p", { class: "hint", t: "c.empty" }));
    }
    const page = answer.record.exchange(answer.now_ns);
    if (answer.ledger) this.join(page, answer, answer.ledger.end_ns, answer.ledger.rows, laidOut(answer.ledger.rows));
    else {
      this.show(page);
      say(this.note, "c.pageonly");
    }
  }

  private catchUp(): void {
    cancelAnimationFrame(this.frame);
    while (!this.sink.pump(performance.now() + FRAME_BUDGET_MS));
    if (this.thoughtQueue) this.thoughts.hidden = false;
    this.thoughtText.appendData(this.thoughtQueue);
    this.thoughtQueue = "";
  }

  private join(page: Exchange, answer: Answer, end_ns: number, rows: Exchange["rows"], bars: Exchange["bars"]): void {
    const { exchange, error_ns } = joined(page, { end_ns, rows, bars }, answer.record.end_ns ?? end_ns);
    this.show(exchange);
    this.note.removeAttribute("data-t");
    this.note.textContent = t("c.joined", { error: duration(error_ns) });
  }

  /** The comment says how long; the history also says when. It has the record a moment after the stream's end. */
  private async joinHistory(answer: Answer): Promise<void> {
    const id = answer.ledger?.id || answer.record.facts.request_id;
    for (let n = 0; id && n < HISTORY_TRIES; n++) {
      await new Promise((resolve) => setTimeout(resolve, 150 * 2 ** n));
      try {
        const found = await getExchange(id);
        const page = answer.record.exchange(answer.now_ns);
        page.timeline.facts = { ...found.timeline.facts, ...page.timeline.facts };
        return this.join(page, answer, found.timeline.end_ns, found.rows, found.bars);
      } catch {
        // not there yet, or history is off: the comment's ledger stays
      }
    }
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
