// Runs the cases of one client one after the other and prints what each came to, as JSON.

const LIMIT = 20_000;
// What is printed is the result, and nothing else.
globalThis.AI_SDK_LOG_WARNINGS = false;

function told(error) {
  return {
    name: error?.name === "Error" ? error.constructor.name : error?.name ?? typeof error,
    status: error?.status ?? error?.statusCode ?? null,
    code: error?.code ?? null,
    message: String(error?.message ?? error),
  };
}

function limited(work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${LIMIT} ms`)), LIMIT);
  });
  return Promise.race([work(), late]).finally(() => clearTimeout(timer));
}

export async function run(cases) {
  const results = {};
  for (const [name, work] of Object.entries(cases)) {
    try {
      results[name] = { given: await limited(work) };
    } catch (error) {
      results[name] = { error: told(error) };
    }
  }
  process.stdout.write(JSON.stringify(results));
  process.exit(0);
}

export const [, , ADDRESS, KEY, PICTURE] = process.argv;
