// The Vercel AI SDK, by its provider for whatever speaks as OpenAI does, against our server.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, streamText } from "ai";
import { ADDRESS, KEY, PICTURE, run } from "./cases.mjs";
import { maxRetries, schema, withTools } from "./vercel_cases.mjs";

const provider = (apiKey) =>
  createOpenAICompatible({ name: "hermes", baseURL: `${ADDRESS}/v1`, apiKey, includeUsage: true });
const model = provider(KEY)("hermes-agent");
const stranger = provider("wrong-key-0123456789")("hermes-agent");

run({
  async plain() {
    const done = await generateText({ model, maxRetries, prompt: "hello" });
    return { text: done.text, reason: done.finishReason, usage: done.usage };
  },

  async with_system() {
    const done = await generateText({ model, maxRetries, system: "Speak as a pirate.", prompt: "hello" });
    return done.text;
  },

  async stream() {
    const stream = streamText({ model, maxRetries, prompt: "Tidy my list." });
    const pieces = [];
    for await (const piece of stream.textStream) pieces.push(piece);
    return { text: pieces.join(""), pieces: pieces.length, reason: await stream.finishReason, usage: await stream.usage };
  },

  ...withTools(model),

  async picture() {
    const content = [
      { type: "text", text: "What is on this picture?" },
      { type: "image", image: PICTURE },
    ];
    const done = await generateText({ model, maxRetries, messages: [{ role: "user", content }] });
    return done.text;
  },

  async talk() {
    const messages = [
      { role: "user", content: "hello" },
      { role: "assistant", content: "Hello there, friend." },
      { role: "user", content: "hello again" },
    ];
    return (await generateText({ model, maxRetries, messages })).text;
  },

  async object() {
    return (await generateObject({ model, maxRetries, schema, prompt: "as json" })).object;
  },

  async wrong_key() {
    return (await generateText({ model: stranger, maxRetries, prompt: "hello" })).text;
  },

  async unknown_model() {
    return (await generateText({ model: provider(KEY)("gpt-9"), maxRetries, prompt: "hello" })).text;
  },

  async failing() {
    return (await generateText({ model, maxRetries, prompt: "fail, please" })).text;
  },

  async failing_stream() {
    const trouble = [];
    const stream = streamText({
      model,
      maxRetries,
      prompt: "fail, please",
      onError: ({ error }) => trouble.push(String(error?.message ?? error)),
    });
    for await (const _ of stream.textStream);
    return trouble;
  },
});
