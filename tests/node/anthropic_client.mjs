// What `@anthropic-ai/sdk` makes of clawd's answers. Each case is run by test_anthropic_js.py, which has prepared the reply.
import assert from "node:assert/strict";

import { client, run } from "./clients.mjs";

const { default: Anthropic } = await client("@anthropic-ai/sdk");

const TOOLS = [{ name: "get_weather", input_schema: { type: "object", properties: { city: { type: "string" } } } }];
const ASK = { model: "clawd", max_tokens: 500, messages: [{ role: "user", content: "How is the weather in Oslo and in Rome?" }] };

const connect = (url, options) => new Anthropic({ baseURL: url, apiKey: process.env.KEY, maxRetries: 0, ...options });

async function refused(promise) {
  const error = await promise.then(
    () => assert.fail("it was accepted"),
    (reason) => reason,
  );
  return { kind: error.constructor.name, status: error.status, type: error.error?.error?.type, message: error.message };
}

async function streamed_inputs(url, tools, isRight) {
  const events = await Array.fromAsync(await connect(url).messages.create({ ...ASK, tools, stream: true }));
  const deltas = events.filter((event) => event.delta?.type === "input_json_delta");
  const started = events.filter((event) => event.content_block?.type === "tool_use");
  assert.equal(new Set(started.map((event) => event.content_block.id)).size, 2);
  assert.equal(events.find((event) => event.type === "message_delta").delta.stop_reason, "tool_use");
  return started.map((event) => {
    const own = deltas.filter((delta) => delta.index === event.index);
    assert.ok(isRight(own), `${own.length} pieces`);
    return JSON.parse(own.map((delta) => delta.delta.partial_json).join(""));
  });
}

await run({
  async streams(url) {
    const pieces = [];
    const stream = connect(url).messages.stream(ASK);
    stream.on("text", (text) => pieces.push(text));
    const message = await stream.finalMessage();
    assert.equal(message.stop_reason, "end_turn");
    assert.ok(message.usage.output_tokens > 0);
    assert.equal(message.content[0].text, pieces.join(""));
    return { id: message.id, text: pieces.join(""), pieces: pieces.length };
  },

  /** A tool's input comes when it is whole; or, for a tool that asks for it, as it is written. */
  async streams_calls(url) {
    return await streamed_inputs(url, TOOLS, (own) => own.length === 1);
  },

  async streams_calls_eagerly(url) {
    const tools = TOOLS.map((tool) => ({ ...tool, eager_input_streaming: true }));
    return await streamed_inputs(url, tools, (own) => own.length > 2);
  },

  async whole(url) {
    const message = await connect(url).messages.create({ ...ASK, tools: TOOLS });
    const calls = message.content.filter((block) => block.type === "tool_use");
    const again = await connect(url).messages.create({
      ...ASK,
      tools: TOOLS,
      messages: [
        ...ASK.messages,
        { role: "assistant", content: message.content },
        { role: "user", content: calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: `rain in ${call.input.city}` })) },
      ],
    });
    return { id: message.id, calls: calls.map((call) => call.input), stop_reason: message.stop_reason, final: again.content[0].text };
  },

  async aborts(url) {
    const stream = connect(url).messages.stream({
      ...ASK,
      max_tokens: 4000,
      messages: [{ role: "user", content: "Write a very long story about a pelican." }],
    });
    let seen = 0;
    stream.on("text", () => ++seen === 4 && stream.abort());
    const { kind } = await refused(stream.finalMessage());
    return { kind, seen };
  },

  async errors(url) {
    const ask = (fields, options) => refused(connect(url, options).messages.create({ ...ASK, ...fields }));
    return {
      unknown_model: await ask({ model: "claude-9" }),
      no_messages: await ask({ messages: [] }),
      too_long: await ask({ messages: [{ role: "user", content: "word ".repeat(9000) }] }),
      wrong_key: await ask({}, { apiKey: "clawd-nobody" }),
    };
  },

  async counts(url) {
    const { input_tokens } = await connect(url).messages.countTokens({ model: "clawd", messages: ASK.messages });
    return input_tokens;
  },
});
