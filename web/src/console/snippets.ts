// Ready-made code for common clients. Names are quoted for the language that they land in.

export interface Snippet {
  name: string;
  text: string;
}

const shell = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
const quoted = (text: string): string => JSON.stringify(text);

export function snippets(base: string, model: string, environment: string): Snippet[] {
  const body = `{"model": ${quoted(model)}, "stream": true,\n       "messages": [{"role": "user", "content": "Hello"}]}`;
  return [
    { name: "curl", text: `curl -N ${base}/chat/completions \\\n  -H 'content-type: application/json' \\\n  -d ${shell(body)}` },
    {
      name: "Python",
      text: `from openai import OpenAI

client = OpenAI(base_url=${quoted(base)}, api_key="none")
stream = client.chat.completions.create(
    model=${quoted(model)},
    messages=[{"role": "user", "content": "Hello"}],
    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)`,
    },
    {
      name: "JavaScript",
      text: `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${quoted(base)}, apiKey: "none" });
const stream = await client.chat.completions.create({
  model: ${quoted(model)},
  messages: [{ role: "user", content: "Hello" }],
  stream: true,
});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
}`,
    },
    {
      name: "LangChain",
      text: `from langchain_openai import ChatOpenAI

llm = ChatOpenAI(base_url=${quoted(base)}, api_key="none", model=${quoted(model)})
for chunk in llm.stream("Hello"):
    print(chunk.content, end="", flush=True)`,
    },
    { name: environment, text: `export OPENAI_BASE_URL=${shell(base)}\nexport OPENAI_API_KEY=none` },
  ];
}
