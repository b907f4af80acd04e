import { expect, test } from "vitest";
import { EN } from "../src/core/texts.en.js";
import { ZH } from "../src/core/texts.zh.js";
import { setLanguage, t } from "../src/core/i18n.js";

const holes = (text: string) => [...text.matchAll(/\{\w+\}/g)].map(String).sort();

test("both languages have every text, with the same holes", () => {
  expect(Object.keys(ZH).sort()).toEqual(Object.keys(EN).sort());
  for (const [key, text] of Object.entries(EN)) {
    const other = ZH[key as keyof typeof EN];
    expect(other, key).not.toBe("");
    expect(holes(other), key).toEqual(holes(text));
  }
});

test("the language is switched, holes are filled", () => {
  setLanguage("zh");
  expect(t("h.total", { time: "1 s" })).toBe("共 1 s");
  setLanguage("en");
  expect(t("h.total", { time: "1 s" })).toBe("1 s in all");
});
