// Light, dark, or what the system says; the choice is kept where the browser lets us.
import { h, icon } from "./dom.js";

const KEY = "unslow.theme";

export function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null; // file: pages and strict privacy settings
  }
}

export function store(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // the choice lasts as long as the page
  }
}

export function applyTheme(): void {
  const chosen = stored(KEY);
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset["theme"] = chosen;
}

export function themeButton(): HTMLButtonElement {
  return h("button", { type: "button", class: "ghost", "t-aria-label": "theme.toggle", "t-title": "theme.toggle", onclick: toggle }, icon("theme"));
}

function toggle(): void {
  const now = document.documentElement.dataset["theme"] ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset["theme"] = next;
  store(KEY, next);
}
