// Run the cases of one client and print each outcome as a line of JSON.
export const url = process.env.HERMES_URL
export const key = process.env.HERMES_KEY
export const [agent, unknown] = ['hermes-agent', 'gpt-4o']
export const hello = 'Hello there, friend.'
export const rain = 'It rains in Oslo.'
const noCredit = 'Insufficient Balance'

export function expect(words, received) {
  if (!String(received).includes(words)) throw new Error(`expected ${words}, but got ${received}`)
  return received
}

export async function expectError(call) {
  let received
  try {
    received = await call()
  } catch (error) {
    return expect(noCredit, error.message)
  }
  throw new Error(`expected an error, but got ${received}`)
}

export async function run(cases) {
  for (const [name, work] of Object.entries(cases)) {
    let outcome
    try {
      outcome = { case: name, ok: true, detail: String(await work()).slice(0, 300) }
    } catch (error) {
      outcome = { case: name, ok: false, detail: String(error).slice(0, 600) }
    }
    console.log(JSON.stringify(outcome))
  }
}
