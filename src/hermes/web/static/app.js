// The frame of every page: requests, the event stream, the command palette, menus and themes.
// @ts-check

export const base = document.body.dataset.base ?? "";
const texts = JSON.parse(document.getElementById("texts")?.textContent ?? "{}");

/** @param {string} key @param {Record<string, string>} [values] */
export function t(key, values = {}) {
  return (texts[key] ?? key).replace(/\{(\w+)\}/g, (/** @type {string} */ _, /** @type {string} */ name) => values[name] ?? "");
}

/** An element that the page always has. @param {ParentNode} root @param {string} selector */
export function find(root, selector) {
  const found = root.querySelector(selector);
  if (!(found instanceof HTMLElement)) throw new Error(`there is no ${selector}`);
  return found;
}

/** @param {Element} one @param {boolean} visible */
export function show(one, visible) {
  if (one instanceof HTMLElement) one.hidden = !visible;
}

/**
 * Send a request; a failure is thrown.
 * @param {string} path @param {unknown} [body] @param {RequestInit} [options]
 */
export async function request(path, body, options = {}) {
  const headers = new Headers(options.headers);
  headers.set("X-CSRF-Token", localStorage.getItem("hermes-csrf") ?? "");
  if (body !== undefined) {
    options = { method: "POST", body: JSON.stringify(body), ...options };
    headers.set("Content-Type", "application/json");
  }
  const response = await fetch(base + path, { ...options, headers }).catch((error) => {
    throw error.name === "AbortError" ? error : new Error(t("unreachable"), { cause: error });
  });
  if (response.status === 401) logInAgain();
  if (!response.ok && response.status !== 304) {
    const error = new Error(isJson(response) ? (await response.json()).error : t("failed"));
    throw Object.assign(error, { status: response.status });
  }
  return response;
}

/** @param {Response} response */
function isJson(response) {
  return response.headers.get("Content-Type")?.startsWith("application/json") ?? false;
}

/**
 * Send a request and return what the answer contains.
 * @param {string} path @param {unknown} [body] @param {RequestInit} [options]
 */
export async function api(path, body, options = {}) {
  const response = await request(path, body, options);
  return isJson(response) ? response.json() : response.text();
}

/** Keep unsent input, unless the person logged out, and go to the login page, which returns here. */
function logInAgain() {
  if (localStorage.getItem("hermes-csrf")) stream.dispatchEvent(new Event("save"));
  location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
}

/** @param {string} message @param {string} [kind] @param {boolean} [stays] until the caller removes it */
export function toast(message, kind = "", stays = false) {
  const box = document.getElementById("toasts");
  const one = document.createElement("p");
  one.className = kind;
  one.textContent = message;
  box?.append(one);
  if (!stays) setTimeout(() => one.remove(), kind === "error" ? 8000 : 3000);
  return one;
}

/** @param {unknown} error */
export function showError(error) {
  toast(error instanceof Error ? error.message : t("failed"), "error");
}

/** Elements from HTML that our server rendered. @param {string} html */
export function elements(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  localTimes(template.content);
  return template.content;
}

/** Show times in the zone and language of the browser. @param {ParentNode} root */
export function localTimes(root) {
  for (const one of root.querySelectorAll("svg [data-at]")) {
    const at = new Date(one.getAttribute("data-at") ?? "");
    const isNear = at.getTime() - Date.now() < 36 * 3600e3;
    /** @type {Intl.DateTimeFormatOptions} */
    const style = isNear ? { timeStyle: "short" } : { weekday: "short", day: "numeric", month: "short" };
    one.textContent += ` · ${new Intl.DateTimeFormat(undefined, style).format(at)}`;
  }
  for (const one of root.querySelectorAll("time")) {
    const at = new Date(one.dateTime);
    const isToday = at.toDateString() === new Date().toDateString();
    /** @type {Intl.DateTimeFormatOptions} */
    const style = isToday ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" };
    one.textContent = new Intl.DateTimeFormat(undefined, style).format(at);
    one.title = at.toLocaleString();
  }
}

/** One event stream per page; it resumes after the last event that was handled. */
class Stream extends EventTarget {
  constructor() {
    super();
    this.session = document.body.dataset.session ?? "";
    this.position = document.body.dataset.position ?? "";
    /** @type {EventSource | null} */ this.source = null;
    /** The notice shown while the connection is lost. @type {Element | null} */
    this.lost = null;
    this.hidden = 0;
    /** Whether the page keeps listening while it is hidden. */
    this.isKept = false;
    this.kinds = ["hello", "reset", "reload", "entry", "blocks", "card", "progress", "notice",
      "remove", "run", "queue", "activity", "pending", "changed"];
    document.addEventListener("visibilitychange", () => this.watchVisibility());
    addEventListener("pagehide", () => this.source?.close());
    addEventListener("pageshow", (event) => event.persisted && this.open());
    addEventListener("online", () => this.open());
  }

  /** Browsers allow six connections per host, so hidden pages close theirs. */
  watchVisibility() {
    clearTimeout(this.hidden);
    if (document.hidden) this.hidden = setTimeout(() => this.isKept || this.source?.close(), 60000);
    else if (this.source?.readyState === EventSource.CLOSED) this.open();
  }

  /** @param {string} [session] @param {string} [position] */
  open(session = this.session, position = this.position) {
    this.source?.close();
    this.session = session;
    this.position = position;
    const query = new URLSearchParams({ session, after: position });
    const source = new EventSource(`${base}/events?${query}`);
    this.source = source;
    for (const kind of this.kinds) {
      source.addEventListener(kind, (event) => this.receive(kind, /** @type {MessageEvent} */ (event)));
    }
    source.onerror = () => {
      this.lost ??= toast(t("offline"), "error", true);
      document.body.classList.add("offline");
      // The browser does not retry on its own after an error status.
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.source === source && this.openAgain(), 2000);
    };
  }

  /** Handle an error status: the login may have ended. */
  async openAgain() {
    const { active } = await fetch("/login/state").then((response) => response.json()).catch(() => ({ active: true }));
    if (active) this.open();
    else logInAgain();
  }

  /** @param {string} kind @param {MessageEvent} event */
  receive(kind, event) {
    if (event.lastEventId) this.position = event.lastEventId;
    const detail = JSON.parse(event.data);
    if (kind === "hello") {
      if (this.lost) toast(t("online"));
      this.lost?.remove();
      this.lost = null;
      document.body.classList.remove("offline");
      if (detail.version !== document.body.dataset.version) this.reloadPage();
      return;
    }
    this.dispatchEvent(new CustomEvent(kind, { detail }));
  }

  /** Load the page of another release once no unsent input would be lost. */
  reloadPage() {
    if (this.dispatchEvent(new Event("save", { cancelable: true }))) location.reload();
    else setTimeout(() => this.reloadPage(), 2000);
  }
}

export const stream = new Stream();

/**
 * Ask in a dialog; with a value, ask for text.
 * @param {string} question @param {string | null} [value] @returns {Promise<string | null>}
 */
export function ask(question, value = null) {
  const dialog = document.createElement("dialog");
  const form = document.createElement("form");
  form.method = "dialog";
  const label = document.createElement("label");
  label.textContent = question;
  const input = document.createElement("input");
  if (value !== null) {
    input.value = value;
    input.dir = "auto";
    label.append(input);
  }
  const row = document.createElement("div");
  row.className = "row end";
  // Enter presses the first submit button, which must not be this one.
  const cancel = button(t("cancel"), "cancel");
  cancel.type = "button";
  cancel.addEventListener("click", () => dialog.close("cancel"));
  row.append(cancel, button(t(value === null ? "confirm" : "ok"), "ok", "primary"));
  form.append(label, row);
  dialog.append(form);
  document.body.append(dialog);
  dialog.showModal();
  (value === null ? find(row, "[value=ok]") : input).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "ok" ? input.value : null);
    });
  });
}

/** @param {string} label @param {string} value @param {string} [kind] */
function button(label, value, kind = "") {
  const one = document.createElement("button");
  one.textContent = label;
  one.value = value;
  one.className = kind;
  return one;
}

/** @typedef {{label: string, run: () => void}} PaletteEntry */

/** Entries of the command palette besides the frame's links and buttons.
 * @type {{sources: (() => Promise<PaletteEntry[]>)[]}} */
export const palette = { sources: [] };

/** @type {Record<string, (target: HTMLElement) => unknown>} */
export const actions = {
  menu: (target) => {
    const open = document.body.classList.toggle("menu-open");
    target.setAttribute("aria-expanded", String(open));
  },
  palette: () => document.dispatchEvent(new Event("palette")),
  notify: () => notifications.toggle(),
  theme: () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
    setTheme(now === "dark" ? "light" : "dark");
  },
  logout: async () => {
    await api("/logout", {});
    localStorage.removeItem("hermes-csrf");
    // Restore input in forms; the answer has cleared the rest.
    sessionStorage.clear();
    location.assign("/login");
  },
  copy: async (target) => {
    const code = target.closest("figure")?.querySelector("code");
    const parts = /** @type {HTMLElement[]} */ ([...(target.closest("article")?.querySelectorAll(".md") ?? [])]);
    const words = code ? code.innerText : parts.map((one) => one.dataset.source).join("\n");
    await navigator.clipboard.writeText(words);
    toast(t("copied"));
  },
  "load-image": async (target) => {
    await api("/images", { host: target.dataset.host });
    stream.dispatchEvent(new Event("save"));
    location.reload();
  },
  answer: async (target) => answer(target, target.dataset.answer ?? ""),
};

/** @param {HTMLElement} target @param {string} words */
async function answer(target, words) {
  const entry = /** @type {HTMLElement} */ (target.closest("[data-question]"));
  for (const one of entry.querySelectorAll("button")) one.disabled = true;
  try {
    await api(`/chat/${entry.dataset.session}/answer`, { question: entry.dataset.question, answer: words });
  } catch (error) {
    for (const one of entry.querySelectorAll("button")) one.disabled = false;
    throw error;
  }
}

/** @param {string} theme */
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("hermes-theme", theme);
}

/** Insert a session at its place in the menu. @param {string} session @param {string} title */
export function noteSession(session, title) {
  let link = document.querySelector(`[data-recent="${CSS.escape(session)}"]`);
  if (!(link instanceof HTMLAnchorElement)) {
    const list = document.querySelector(".recent");
    const made = document.createElement("a");
    made.href = `${base}/chat/${session}`;
    made.dataset.recent = session;
    made.dir = "auto";
    if (document.body.dataset.session === session) made.setAttribute("aria-current", "true");
    list?.querySelector("p")?.remove();
    list?.querySelector("h2")?.after(made);
    link = made;
  }
  link.textContent = title;
}

/** Show images from hosts that this browser may load from; the policy blocks all others. */
export function showImages(/** @type {ParentNode} */ root) {
  const allowed = document.body.dataset.images?.split(" ") ?? [];
  for (const one of root.querySelectorAll("button.remote-image")) {
    const { host = "", url = "", label = "" } = /** @type {HTMLElement} */ (one).dataset;
    if (!allowed.includes(host)) continue;
    const image = new Image();
    image.src = url;
    image.alt = label;
    image.referrerPolicy = "no-referrer";
    one.replaceWith(image);
  }
}

/** Shorter turns are not worth a notification. */
const WORK_SECONDS = 5;

/**
 * Notifications, if enabled. One page of this browser listens even while it is
 * hidden and shows them, unless a page has the focus.
 */
const notifications = {
  key: "hermes-notify",
  get isOn() {
    return localStorage.getItem(this.key) === "on" && globalThis.Notification?.permission === "granted";
  },

  start() {
    const button = find(document, "[data-action=notify]");
    show(button, "Notification" in globalThis && "locks" in navigator);
    button.setAttribute("aria-pressed", String(this.isOn));
    if (this.isOn) navigator.locks.request("hermes-notify", () => this.hold()).catch(showError);
  },

  /** Become the page that listens, until it is closed or notifications are turned off. */
  hold() {
    stream.isKept = true;
    return new Promise((resolve) => addEventListener("hermes-notify-off", resolve, { once: true })).then(() => {
      stream.isKept = false;
    });
  },

  async toggle() {
    const wanted = !this.isOn && (await Notification.requestPermission()) === "granted";
    localStorage.setItem(this.key, wanted ? "on" : "off");
    if (!wanted) dispatchEvent(new Event("hermes-notify-off"));
    toast(t(wanted ? "notify_on" : Notification.permission === "denied" ? "notify_denied" : "notify_off"));
    this.start();
  },

  /** @param {string} title @param {string} body @param {string} session */
  async send(title, body, session) {
    if (!this.isOn || !stream.isKept) return;
    const { held = [] } = await navigator.locks.query();
    if (held.some((one) => one.name === "hermes-focus")) return;
    const page = `${location.origin}${base}/chat/${session}`;
    const options = { body, tag: session, icon: "/static/icon.svg", data: page };
    try {
      new Notification(title, options).addEventListener("click", () => {
        focus();
        location.assign(page);
      });
    } catch {
      // Phones show notifications only through a worker.
      await (await this.worker()).showNotification(title, options);
    }
  },

  async worker() {
    const found = await navigator.serviceWorker.register("/static/sw.js");
    const worker = found.active ?? found.waiting ?? found.installing;
    while (worker && worker.state !== "activated") {
      await new Promise((resolve) => worker.addEventListener("statechange", resolve, { once: true }));
    }
    return found;
  },

  /** The focused page holds a lock, which the browser releases with the page. */
  async watchFocus() {
    if (!("locks" in navigator)) return;
    while (true) {
      if (!document.hasFocus()) await new Promise((resolve) => addEventListener("focus", resolve, { once: true }));
      await navigator.locks.request("hermes-focus", { mode: "shared" }, () =>
        new Promise((resolve) => addEventListener("blur", () => resolve(null), { once: true })));
    }
  },
};

document.addEventListener("click", (event) => {
  const target = /** @type {HTMLElement} */ (event.target).closest("[data-action]");
  if (!(target instanceof HTMLElement) || target.matches("form, select")) return;
  const action = actions[target.dataset.action ?? ""];
  if (action) Promise.resolve(action(target)).catch(showError);
});
document.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (form.dataset.action !== "answer-text") return;
  event.preventDefault();
  answer(form, String(new FormData(form).get("answer"))).catch(showError);
});
document.addEventListener("change", (event) => {
  const target = /** @type {HTMLSelectElement} */ (event.target);
  if (target.dataset.action === "profile") location.assign(target.value);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && document.body.classList.contains("menu-open")) {
    /** @type {HTMLElement} */ (document.querySelector("[data-action=menu]")).click();
  }
});

stream.addEventListener("pending", (event) => {
  const badge = document.getElementById("pending");
  const { count, label, session } = /** @type {CustomEvent} */ (event).detail;
  if (badge) badge.textContent = count ? String(count) : "";
  if (session) notifications.send(t("question"), label, session).catch(showError);
});
stream.addEventListener("activity", (event) => {
  const { session, running, title, seconds, name } = /** @type {CustomEvent} */ (event).detail;
  const link = document.querySelector(`[data-recent="${CSS.escape(session)}"]`);
  if (running !== undefined) link?.classList.toggle("live", running);
  if (title && link) link.textContent = title;
  if (seconds >= WORK_SECONDS) notifications.send(t("finished"), link?.textContent || name, session).catch(showError);
});

const theme = localStorage.getItem("hermes-theme");
if (theme) document.documentElement.dataset.theme = theme;
// Without its token the page cannot change anything; a new login brings one.
if (!localStorage.getItem("hermes-csrf")) logInAgain();
localTimes(document);
showImages(document);
stream.open();
notifications.start();
notifications.watchFocus();
