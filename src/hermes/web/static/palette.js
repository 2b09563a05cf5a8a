// The command palette: finds pages, sessions, buttons and commands by their words.
// @ts-check
import { palette, showError, t } from "./app.js";

/** @typedef {import("./app.js").PaletteEntry} PaletteEntry */

class CommandPalette extends HTMLElement {
  dialog = document.createElement("dialog");
  input = document.createElement("input");
  list = document.createElement("ul");
  /** @type {PaletteEntry[]} */ entries = [];
  /** @type {PaletteEntry[]} */ shown = [];
  index = 0;

  connectedCallback() {
    this.dialog.className = "palette";
    this.dialog.setAttribute("aria-label", t("palette"));
    this.input.placeholder = t("palette");
    this.input.dir = "auto";
    this.list.id = "palette-list";
    const attributes = { role: "combobox", "aria-label": t("palette"), "aria-expanded": "true", "aria-controls": this.list.id };
    for (const [name, value] of Object.entries(attributes)) this.input.setAttribute(name, value);
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", t("palette"));
    this.dialog.append(this.input, this.list);
    this.append(this.dialog);
    this.input.addEventListener("input", () => this.show());
    this.dialog.addEventListener("keydown", (event) => this.onKey(event));
    this.list.addEventListener("click", (event) => {
      const option = /** @type {HTMLElement} */ (event.target).closest("li");
      if (option) this.choose(option);
    });
    document.addEventListener("palette", () => this.open());
    document.addEventListener("keydown", (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        this.open();
      }
    });
  }

  open() {
    if (this.dialog.open) return;
    this.entries = frameEntries();
    this.input.value = "";
    this.show();
    this.dialog.showModal();
    this.input.focus();
    for (const source of palette.sources) {
      source().then((found) => {
        this.entries.push(...found);
        this.show(this.index);
      }).catch(showError);
    }
  }

  /** @param {number} [index] */
  show(index = 0) {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.shown = this.entries.filter((one) => words.every((word) => one.label.toLowerCase().includes(word))).slice(0, 50);
    this.list.replaceChildren(...this.shown.map((one, place) => {
      const option = document.createElement("li");
      option.id = `palette-${place}`;
      option.setAttribute("role", "option");
      option.textContent = one.label;
      option.dir = "auto";
      return option;
    }));
    this.select(index);
  }

  /** @param {number} index */
  select(index) {
    const options = [...this.list.children];
    this.index = Math.max(0, Math.min(index, options.length - 1));
    options.forEach((one, place) => one.setAttribute("aria-selected", String(place === this.index)));
    this.input.setAttribute("aria-activedescendant", options[this.index]?.id ?? "");
    options[this.index]?.scrollIntoView({ block: "nearest" });
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) this.select(this.index + step);
    else if (event.key === "Enter") this.choose(this.list.children[this.index]);
    else return;
    event.preventDefault();
  }

  /** @param {Element | undefined} option */
  choose(option) {
    if (!option) return;
    const index = [...this.list.children].indexOf(option);
    this.dialog.close();
    this.shown[index]?.run();
  }
}

/** Links and buttons of the frame. @returns {PaletteEntry[]} */
function frameEntries() {
  const found = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".drawer a, command-palette a, .foot button, .bar button")]);
  return found.filter((one) => !one.hidden).map((one) => ({
    label: one.getAttribute("aria-label") ?? (one.querySelector("span") ?? one).textContent?.trim() ?? "",
    run: () => one.click(),
  })).filter((one) => one.label);
}

customElements.define("command-palette", CommandPalette);
