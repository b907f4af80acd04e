// <unslow-locked>: shown instead of the pages while this browser has no key of the run.
import { h } from "../core/dom.js";

/** The key in what somebody pasted: the whole address that unslow printed, or the key alone. */
export function keyIn(text: string): string {
  const found = /[?&]token=([^&#\s]+)/.exec(text)?.[1] ?? text.trim();
  return found.replace(/[^\w.~-]/g, "");
}

class Locked extends HTMLElement {
  connectedCallback(): void {
    const field = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true, "t-aria-label": "l.field", "t-placeholder": "l.field" });
    const open = (event: Event) => {
      event.preventDefault();
      const key = keyIn(field.value);
      if (key) location.assign(`/?token=${encodeURIComponent(key)}`);
    };
    this.replaceChildren(h("div", { class: "welcome" }, h("h1", { t: "l.title" }), h("p", { t: "l.lead" }),
      location.hash === "#/wrong-key" && h("p", { class: "notice bad", role: "alert", t: "l.wrong" }),
      h("form", { class: "unlock", onsubmit: open }, field, h("button", { type: "submit", class: "primary", t: "l.open" }))));
    field.focus();
  }
}

customElements.define("unslow-locked", Locked);
