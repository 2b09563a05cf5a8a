// The official client for Node against our server.

import OpenAI from "openai";
import { ADDRESS, KEY, PICTURE, run } from "./cases.mjs";

const options = { baseURL: `${ADDRESS}/v1`, maxRetries: 0, timeout: 15_000 };
const client = new OpenAI({ ...options, apiKey: KEY });
const stranger = new OpenAI({ ...options, apiKey: "wrong-key-0123456789" });

const model = "hermes-agent";
const said = (content) => [{ role: "user", content }];
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const weather = {
  type: "function",
  function: { name: "weather", description: "The weather of a city.", parameters },
};
const ours = { type: "function", name: "weather", parameters, strict: true };

async function collected(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

run({
  async models() {
    return (await collected(await client.models.list())).map((one) => one.id);
  },

  async model() {
    return (await client.models.retrieve("hermes-agent")).id;
  },

  async plain() {
    return client.chat.completions.create({ model, messages: said("hello") });
  },

  async stream() {
    const stream = await client.chat.completions.create({
      model,
      messages: said("Tidy my list."),
      stream: true,
      stream_options: { include_usage: true },
    });
    const chunks = await collected(stream);
    const text = chunks.map((one) => one.choices[0]?.delta.content ?? "").join("");
    const reasons = chunks.map((one) => one.choices[0]?.finish_reason).filter(Boolean);
    return { text, reasons, usage: chunks.at(-1).usage };
  },

  async stream_helper() {
    const stream = client.chat.completions.stream({ model, messages: said("hello") });
    return { text: await stream.finalContent(), usage: await stream.totalUsage() };
  },

  async left_early() {
    const stream = await client.chat.completions.create({
      model,
      messages: said("tell me much"),
      stream: true,
    });
    for await (const _ of stream) break;
    return stream.controller.signal.aborted;
  },

  async tools() {
    const messages = said("What is the weather in Oslo?");
    const first = await client.chat.completions.create({ model, messages, tools: [weather] });
    const message = first.choices[0].message;
    const second = await client.chat.completions.create({
      model,
      messages: [
        ...messages,
        message,
        { role: "tool", tool_call_id: message.tool_calls[0].id, content: "rain" },
      ],
      tools: [weather],
    });
    return { reason: first.choices[0].finish_reason, message, answer: second.choices[0].message };
  },

  async tool_runner() {
    const asked = [];
    const tool = {
      type: "function",
      function: {
        ...weather.function,
        parse: JSON.parse,
        function: ({ city }) => {
          asked.push(city);
          return "rain";
        },
      },
    };
    const runner = client.chat.completions.runTools({
      model,
      messages: said("What is the weather in Oslo?"),
      tools: [tool],
      stream: true,
    });
    return { answer: await runner.finalContent(), asked };
  },

  async picture() {
    const done = await client.chat.completions.create({
      model,
      messages: said([
        { type: "text", text: "What is on this picture?" },
        { type: "image_url", image_url: { url: PICTURE } },
      ]),
    });
    return done.choices[0].message.content;
  },

  async document() {
    const data = Buffer.from("The code word is heron.").toString("base64");
    const file = { filename: "note.txt", file_data: `data:text/plain;base64,${data}` };
    const done = await client.chat.completions.create({
      model,
      messages: said([
        { type: "text", text: "Read this document." },
        { type: "file", file },
      ]),
    });
    return done.choices[0].message.content;
  },

  async wrong_key() {
    return stranger.chat.completions.create({ model, messages: said("hello") });
  },

  async unknown_model() {
    return client.chat.completions.create({ model: "gpt-9", messages: said("hello") });
  },

  async no_messages() {
    return client.chat.completions.create({ model, messages: [] });
  },

  async failing() {
    return client.chat.completions.create({ model, messages: said("fail, please") });
  },

  async failing_with_retries() {
    const patient = new OpenAI({ ...options, apiKey: KEY, maxRetries: 2 });
    return patient.chat.completions.create({ model, messages: said("fail, however often") });
  },

  async failing_stream() {
    const stream = await client.chat.completions.create({
      model,
      messages: said("fail, please"),
      stream: true,
    });
    return collected(stream);
  },

  async response() {
    const first = await client.responses.create({ model, input: "hello" });
    const next = await client.responses.create({
      model,
      input: "hello again",
      previous_response_id: first.id,
    });
    const kept = await client.responses.retrieve(next.id);
    await client.responses.delete(first.id);
    return { text: first.output_text, status: first.status, next: next.output_text, kept: kept.output_text };
  },

  async response_stream() {
    const stream = await client.responses.create({ model, input: "Tidy my list.", stream: true });
    const events = await collected(stream);
    const text = events.filter((one) => one.type === "response.output_text.delta").map((one) => one.delta);
    return { types: events.map((one) => one.type), text: text.join(""), last: events.at(-1).response.status };
  },

  async response_helper() {
    const stream = client.responses.stream({ model, input: "hello" });
    const done = await stream.finalResponse();
    return done.output_text;
  },

  async response_tools() {
    const first = await client.responses.create({ model, input: "What is the weather in Oslo?", tools: [ours] });
    const call = first.output.find((one) => one.type === "function_call");
    const second = await client.responses.create({
      model,
      previous_response_id: first.id,
      input: [{ type: "function_call_output", call_id: call.call_id, output: "rain" }],
      tools: [ours],
    });
    return { name: call.name, arguments: call.arguments, answer: second.output_text };
  },

  async response_picture() {
    const done = await client.responses.create({
      model,
      input: [
        {
          role: "user",
          content: [
            { type: "input_text", text: "What is on this picture?" },
            { type: "input_image", image_url: PICTURE, detail: "auto" },
          ],
        },
      ],
    });
    return done.output_text;
  },

  async response_wrong_key() {
    return stranger.responses.create({ model, input: "hello" });
  },
});
