// The Chat page.
import { h, icon } from "../core/dom.js";
import { t } from "../core/i18n.js";
import type { Message } from "./answer.js";
import { getConfig, type Config } from "./api.js";
import "./turn.js";
import type { Turn } from "./turn.js";

const NEAR_END_PX = 120;

export class ChatPage extends HTMLElement {
  private config: Config | null = null;
  private messages: Message[] = [];
  private running: Turn | null = null;
  private following = true;
  private readonly model = h("select", { id: "model", "t-aria-label": "c.model" });
  private readonly key = h("input", { type: "password", id: "api-key", autocomplete: "off", spellcheck: "false", "t-placeholder": "c.key", "t-aria-label": "c.key" });
  private readonly keyBox = h("div", { class: "key-box", hidden: true }, this.key, h("p", { class: "hint", t: "c.keyhint" }));
  private readonly input = h("textarea", { rows: 1, id: "message", "t-placeholder": "c.placeholder", "t-aria-label": "c.placeholder",
    oninput: () => this.grow(), onkeydown: (event: KeyboardEvent) => this.typed(event) });
  private readonly button = h("button", { type: "submit", class: "send", "t-aria-label": "c.send", "t-title": "c.send" }, icon("send"));
  private readonly log = h("div", { class: "turns", role: "log", "aria-busy": "false", "t-aria-label": "c.log" });
  private readonly notice = h("div");

  connectedCallback(): void {
    if (this.firstChild) return;
    const keyButton = h("button", { type: "button", class: "ghost", "t-aria-label": "c.key", "t-title": "c.key", "aria-expanded": "false", onclick: () => this.toggleKey(keyButton) }, icon("key"));
    const fresh = h("button", { type: "button", class: "quiet", t: "c.clear", onclick: () => this.clear() });
    const form = h("form", { class: "composer", onsubmit: (event: Event) => this.submit(event) },
      h("div", { class: "field" }, this.input, this.button),
      h("div", { class: "composer-foot" }, this.model, keyButton, h("span", { class: "spring" }), fresh), this.keyBox);
    this.append(this.notice, this.log, form);
    this.welcome();
    void this.load();
    for (const kind of ["wheel", "touchmove", "keydown"] as const) addEventListener(kind, () => this.looked(), { passive: true });
    new ResizeObserver(() => this.follow()).observe(this.log);
  }

  private async load(): Promise<void> {
    this.model.replaceChildren(h("option", { value: "", t: "q.loading" }));
    try {
      this.config = await getConfig();
    } catch (error) {
      this.notice.replaceChildren(h("p", { class: "notice bad", role: "alert" }, (error as Error).message, " ", h("button", { type: "button", class: "link", t: "e.retry", onclick: () => void this.load() })));
      return;
    }
    this.notice.replaceChildren();
    const models = this.config.models;
    this.model.replaceChildren(...(models.length ? models.map((name) => h("option", { value: name }, name)) : [h("option", { value: "", t: "c.nomodel" })]));
    if (!models.length) this.notice.replaceChildren(h("p", { class: "notice", t: "x.nomodels" }));
  }

  private welcome(): void {
    const offers = (["c.try1", "c.try2", "c.try3"] as const).map((key) =>
      h("button", { type: "button", class: "offer", t: key, onclick: () => this.offer(t(key)) }));
    this.log.replaceChildren(h("div", { class: "welcome" }, h("h1", { t: "c.hello" }), h("p", { t: "c.hello2" }), h("div", { class: "offers" }, ...offers)));
  }

  private offer(text: string): void {
    this.input.value = text;
    this.grow();
    this.querySelector("form")?.requestSubmit();
  }

  private submit(event: Event): void {
    event.preventDefault();
    if (this.running) return this.running.answer?.stop();
    const question = this.input.value.trim();
    if (!question || !this.config) return;
    this.input.value = "";
    this.grow();
    void this.ask(question, this.config);
  }

  private async ask(question: string, config: Config): Promise<void> {
    if (!this.messages.length) this.log.replaceChildren();
    const turn = document.createElement("unslow-turn") as Turn;
    turn.build(question);
    this.log.append(turn);
    this.following = true;
    this.state(turn);
    turn.scrollIntoView({ block: "start", behavior: "instant" });
    const said: Message[] = [...this.messages, { role: "user", content: question }];
    this.messages = said;
    const done = turn.run(config.gateway_url, this.model.value, said, this.key.value.trim());
    await this.ended(turn, done);
    if (this.messages === said && turn.text) this.messages = [...said, { role: "assistant", content: turn.text }];
    else if (this.messages === said) this.messages = said.slice(0, -1);
  }

  /** The composer is free as soon as the stream has ended; the joined ledger may come later. */
  private async ended(turn: Turn, done: Promise<void>): Promise<void> {
    const timer = setInterval(() => turn.answer?.record.end_ns !== null && this.running === turn && turn.answer && this.state(null), 50);
    await done.finally(() => clearInterval(timer));
    if (this.running === turn) this.state(null);
  }

  private state(running: Turn | null): void {
    this.running = running;
    const key = running ? "c.stop" : "c.send";
    this.log.setAttribute("aria-busy", String(running !== null));
    this.button.classList.toggle("stop", running !== null);
    for (const name of ["aria-label", "title"]) {
      this.button.setAttribute(`data-t-${name}`, key);
      this.button.setAttribute(name, t(key));
    }
    this.button.replaceChildren(icon(running ? "stop" : "send"));
  }

  private clear(): void {
    this.running?.answer?.stop();
    this.messages = [];
    this.state(null);
    this.welcome();
    this.input.focus();
  }

  private toggleKey(button: HTMLButtonElement): void {
    this.keyBox.hidden = !this.keyBox.hidden;
    button.setAttribute("aria-expanded", String(!this.keyBox.hidden));
    if (!this.keyBox.hidden) this.key.focus();
  }

  private typed(event: KeyboardEvent): void {
    if (event.key === "Escape") this.running?.answer?.stop();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.running) this.querySelector("form")?.requestSubmit();
  }

  private grow(): void {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(200, this.input.scrollHeight)}px`;
  }

  /** The end of the text on show, and how far it is below the place where it should be. */
  private behind(): number {
    const end = this.log.querySelector("unslow-turn:last-child .reply-text")?.getBoundingClientRect().bottom ?? 0;
    const composer = this.querySelector("form")?.getBoundingClientRect().height ?? 0;
    return end - (innerHeight - composer - 24);
  }

  /** Whoever scrolls away from the end is left alone until the end is in sight again. */
  private looked(): void {
    requestAnimationFrame(() => {
      this.following = this.behind() < NEAR_END_PX;
    });
  }

  private follow(): void {
    if (!this.following || !this.running || this.hidden) return;
    const behind = this.behind();
    if (behind > 0) scrollBy({ top: behind, behavior: "instant" });
  }
}

customElements.define("unslow-chat", ChatPage);
