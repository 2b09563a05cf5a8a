// The entries of a conversation: they grow at the end, and few of them are kept in the page.
// @ts-check
import { api, elements, find, show, showImages, t, toast } from "./app.js";

const MAX_ENTRIES = 300;
/** Pixels from the edge at which more is loaded. */
const NEAR = 800;

/** @typedef {{start: number, blocks: string[], id: string, thoughts: {at: number, text: string}}} Blocks */

export class Transcript {
  /** @param {HTMLElement} root @param {() => string} session @param {() => Promise<void>} reload */
  constructor(root, session, reload) {
    this.log = find(root, "#log");
    this.scroller = find(root, ".scroll");
    this.toEnd = find(root, "[data-action=to-end]");
    this.pagers = { earlier: find(root, "[data-action=earlier]"), later: find(root, "[data-action=later]") };
    this.session = session;
    this.reload = reload;
    this.atEnd = true;
    this.isFollowing = false;
    this.lastTop = 0;
    this.isLoading = false;
    /** Ends of the pages that were removed below, nearest first; null is the last page. @type {(string | null)[]} */
    this.removed = [];
    this.scroller.addEventListener("scroll", () => this.watchScroll(), { passive: true });
    // Entries get their height when they come into view: the end moves without a scroll event.
    new ResizeObserver(() => this.follow()).observe(this.log);
    this.update();
  }

  /** Show the end of a session. @param {string} html */
  show(html) {
    const opened = [...this.log.querySelectorAll("details[open][id]")].map((one) => one.id);
    this.removed = [];
    this.log.replaceChildren(elements(html));
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
    showImages(this.log);
    this.update();
    this.follow();
  }

  get pages() {
    return /** @type {HTMLElement[]} */ ([...this.log.querySelectorAll(":scope > .page")]);
  }

  get isDetached() {
    return this.removed.length > 0;
  }

  get count() {
    return this.log.querySelectorAll(".entry").length;
  }

  update() {
    show(this.pagers.earlier, this.pages[0]?.dataset.start !== undefined);
    show(this.pagers.later, this.isDetached);
  }

  // Pages of earlier messages.

  async earlier() {
    const before = this.pages[0]?.dataset.start;
    if (before === undefined || this.isLoading) return;
    await this.load(before, (page) => {
      this.log.prepend(page);
      while (this.count > MAX_ENTRIES && this.pages.length > 1) {
        const last = this.pages.at(-1);
        this.removed.unshift(last?.dataset.before ?? null);
        last?.remove();
      }
    });
  }

  async later() {
    if (!this.isDetached || this.isLoading) return;
    const [before, ...rest] = this.removed;
    if (!before) return this.end();
    await this.load(before, (page) => {
      this.removed = rest;
      this.log.append(page);
      while (this.count > MAX_ENTRIES && this.pages.length > 1) this.pages[0]?.remove();
    });
  }

  /** @param {string} before @param {(page: DocumentFragment) => void} place */
  async load(before, place) {
    this.isLoading = true;
    try {
      const session = this.session();
      const page = elements(await api(`/chat/${session}/earlier?before=${before}`));
      if (session !== this.session()) return;
      showImages(page);
      this.keepPlace(() => place(page));
      this.update();
    } finally {
      this.isLoading = false;
    }
  }

  /** Change the transcript without moving what the reader sees. @param {() => void} change */
  keepPlace(change) {
    const top = this.scroller.getBoundingClientRect().top;
    const seen = [...this.log.querySelectorAll(".entry")].find((one) => one.getBoundingClientRect().bottom > top);
    const before = seen?.getBoundingClientRect().top ?? 0;
    change();
    if (seen?.isConnected) this.scroller.scrollTop += seen.getBoundingClientRect().top - before;
  }

  /** Load earlier pages until a message is found, then show and mark it. @param {number} seq */
  async find(seq) {
    this.atEnd = false;
    for (let start = this.start; start > seq; start = this.start) {
      // The scrolling may be loading a page.
      if (this.isLoading) await new Promise(requestAnimationFrame);
      else {
        await this.earlier();
        if (this.start === start) break;
      }
    }
    const entries = /** @type {HTMLElement[]} */ ([...this.log.querySelectorAll("[data-seq]")]);
    // The result of a tool is shown in the entry of its call.
    const entry = entries.findLast((one) => Number(one.dataset.seq) <= seq);
    if (!entry) return;
    entry.classList.add("found");
    entry.setAttribute("aria-current", "true");
    entry.scrollIntoView({ block: "center" });
    // Entries get their height when they come into view.
    requestAnimationFrame(() => entry.scrollIntoView({ block: "center" }));
  }

  /** The seq of the first message in the page, if there are earlier ones. */
  get start() {
    return Number(this.pages[0]?.dataset.start ?? -1);
  }

  /** Return the end of the session, loading it if it was removed. */
  async end() {
    this.atEnd = true;
    if (this.isDetached) await this.reload();
    this.scrollToEnd();
  }

  // Events of the stream.

  /** @param {Node} fresh */
  append(fresh) {
    if (this.isDetached) return;
    this.log.querySelector(".welcome")?.remove();
    const last = this.pages.at(-1) ?? this.log.appendChild(Object.assign(document.createElement("div"), { className: "page" }));
    last.append(fresh);
    while (this.count > MAX_ENTRIES && this.pages.length > 1) {
      this.pages[0]?.remove();
      if (this.atEnd) this.scrollToEnd();
    }
    this.update();
    if (this.count <= MAX_ENTRIES || this.isLoading) return;
    if (this.atEnd) this.reload();
    else {
      // The reader is on an earlier page: the rest is loaded at its end.
      this.removed = [null];
      this.update();
    }
  }

  /** @param {{id: string, html: string, replaces?: string, focus?: boolean}} one */
  putEntry(one) {
    const fresh = elements(one.html).firstElementChild;
    if (!fresh) return;
    const replaced = one.replaces ? document.getElementById(one.replaces) : null;
    const old = document.getElementById(one.id) ?? replaced;
    if (replaced !== old) replaced?.remove();
    if (old) {
      keepOpen(old, fresh);
      old.replaceWith(fresh);
    } else this.append(fresh);
    showImages(fresh);
    if (one.focus) toast(t("question"));
  }

  /** @param {Blocks} one */
  putBlocks(one) {
    const entry = document.getElementById(one.id);
    const body = entry?.querySelector(".md");
    if (!entry || !body) return;
    while (body.childElementCount > one.start) body.lastElementChild?.remove();
    for (const html of one.blocks) body.append(elements(html));
    if (one.start === 0) showImages(body);
    const thoughts = entry.querySelector(".reasoning .text");
    // The position counts characters; JavaScript's strings count UTF-16 units.
    if (thoughts && one.thoughts.text) {
      thoughts.textContent = [...(thoughts.textContent ?? "")].slice(0, one.thoughts.at).join("") + one.thoughts.text;
    }
  }

  /** @param {{id: string, html: string}} one */
  putCard(one) {
    const old = document.getElementById(one.id);
    const fresh = elements(one.html).firstElementChild;
    if (!fresh) return;
    if (old) {
      if (/** @type {HTMLDetailsElement} */ (old).open) fresh.setAttribute("open", "");
      old.replaceWith(fresh);
    } else this.append(fresh);
  }

  /** @param {{id: string, text: string}} one */
  addProgress(one) {
    const body = document.querySelector(`#${one.id} .body`);
    if (!body) return;
    let output = body.querySelector(".progress");
    if (!output) {
      output = document.createElement("pre");
      output.className = "progress";
      body.append(output);
    }
    output.textContent = (output.textContent + one.text).slice(-20000);
  }

  /** @param {string} text */
  addNotice(text) {
    const one = document.createElement("article");
    one.className = "entry notice";
    one.textContent = text;
    this.append(one);
  }

  // Scrolling: the end stays in view unless the person scrolled away from it.

  watchScroll() {
    const box = this.scroller;
    const below = box.scrollHeight - box.scrollTop - box.clientHeight;
    // Content that grows below does not count as scrolling away.
    const movedUp = box.scrollTop < this.lastTop;
    this.lastTop = box.scrollTop;
    this.atEnd = !this.isDetached && (below < 80 || (this.atEnd && !movedUp));
    show(this.toEnd, !this.atEnd);
    if (box.scrollTop < NEAR && !this.atEnd) this.earlier();
    else if (below < NEAR && this.isDetached) this.later();
  }

  /** At most once per frame, because reading the height forces a layout. */
  follow() {
    if (!this.atEnd || this.isFollowing) return;
    this.isFollowing = true;
    requestAnimationFrame(() => {
      this.isFollowing = false;
      if (this.atEnd) this.scrollToEnd();
    });
  }

  scrollToEnd() {
    this.scroller.scrollTo({ top: this.scroller.scrollHeight });
    this.lastTop = this.scroller.scrollTop;
  }
}

/** Keep expanded parts open when an entry is replaced. @param {Element} old @param {Element} fresh */
function keepOpen(old, fresh) {
  for (const one of old.querySelectorAll("details[open][id]")) {
    fresh.querySelector(`#${CSS.escape(one.id)}`)?.setAttribute("open", "");
  }
}
