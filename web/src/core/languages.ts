// The language switch, and the page's language at start.
import { h, retranslate } from "./dom.js";
import { changes, language, setLanguage, type Language } from "./i18n.js";
import { store, stored } from "./theme.js";

const KEY = "unslow.language";

export function startLanguage(): void {
  changes.addEventListener("change", () => {
    document.documentElement.lang = language() === "zh" ? "zh-CN" : "en";
    retranslate(document);
  });
  const chosen = stored(KEY);
  const wanted: Language = chosen === "zh" || chosen === "en" ? chosen : navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
  setLanguage(wanted);
}

export function languageButton(): HTMLElement {
  const button = (code: Language, label: string, lang: string) =>
    h("button", { type: "button", lang, "data-lang": code, "aria-pressed": String(language() === code), onclick: () => choose(code) }, label);
  const box = h("div", { class: "languages", role: "group", "t-aria-label": "lang.toggle" }, button("en", "EN", "en"), button("zh", "中文", "zh-CN"));
  changes.addEventListener("change", () => {
    for (const one of box.querySelectorAll("button")) one.setAttribute("aria-pressed", String(one.dataset["lang"] === language()));
  });
  return box;
}

function choose(code: Language): void {
  store(KEY, code);
  setLanguage(code);
}
