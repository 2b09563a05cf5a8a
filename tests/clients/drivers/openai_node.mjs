// The official client for Node.
import OpenAI from 'openai'
import { agent, expect, expectError, hello, key, rain, run, unknown, url } from './cases.mjs'

const client = new OpenAI({ baseURL: url, apiKey: key })
const parameters = { type: 'object', properties: { city: { type: 'string' } } }
const tools = [{ type: 'function', function: { name: 'weather', parameters } }]
const ask = (content, more = {}) =>
  client.chat.completions.create({ model: agent, messages: [{ role: 'user', content }], ...more })
const text = async (answer) => (await answer).choices[0].message.content

await run({
  chat: async () => expect(hello, await text(ask('hello'))),
  stream: async () => {
    let said = ''
    for await (const chunk of await ask('hello', { stream: true }))
      said += chunk.choices[0]?.delta?.content ?? ''
    return expect(hello, said)
  },
  tool: async () => {
    const first = (await ask('the weather', { tools })).choices[0].message
    const result = { role: 'tool', tool_call_id: first.tool_calls[0].id, content: 'rain' }
    const messages = [{ role: 'user', content: 'the weather' }, first, result]
    return expect(rain, await text(client.chat.completions.create({ model: agent, messages, tools })))
  },
  responses: async () =>
    expect(hello, (await client.responses.create({ model: agent, input: 'hello' })).output_text),
  unknown_model: async () => expect(hello, await text(ask('hello', { model: unknown }))),
  error: () => expectError(() => ask('fail')),
})
