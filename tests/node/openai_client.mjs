// What the `openai` package makes of clawd's answers. Each case is run by test_openai_js.py, which has prepared the reply.
import assert from "node:assert/strict";

import { client, run } from "./clients.mjs";

const { default: OpenAI } = await client("openai");

const TOOLS = [
  {
    type: "function",
    function: { name: "get_weather", parameters: { type: "object", properties: { city: { type: "string" } } } },
  },
];
const MESSAGES = [{ role: "user", content: "How is the weather in Oslo and in Rome?" }];

const connect = (url, options) => new OpenAI({ baseURL: `${url}/v1`, apiKey: process.env.KEY, maxRetries: 0, ...options });

async function refused(promise) {
  const error = await promise.then(
    () => assert.fail("it was accepted"),
    (reason) => reason,
  );
  return { kind: error.constructor.name, status: error.status, code: error.code, type: error.type, message: error.message };
}

await run({
  async streams(url) {
    const stream = await connect(url).chat.completions.create({
      model: "clawd",
      messages: MESSAGES,
      stream: true,
      stream_options: { include_usage: true },
    });
    const chunks = await Array.fromAsync(stream);
    const last = chunks.at(-1);
    assert.deepEqual(last.choices, []);
    assert.ok(last.usage.prompt_tokens > 0 && last.usage.completion_tokens > 0);
    const said = chunks.slice(0, -1);
    assert.equal(said[0].choices[0].delta.role, "assistant");
    assert.ok(said.every((chunk) => chunk.id === last.id && chunk.object === "chat.completion.chunk"));
    const reasons = said.map((chunk) => chunk.choices[0].finish_reason).filter(Boolean);
    assert.deepEqual(reasons, ["stop"]);
    return { id: last.id, text: said.map((chunk) => chunk.choices[0].delta.content ?? "").join(""), chunks: said.length };
  },

  async streams_calls(url) {
    const stream = await connect(url).chat.completions.create({ model: "clawd", messages: MESSAGES, tools: TOOLS, stream: true });
    const chunks = await Array.fromAsync(stream);
    const pieces = chunks.flatMap((chunk) => chunk.choices[0].delta.tool_calls ?? []);
    const calls = [0, 1].map((index) => pieces.filter((piece) => piece.index === index));
    for (const own of calls) {
      assert.equal(own.filter((piece) => piece.id).length, 1);
      assert.deepEqual(own.flatMap((piece) => piece.function.name ?? []), ["get_weather"]);
      assert.ok(own.filter((piece) => piece.function.arguments).length > 2, "the arguments come as they are written");
    }
    assert.equal(chunks.at(-1).choices[0].finish_reason, "tool_calls");
    return calls.map((own) => JSON.parse(own.map((piece) => piece.function.arguments ?? "").join("")));
  },

  /** The package's own loop: it calls the function, sends the result and asks again. */
  async runs_tools(url) {
    const asked = [];
    const weather = ({ city }) => (asked.push(city), `rain in ${city}`);
    const [tool] = TOOLS;
    const runner = connect(url).chat.completions.runTools({
      model: "clawd",
      messages: MESSAGES,
      stream: true,
      tools: [{ ...tool, function: { ...tool.function, function: weather, parse: JSON.parse } }],
    });
    return { final: await runner.finalContent(), asked };
  },

  async whole(url) {
    const { data, response } = await connect(url)
      .chat.completions.create({ model: "clawd", messages: MESSAGES, tools: TOOLS })
      .withResponse();
    assert.match(response.headers.get("content-type"), /^application\/json/);
    const [{ message, finish_reason }] = data.choices;
    return { content: message.content, calls: message.tool_calls.map((call) => JSON.parse(call.function.arguments)), finish_reason };
  },

  /** Goes away after a few chunks, as a person does who has seen enough. */
  async aborts(url) {
    const stream = await connect(url).chat.completions.create({
      model: "clawd",
      messages: [{ role: "user", content: "Write a very long story about a pelican." }],
      stream: true,
      max_tokens: 4000,
    });
    let id;
    let seen = 0;
    for await (const chunk of stream) {
      id = chunk.id;
      if (++seen === 4) stream.controller.abort();
    }
    return { id, seen };
  },

  /** Goes away before the first byte of a whole answer. */
  async aborts_a_whole_answer(url) {
    const controller = new AbortController();
    const asked = connect(url).chat.completions.create(
      { model: "clawd", messages: [{ role: "user", content: "Write a very long story about a lighthouse." }], max_tokens: 4000 },
      { signal: controller.signal },
    );
    setTimeout(() => controller.abort(), 1000);
    return await refused(asked);
  },

  async errors(url) {
    const ask = (fields, options) =>
      refused(connect(url, options).chat.completions.create({ model: "clawd", messages: MESSAGES, ...fields }));
    return {
      unknown_model: await ask({ model: "gpt-9" }),
      no_messages: await ask({ messages: [] }),
      too_long: await ask({ messages: [{ role: "user", content: "word ".repeat(9000) }] }),
      bad_value: await ask({ temperature: 9 }),
      wrong_key: await ask({}, { apiKey: "clawd-nobody" }),
    };
  },

  async models(url) {
    const listed = await Array.fromAsync(connect(url).models.list());
    assert.equal((await connect(url).models.retrieve("clawd")).id, "clawd");
    return listed.map((model) => model.id);
  },
});
