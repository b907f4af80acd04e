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
  private readonly keyButton = h("button", { type: "button", class: "ghost", "t-aria-label": "c.key", "t-title": "c.key", "aria-expanded": "false",
    onclick: () => this.showKey(this.keyBox.hidden) }, icon("key"));
  private readonly input = h("textarea", { rows: 1, id: "message", "t-placeholder": "c.placeholder", "t-aria-label": "c.placeholder",
    oninput: () => this.grow(), onkeydown: (event: KeyboardEvent) => this.typed(event) });
  private readonly button = h("button", { type: "submit", class: "send", "t-aria-label": "c.send", "t-title": "c.send", disabled: true }, icon("send"));
  private readonly fresh = h("button", { type: "button", class: "quiet", t: "c.clear", hidden: true, onclick: () => this.clear() });
  private readonly log = h("div", { class: "turns", role: "log", "aria-busy": "false", "t-aria-label": "c.log" });
  private readonly notice = h("div");

  connectedCallback(): void {
    if (this.firstChild) return;
    const form = h("form", { class: "composer", onsubmit: (event: Event) => this.submit(event) }, h("div", { class: "composer-in" },
      h("div", { class: "field", onclick: () => this.input.focus() }, this.input, this.button),
      h("div", { class: "composer-foot" }, this.model, this.keyButton, h("span", { class: "spring" }), this.fresh), this.keyBox));
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
    if (this.config.settings["clients_need_a_key"] === true && !this.key.value) this.showKey(true);
    if (!this.hidden && document.activeElement === document.body && matchMedia("(hover: hover)").matches) this.input.focus();
    const models = this.config.models;
    this.model.replaceChildren(...(models.length ? models.map((name) => h("option", { value: name }, name)) : [h("option", { value: "", t: "c.nomodel" })]));
    if (!models.length) this.notice.replaceChildren(h("p", { class: "notice", t: "x.nomodels" }));
  }

  private welcome(): void {
    this.classList.add("fresh");
    this.fresh.hidden = true;
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
    if (this.running) return this.stop();
    const question = this.input.value.trim();
    if (!question || !this.config) return;
    this.input.value = "";
    this.grow();
    void this.ask(question, this.config);
  }

  private async ask(question: string, config: Config): Promise<void> {
    if (this.classList.contains("fresh")) this.log.replaceChildren();
    this.classList.remove("fresh");
    this.fresh.hidden = false;
    const turn = document.createElement("unslow-turn") as Turn;
    turn.build(question);
    this.log.append(turn);
    this.following = true;
    this.state(turn);
    turn.scrollIntoView({ block: "start", behavior: "instant" });
    const said: Message[] = [...this.messages, { role: "user", content: question }];
    this.messages = said;
    turn.onover = () => this.over(turn, said);
    turn.onretry = () => {
      if (this.running) return;
      if (turn === this.log.lastElementChild) turn.remove();
      void this.ask(question, config);
    };
    await turn.run(config.gateway_url, this.model.value, said, this.key.value.trim());
  }

  /** The stream has ended: the composer is free and the model's words are part of the talk; drawing may come later. */
  private over(turn: Turn, said: Message[]): void {
    if (this.running === turn) this.state(null);
    if (turn.answer?.record.facts.status === 401) this.showKey(true);
    if (this.messages !== said) return; // a new chat was begun
    this.messages = turn.text ? [...said, { role: "assistant", content: turn.text }] : said.slice(0, -1);
  }

  private stop(): void {
    this.running?.answer?.stop();
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
    if (!running && document.activeElement === this.button) this.input.focus({ preventScroll: true });
    this.grow();
  }

  private clear(): void {
    this.stop();
    this.messages = [];
    this.state(null);
    this.welcome();
    this.input.focus();
  }

  private showKey(on: boolean): void {
    this.keyBox.hidden = !on;
    this.keyButton.setAttribute("aria-expanded", String(on));
    if (on) this.key.focus();
  }

  private typed(event: KeyboardEvent): void {
    if (event.key === "Escape") this.stop();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.running) this.querySelector("form")?.requestSubmit();
  }

  private grow(): void {
    this.button.disabled = !this.running && !this.input.value.trim();
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
