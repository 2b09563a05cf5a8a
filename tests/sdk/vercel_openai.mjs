// The Vercel AI SDK, by its provider for OpenAI itself (responses, unless told otherwise), against our server.

import { createOpenAI } from "@ai-sdk/openai";
import { generateObject, generateText, streamText } from "ai";
import { ADDRESS, KEY, run } from "./cases.mjs";
import { maxRetries, schema, withTools } from "./vercel_cases.mjs";

const provider = createOpenAI({ baseURL: `${ADDRESS}/v1`, apiKey: KEY });
const model = provider("hermes-agent");
const said = (content) => ({ role: "user", content });

const told = (calls) => calls.map((one) => [one.toolName, one.providerExecuted ?? false]);

run({
  async plain() {
    const done = await generateText({ model, maxRetries, prompt: "hello" });
    return { text: done.text, reason: done.finishReason, usage: done.usage.totalTokens };
  },

  async own() {
    const done = await generateText({ model, maxRetries, prompt: "Tidy my list." });
    return { text: done.text, reason: done.finishReason, calls: told(done.toolCalls), results: done.toolResults.length };
  },

  async own_stream() {
    const stream = streamText({ model, maxRetries, prompt: "Tidy my list." });
    let text = "";
    for await (const piece of stream.textStream) text += piece;
    return { text, reason: await stream.finishReason, calls: told(await stream.toolCalls), results: (await stream.toolResults).length };
  },

  async own_chat() {
    const done = await generateText({ model: provider.chat("hermes-agent"), maxRetries, prompt: "Tidy my list." });
    return { text: done.text, reason: done.finishReason };
  },

  ...withTools(model),

  async talk() {
    const first = [said("Tidy my list.")];
    const done = await generateText({ model, maxRetries, messages: first });
    const messages = [...first, ...done.response.messages, said("and now greet me")];
    return (await generateText({ model, maxRetries, messages })).text;
  },

  async thinks() {
    const stream = streamText({ model, maxRetries, prompt: "ponder" });
    for await (const _ of stream.textStream);
    return { text: await stream.text, thought: await stream.reasoningText };
  },

  async thinks_whole() {
    const done = await generateText({ model, maxRetries, prompt: "ponder" });
    return { text: done.text, thought: done.reasoningText };
  },

  async object() {
    return (await generateObject({ model, maxRetries, schema, prompt: "as json" })).object;
  },

  async object_chat() {
    const chat = provider.chat("hermes-agent");
    return (await generateObject({ model: chat, maxRetries, schema, prompt: "as json" })).object;
  },

  async failing() {
    return (await generateText({ model, maxRetries, prompt: "fail, please" })).text;
  },
});
