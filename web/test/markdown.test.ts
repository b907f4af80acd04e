import { beforeAll, expect, test } from "vitest";
import { safeUrl } from "../src/core/dom.js";
import { MarkdownSink, inline } from "../src/core/markdown.js";
import { install, root, tree } from "./fakedom.js";

beforeAll(install);

function shown(text: string, cuts: number[] = []): string {
  const place = root();
  const sink = new MarkdownSink(place);
  let from = 0;
  for (const cut of [...cuts, text.length]) {
    sink.push(text.slice(from, cut));
    sink.pump(Infinity);
    from = cut;
  }
  sink.end();
  sink.pump(Infinity);
  return tree(place).replace(/^root\(|\)$/g, "");
}

const TEXT = `# A title #
Some **bold, *both*** and \`code *not*\` in snake_case_words.
Second line.

- one
- two **x**
  - inner
1. first
2. second

> quoted
> more

\`\`\`\`py
a = 1
\`\`\`
 # not a heading
\`\`\`\`
---
***
Sizes:
| name | tokens *each* |
|------|:---:|
| a \\| b | 1 |
| only one
no row
| not | a table |
| nor | this |

2 * 3 * 4 and https://example.com/a_b_c.`;

test("blocks", () => {
  const said = shown(TEXT);
  expect(said).toContain("h3(A title)");
  expect(said).toContain("p(Some strong(bold, em(both)) and code(code *not*) in snake_case_words.\nSecond line.)");
  expect(said).toContain("ul(li(span(one))li(span(two strong(x))ul(li(span(inner)))))");
  expect(said).toContain("ol(li(span(first))li(span(second)))");
  expect(said).toContain("blockquote(quoted\nmore)");
  expect(said).toContain("pre(code(a = 1\n```\n # not a heading\n))");
  expect(said).toContain("hr()hr()p(Sizes:)div(table(thead(tr(th(name)th(tokens em(each))))tbody(tr(td(a | b)td(1))tr(td(only one)td()))))");
  expect(said).toContain("p(no row\n| not | a table |\n| nor | this |)");
  expect(said).toContain("p(2 * 3 * 4 and a[https://example.com/a_b_c](https://example.com/a_b_c).)");
});

test("the same blocks for any split of the text", () => {
  const whole = shown(TEXT);
  expect(shown(TEXT, Array.from({ length: TEXT.length - 1 }, (_, n) => n + 1))).toBe(whole);
  let seed = 7;
  for (let run = 0; run < 300; run++) {
    const cuts = Array.from({ length: 6 }, () => (seed = (seed * 48271) % 2147483647) % TEXT.length).sort((a, b) => a - b);
    expect(shown(TEXT, cuts), String(cuts)).toBe(whole);
  }
});

test.each(["javascript:alert(1)", "JaVaScRiPt:alert(1)", " javascript:x", "data:text/html,x", "vbscript:x", "//evil.example", "/api/exchanges", "file:///etc/passwd", "blob:x", ""])(
  "%s is no link",
  (address) => {
    expect(safeUrl(address)).toBeNull();
    expect(tree(inline(`[x](${address})`)[0])).not.toMatch(/^a\[/);
  },
);

test("tags in the text stay text", () => {
  expect(shown("<img src=x onerror=alert(1)> <script>x</script>")).toBe("p(<img src=x onerror=alert(1)> <script>x</script>)");
});

test("hostile text costs linear time and nothing is lost", () => {
  for (const unit of ["*", "**", "[", "`", "_a", "[](", "> ", "- ", "\n- ", "```\n", "a\n", "https://"]) {
    const text = unit.repeat(20_000 / unit.length);
    const start = performance.now();
    shown(text, [1000, 5000, 5001, 9000]);
    expect(performance.now() - start, unit).toBeLessThan(5000);
  }
  expect(shown("x".repeat(10_000), [4000, 8000]).length).toBe("p()".length + 10_000);
});

test("a deadline that has passed still makes progress, and the end comes", () => {
  const place = root();
  const sink = new MarkdownSink(place);
  sink.push("line\n\n".repeat(500));
  sink.end();
  let rounds = 1;
  while (!sink.pump(0)) rounds++;
  expect(rounds).toBeGreaterThan(10);
  expect(tree(place).match(/p\(line\)/g)?.length).toBe(500);
});
