// What the providers of the Vercel AI SDK are both asked to do.

import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

export const maxRetries = 0;
export const schema = z.object({ city: z.string() });

function asking(model, asked) {
  const weather = tool({
    description: "The weather of a city.",
    inputSchema: schema,
    execute: async ({ city }) => {
      asked.push(city);
      return "rain";
    },
  });
  return { model, maxRetries, prompt: "What is the weather in Oslo?", tools: { weather }, stopWhen: stepCountIs(3) };
}

// A tool of the program's own: it is called, and the answer goes on with what it said.
export function withTools(model) {
  return {
    async tools() {
      const asked = [];
      const done = await generateText(asking(model, asked));
      return { text: done.text, asked, steps: done.steps.length };
    },

    async stream_tools() {
      const asked = [];
      const stream = streamText(asking(model, asked));
      let text = "";
      for await (const piece of stream.textStream) text += piece;
      return { text, asked, steps: (await stream.steps).length };
    },
  };
}
