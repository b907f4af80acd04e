// Every text of the page in both languages. A test compares the tables: no key may miss in either.
import { EN } from "./texts.en.js";
import { ZH } from "./texts.zh.js";

export type Key = keyof typeof EN;
export type Language = "en" | "zh";
const TABLES: Record<Language, Record<Key, string>> = { en: EN, zh: ZH };

let current: Language = "en";
export const changes = new EventTarget();

export const language = (): Language => current;

export function setLanguage(next: Language): void {
  current = next;
  changes.dispatchEvent(new Event("change"));
}

/** The text of a key; `{name}` parts are filled from `values`. */
export function t(key: Key, values: Record<string, string | number> = {}): string {
  const found = TABLES[current][key] ?? EN[key] ?? key;
  return found.replace(/\{(\w+)\}/g, (whole, name: string) => (name in values ? String(values[name]) : whole));
}
