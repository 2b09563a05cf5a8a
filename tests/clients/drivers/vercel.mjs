// The Vercel AI SDK: the OpenAI provider uses responses, the compatible one chat completions.
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, stepCountIs, streamText, tool } from 'ai'
import { z } from 'zod'
import { agent, expect, expectError, hello, key, rain, run, unknown, url } from './cases.mjs'

const openai = createOpenAI({ baseURL: url, apiKey: key })
const compatible = createOpenAICompatible({ name: 'hermes', baseURL: url, apiKey: key })
const weather = tool({
  description: 'The weather of a city.',
  inputSchema: z.object({ city: z.string() }),
  execute: async () => 'rain',
})
const ask = async (model, prompt, more = {}) =>
  (await generateText({ model, prompt, stopWhen: stepCountIs(3), ...more })).text

await run({
  chat: async () => expect(hello, await ask(compatible(agent), 'hello')),
  stream: async () => {
    let said = ''
    for await (const part of streamText({ model: openai(agent), prompt: 'hello' }).textStream)
      said += part
    return expect(hello, said)
  },
  tool: async () => {
    const tools = { weather, search: openai.tools.webSearch({}) }
    expect(rain, await ask(compatible(agent), 'the weather', { tools: { weather } }))
    return expect(rain, await ask(openai(agent), 'the weather', { tools }))
  },
  responses: async () => expect(hello, await ask(openai(agent), 'hello')),
  unknown_model: async () => expect(hello, await ask(openai(unknown), 'hello')),
  error: () => expectError(() => ask(openai(agent), 'fail', { maxRetries: 0 })),
})
