// The chat page: shows a conversation as it happens, and sends messages, files and answers.
// @ts-check
import { actions, api, base, elements, find, noteSession, palette, show, showError, stream, t, toast } from "./app.js";
import { Completion } from "./completion.js";
import { Transcript } from "./transcript.js";

/** @typedef {{digest: string, media_type: string, name: string}} FileRef */
/** @typedef {{name: string, usage: string, summary: string}} Command */

class HermesChat extends HTMLElement {
  session = document.body.dataset.session ?? "";
  form = /** @type {HTMLFormElement} */ (find(this, ".composer"));
  input = /** @type {HTMLTextAreaElement} */ (find(this, "#message"));
  mode = /** @type {HTMLSelectElement} */ (find(this, "#mode"));
  transcript = new Transcript(this, () => this.session, () => this.reload().catch(showError));
  completion = new Completion(this.input, find(this, "#completion"), () => this.session);
  /** @type {FileRef[]} */ files = [];
  /** @type {Command[]} */ commands = [];
  replaces = "";
  /** Choices made by commands before the first message. */
  unsaved = "";
  running = false;
  here = true;

  connectedCallback() {
    this.setRunning(this.dataset.running !== undefined, this.dataset.here !== undefined, this.dataset.source ?? "");
    this.restoreDraft();
    this.listen();
    this.transcript.scrollToEnd();
    this.input.focus({ preventScroll: true });
    const at = new URLSearchParams(location.search).get("at");
    if (at) this.transcript.find(Number(at)).catch(showError);
  }

  listen() {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send().catch(showError);
    });
    this.input.addEventListener("input", () => this.typed());
    this.input.addEventListener("keydown", (event) => this.onKey(event));
    this.addEventListener("paste", (event) => this.take(event.clipboardData?.files, event));
    for (const kind of ["dragover", "dragleave", "drop"]) {
      document.addEventListener(kind, () => this.form.classList.toggle("target", kind === "dragover"));
    }
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => this.take(event.dataTransfer?.files, event));
    const picker = /** @type {HTMLInputElement} */ (find(this, "#file"));
    picker.addEventListener("change", () => this.take(picker.files).then(() => (picker.value = "")));
    const model = /** @type {HTMLSelectElement} */ (find(this, "#model"));
    let chosen = model.value;
    model.addEventListener("focus", () => this.loadModels(model).catch(showError), { once: true });
    model.addEventListener("change", () => {
      this.submit({ session: this.session, text: `/model ${model.value}` }).then(() => (chosen = model.value), (error) => {
        model.value = chosen;
        showError(error);
      });
    });
    const cancel = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: t("cancel") });
    cancel.addEventListener("click", () => this.cancelEdit());
    find(this, "#editing").append(t("editing"), cancel);
    this.listenToStream();
  }

  listenToStream() {
    const log = this.transcript;
    /** @type {Record<string, (detail: any) => void>} */
    const handlers = {
      entry: (one) => log.putEntry(one),
      blocks: (one) => log.putBlocks(one),
      card: (one) => log.putCard(one),
      progress: (one) => log.addProgress(one),
      remove: (one) => document.getElementById(one.id)?.remove(),
      notice: (one) => (one.passing ? this.setStatus(one.text) : log.addNotice(one.text)),
      run: (one) => this.setRunning(one.running, one.here ?? true, one.source ?? ""),
      queue: (one) => this.showQueue(one.texts),
      reload: () => this.reload().catch(showError),
      reset: () => this.reload().catch(showError),
    };
    for (const [kind, handle] of Object.entries(handlers)) {
      stream.addEventListener(kind, (event) => {
        handle(/** @type {CustomEvent} */ (event).detail);
        log.follow();
      });
    }
    stream.addEventListener("save", () => this.saveDraft());
    stream.addEventListener("activity", (event) => {
      const { session, title } = /** @type {CustomEvent} */ (event).detail;
      if (session === this.session && title) this.setTitle(title);
    });
  }

  /** @param {boolean} running @param {boolean} here @param {string} source */
  setRunning(running, here, source) {
    this.running = running;
    this.here = here;
    this.toggleAttribute("data-running", running);
    show(find(this, "[data-action=stop]"), running && here);
    show(this.mode, running && here);
    const elsewhere = source && source !== "web" ? t("running_from", { source }) : t("busy_elsewhere");
    this.setStatus(!running ? "" : here ? t("running") : elsewhere);
  }

  /** @param {string} text */
  setStatus(text) {
    find(this, "#status").textContent = text;
  }

  /** @param {string[]} texts */
  showQueue(texts) {
    const list = find(this, "#queue");
    list.replaceChildren(...texts.map((text) => Object.assign(document.createElement("li"), { textContent: text, dir: "auto" })));
    show(list, texts.length > 0);
  }

  /** Load the end of the transcript again, and continue the stream exactly where it ends. */
  async reload() {
    if (!this.session) return;
    const view = await api(`/chat/${this.session}/transcript`);
    this.setTitle(view.title);
    this.setRunning(view.running, view.here, view.source);
    this.showQueue(view.queue);
    stream.open(this.session, view.position);
    this.transcript.show(view.html);
  }

  /** @param {string} title */
  setTitle(title) {
    find(this, "#title").textContent = title;
    document.title = `${title} · Hermes`;
    if (this.session) noteSession(this.session, title);
  }

  // Actions of the person.

  async send() {
    const text = this.input.value;
    const isSending = this.form.classList.contains("sending");
    if (isSending || (!text.trim() && !this.files.length)) return;
    const mode = this.running ? this.mode.value : "send";
    const body = { session: this.session, text, files: [...this.files], mode, replaces: this.replaces };
    this.form.classList.add("sending");
    try {
      await this.transcript.end();
      await this.submit(body);
    } finally {
      this.form.classList.remove("sending");
    }
    // Keep what the person typed meanwhile.
    if (this.input.value.startsWith(text)) this.input.value = this.input.value.slice(text.length);
    this.files = this.files.filter((one) => !body.files.includes(one));
    if (this.replaces === body.replaces) this.replaces = "";
    this.showFiles();
    this.typed();
  }

  /** @param {object} body */
  async submit(body) {
    const answer = await api("/chat/send", { ...body, unsaved: this.unsaved });
    this.unsaved = answer.unsaved ?? "";
    if (answer.session && answer.session !== this.session) await this.enter(answer.session);
    else if (answer.reload) await this.reload();
    if (answer.html) this.transcript.putEntry(answer);
    this.transcript.follow();
  }

  /** Show another session in this page. @param {string} session */
  async enter(session) {
    for (const one of this.drafts) one.removeItem(this.draftKey);
    this.session = session;
    document.body.dataset.session = session;
    history.replaceState(null, "", `${base}/chat/${session}`);
    show(find(this, "#branches"), true);
    await this.reload();
  }

  /** Add the models that the providers offer. @param {HTMLSelectElement} list */
  async loadModels(list) {
    for (const { provider, models } of await api("/chat/models")) {
      const group = Object.assign(document.createElement("optgroup"), { label: provider });
      for (const name of models) {
        const value = `${name} --provider ${provider}`;
        if (![...list.options].some((one) => one.value === value)) group.append(new Option(name, value));
      }
      if (group.childElementCount) list.append(group);
    }
  }

  /** @param {FileList | undefined | null} list @param {Event} [event] */
  async take(list, event) {
    if (!list?.length) return;
    event?.preventDefault();
    for (const file of list) {
      toast(t("uploading", { name: file.name }));
      try {
        const query = new URLSearchParams({ name: file.name });
        const headers = { "Content-Type": file.type || "application/octet-stream" };
        this.files.push(await api(`/chat/files?${query}`, undefined, { method: "POST", body: file, headers }));
        this.showFiles();
      } catch (error) {
        showError(error);
      }
    }
  }

  showFiles() {
    const list = find(this, "#files");
    list.replaceChildren(...this.files.map((file, index) => {
      const one = document.createElement("li");
      const remove = document.createElement("button");
      remove.type = "button";
      remove.textContent = "×";
      remove.setAttribute("aria-label", `${t("remove")} ${file.name}`);
      remove.addEventListener("click", () => {
        this.files.splice(index, 1);
        this.showFiles();
      });
      one.append(file.name, remove);
      return one;
    }));
    show(list, this.files.length > 0);
    this.saveDraft();
  }

  async stop() {
    this.setStatus(t("stopping"));
    const { texts } = await api(`/chat/${this.session}/stop`, {});
    this.input.value = [...texts, this.input.value].filter(Boolean).join("\n");
    this.typed();
    this.input.focus();
  }

  /** @param {HTMLElement} entry */
  edit(entry) {
    this.replaces = entry.dataset.message ?? "";
    this.input.value = entry.querySelector(".text")?.textContent ?? "";
    this.typed();
    this.input.focus();
  }

  /** @param {HTMLElement} entry */
  async retry(entry) {
    await this.submit({ session: this.session, text: "", replaces: entry.dataset.message });
  }

  /** Continue from an answer in a copy of the session. @param {HTMLElement} entry */
  async branch(entry) {
    const { session } = await api(`/chat/${this.session}/branch`, { message: entry.dataset.message });
    location.assign(`${base}/chat/${session}`);
  }

  cancelEdit() {
    this.replaces = "";
    this.input.value = "";
    this.typed();
    this.input.focus();
  }

  /** Download a file that a tool wrote. @param {string} path */
  async download(path) {
    const response = await fetch(`${base}/chat/${this.session}/file?${new URLSearchParams({ path })}`);
    if (!response.ok) throw new Error((await response.json()).error);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await response.blob());
    link.download = path.split("/").at(-1) ?? "";
    link.click();
    URL.revokeObjectURL(link.href);
  }

  async branches() {
    const dialog = document.createElement("dialog");
    const heading = Object.assign(document.createElement("h2"), { textContent: t("branches"), id: "family" });
    dialog.setAttribute("aria-labelledby", "family");
    const form = Object.assign(document.createElement("form"), { method: "dialog", className: "row end" });
    form.append(Object.assign(document.createElement("button"), { textContent: t("close") }));
    dialog.append(heading, elements(await api(`/chat/${this.session}/branches`)), form);
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  // Typing: the draft survives, and suggestions appear.

  get draftKey() {
    return `hermes-draft-${base}-${this.session || "new"}`;
  }

  /** Each tab keeps its own draft; a session's draft is later available in other tabs, too. */
  get drafts() {
    return this.session ? [sessionStorage, localStorage] : [sessionStorage];
  }

  saveDraft() {
    const draft = { text: this.input.value, files: this.files, replaces: this.replaces };
    for (const one of this.drafts) {
      if (draft.text || draft.files.length) one.setItem(this.draftKey, JSON.stringify(draft));
      else one.removeItem(this.draftKey);
    }
  }

  restoreDraft() {
    const kept = this.drafts.map((one) => one.getItem(this.draftKey)).find(Boolean);
    const draft = JSON.parse(kept ?? "null");
    if (draft) {
      this.input.value = draft.text;
      this.files = draft.files;
      this.replaces = draft.replaces;
      this.showFiles();
    }
    this.typed();
  }

  typed() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight, innerHeight * 0.4)}px`;
    show(find(this, "#editing"), Boolean(this.replaces));
    this.saveDraft();
    this.completion.update().catch(showError);
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (event.isComposing) return;
    if (this.completion.takesKey(event)) event.preventDefault();
    else if (event.key === "Escape" && this.replaces) this.cancelEdit();
    else if (event.key === "Escape" && this.running && this.here) this.stop().catch(showError);
    else if (event.key === "Enter" && !event.shiftKey && !this.breaksLine(event)) this.form.requestSubmit();
    else return;
    event.preventDefault();
  }

  /** The keyboard of a touch screen has no Shift+Enter. @param {KeyboardEvent} event */
  breaksLine(event) {
    return matchMedia("(pointer: coarse)").matches && !event.ctrlKey && !event.metaKey;
  }

  async paletteEntries() {
    if (!this.commands.length) this.commands = await api("/chat/commands");
    return this.commands.map((one) => ({
      label: `/${one.name} ${one.summary}`,
      run: () => {
        this.input.value = `/${one.name} `;
        this.typed();
        this.input.focus();
      },
    }));
  }
}

customElements.define("hermes-chat", HermesChat);
const chat = /** @type {HermesChat} */ (document.querySelector("hermes-chat"));
palette.sources.push(() => chat.paletteEntries());
/** @param {HTMLElement} target */
const entryOf = (target) => /** @type {HTMLElement} */ (target.closest("article"));
Object.assign(actions, {
  attach: () => find(chat, "#file").click(),
  stop: () => chat.stop(),
  edit: (/** @type {HTMLElement} */ target) => chat.edit(entryOf(target)),
  retry: (/** @type {HTMLElement} */ target) => chat.retry(entryOf(target)),
  branch: (/** @type {HTMLElement} */ target) => chat.branch(entryOf(target)),
  branches: () => chat.branches(),
  download: (/** @type {HTMLElement} */ target) => chat.download(target.dataset.path ?? ""),
  earlier: () => chat.transcript.earlier(),
  later: () => chat.transcript.later(),
  "to-end": () => chat.transcript.end(),
});
