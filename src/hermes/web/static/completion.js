// Suggestions below the cursor: commands after a slash; files, folders and changes after an @.
// @ts-check
import { api, show } from "./app.js";

/** @typedef {{label: string, text: string, replaces: number, about: string}} Suggestion */

const TYPED = /^\/\S*$|(?:^|[^\w@/])@(?:(?:file|folder):"[^"]*|[^\s"]*)$/;

export class Completion {
  /** @param {HTMLTextAreaElement} input @param {HTMLElement} list @param {() => string} session */
  constructor(input, list, session) {
    this.input = input;
    this.list = list;
    this.session = session;
    /** @type {Suggestion[]} */ this.found = [];
    this.chosen = 0;
    this.wasMoved = false;
    this.number = 0;
    input.addEventListener("blur", () => this.close());
  }

  get before() {
    return this.input.value.slice(0, this.input.selectionStart);
  }

  /** Look for suggestions; late answers are dropped. */
  async update() {
    const number = ++this.number;
    const line = this.before.slice(this.before.lastIndexOf("\n") + 1);
    const begins = this.before.length > line.length && line.startsWith("/");
    if (begins || !TYPED.test(line)) return this.close();
    const query = new URLSearchParams({ session: this.session(), text: line });
    const found = await api(`/chat/complete?${query}`);
    if (number === this.number && document.activeElement === this.input) this.open(found);
  }

  /** @param {Suggestion[]} found */
  open(found) {
    this.found = found;
    this.wasMoved = false;
    this.list.replaceChildren(...found.map((one, index) => this.option(one, index)));
    show(this.list, found.length > 0);
    this.choose(0);
  }

  close() {
    this.number += 1;
    this.open([]);
  }

  /** @param {Suggestion} one @param {number} index */
  option(one, index) {
    const option = document.createElement("div");
    option.id = `suggestion-${index}`;
    option.setAttribute("role", "option");
    const label = document.createElement("b");
    label.textContent = one.label;
    option.append(label, ` ${one.about}`);
    option.addEventListener("mousedown", (event) => {
      event.preventDefault();
      this.insert(one);
    });
    return option;
  }

  /** @param {number} index */
  choose(index) {
    const options = [...this.list.children];
    this.chosen = Math.max(0, Math.min(index, options.length - 1));
    options.forEach((one, place) => one.setAttribute("aria-selected", String(place === this.chosen)));
    options[this.chosen]?.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", options[this.chosen]?.id ?? "");
  }

  /** @param {Suggestion} one */
  insert(one) {
    // Count characters; JavaScript's strings count UTF-16 units.
    const kept = [...this.before].slice(0, -one.replaces).join("");
    const after = this.input.value.slice(this.input.selectionStart);
    this.input.value = kept + one.text + after;
    this.input.selectionStart = this.input.selectionEnd = (kept + one.text).length;
    this.input.dispatchEvent(new Event("input"));
  }

  /** Whether the key was meant for the list. @param {KeyboardEvent} event */
  takesKey(event) {
    const one = this.found[this.chosen];
    if (!one) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    // Enter sends complete text and words containing @; otherwise it takes the suggestion.
    const isCommand = one.text.startsWith("/") && one.text.trimEnd() !== this.before;
    if (step) this.choose(this.chosen + step);
    else if (event.key === "Tab" && !event.shiftKey) this.insert(one);
    else if (event.key === "Enter" && !event.shiftKey && (isCommand || this.wasMoved)) this.insert(one);
    else if (event.key === "Escape") this.close();
    else return false;
    if (step) this.wasMoved = true;
    return true;
  }
}
