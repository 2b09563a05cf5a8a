// Pages with lists: search as you type, forms and buttons that change one thing.
// @ts-check
import { actions, api, ask, elements, find, localTimes, request, showError, stream, t, toast } from "./app.js";
import { changedFields, draftsOf, restore, save } from "./drafts.js";

/** Timer that waits until typing ends. */
let timer = 0;
/** Number of searches started, and the last one that ended. */
let asked = 0;
let answered = 0;
/** The HTML and tag of lists that were loaded again. @type {WeakMap<HTMLElement, {html: string, tag: string}>} */
const shown = new WeakMap();
/** Aborts the request that waits for a change. */
let waiting = new AbortController();

/**
 * Load the list of a search form again.
 * @param {HTMLFormElement} form @param {boolean} [wait] let the server answer when it has changed
 */
async function search(form, wait = false) {
  waiting.abort();
  waiting = new AbortController();
  const query = new URLSearchParams(/** @type {any} */ (new FormData(form)));
  for (const [key, value] of [...query]) if (!value) query.delete(key);
  const list = document.getElementById(form.dataset.live ?? "");
  const before = list ? shown.get(list) ?? { html: "", tag: list.dataset.tag } : undefined;
  const headers = new Headers({ Accept: "text/plain" });
  if (wait && before?.tag) headers.set("If-None-Match", before.tag);
  const number = wait ? asked : ++asked;
  const options = { headers, signal: waiting.signal };
  const response = await request(`/${form.dataset.url}?${query}`, undefined, options).finally(() => {
    if (number === asked) answered = number;
  });
  if (response.status === 304) return;
  const html = await response.text();
  // Unchanged content keeps its focus, selection and scroll position.
  if (list && before?.html !== html) {
    shown.set(list, { html, tag: response.headers.get("ETag") ?? "" });
    const focused = list.contains(document.activeElement) ? focusedPlace() : () => {};
    list.replaceChildren(elements(html));
    focused();
    document.dispatchEvent(new Event("refreshed"));
  }
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
}

/** Search; a later search ends this one. @param {HTMLFormElement} form */
function searchNow(form) {
  search(form).catch((error) => error.name === "AbortError" || showError(error));
}

document.addEventListener("input", (event) => {
  const form = /** @type {HTMLElement} */ (event.target).closest("form[data-live]");
  if (!(form instanceof HTMLFormElement)) return;
  clearTimeout(timer);
  timer = setTimeout(() => {
    timer = 0;
    searchNow(form);
  }, 150);
});
document.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (form.dataset.live !== undefined) {
    event.preventDefault();
    searchNow(form);
  } else if (form.dataset.url !== undefined) {
    event.preventDefault();
    const pressed = /** @type {SubmitEvent} */ (event).submitter;
    send(form, pressed?.dataset.url ?? form.dataset.url).catch(showError);
  }
});
document.addEventListener("change", (event) => {
  const picker = event.target;
  if (picker instanceof HTMLInputElement && picker.dataset.upload) upload(picker, picker.dataset.upload).catch(showError);
});

/** Send the file that was chosen. @param {HTMLInputElement} picker @param {string} url */
async function upload(picker, url) {
  const [file] = picker.files ?? [];
  if (!file) return;
  toast(t("uploading", { name: file.name }));
  const headers = { "Content-Type": "application/octet-stream" };
  const name = new URLSearchParams({ name: file.name });
  const answer = await api(`${url}${url.includes("?") ? "&" : "?"}${name}`, undefined, { method: "POST", body: file, headers })
    .finally(() => (picker.value = ""));
  toast(answer.message);
  await refresh();
}

/** Send a form as JSON; checkboxes are booleans. @param {HTMLFormElement} form @param {string} url */
async function send(form, url) {
  /** @type {Record<string, unknown>} */
  const body = {};
  for (const one of form.elements) {
    if (!(one instanceof HTMLInputElement || one instanceof HTMLSelectElement || one instanceof HTMLTextAreaElement)) continue;
    if (one.name) body[one.name] = one.type === "checkbox" ? /** @type {HTMLInputElement} */ (one).checked : one.value;
  }
  removeProblem(form);
  const answer = await api(url, body).catch((error) => {
    if (error.status === 400) showProblem(form, error.message);
    throw error;
  });
  toast(answer.message ?? t("saved"));
  await refresh(form);
}

/** Show next to a form field why it was rejected. @param {HTMLFormElement} form @param {string} message */
function showProblem(form, message) {
  const fields = form.querySelectorAll(":is(input, select, textarea)[name]:not([type=hidden])");
  const [field] = fields;
  // With several fields, the message names the one it is about.
  if (fields.length !== 1 || !field?.id) return;
  const problem = document.createElement("p");
  problem.className = "problem danger";
  problem.id = `${field.id}-problem`;
  problem.textContent = message;
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-describedby", problem.id);
  form.append(problem);
}

/** @param {HTMLFormElement} form */
function removeProblem(form) {
  form.querySelector(".problem")?.remove();
  const field = form.querySelector("[aria-invalid]");
  field?.removeAttribute("aria-invalid");
  field?.removeAttribute("aria-describedby");
}

/** Remember the focused element by the nearest id; return a function that restores the focus. */
function focusedPlace() {
  const controls = "a, button, input, select, summary, textarea";
  const active = document.activeElement;
  const holder = active?.closest("[id]");
  // Counting within the whole page could focus another control.
  const id = holder && holder.id !== "main" ? holder.id : "";
  const index = holder && active ? [...holder.querySelectorAll(controls)].indexOf(active) : -1;
  return () => {
    const again = document.getElementById(id);
    const same = index < 0 ? again : again?.querySelectorAll(controls)[index];
    if (same instanceof HTMLElement) same.focus();
  };
}

/**
 * Reload the content of the page, keeping the focus and input.
 * @param {HTMLFormElement | null} [sent] a form whose content is not kept
 * @param {() => boolean} [isLate] whether the content may no longer be replaced
 */
export async function refresh(sent = null, isLate = () => false) {
  const address = location.href;
  const response = await fetch(address, { headers: { Accept: "text/html" } });
  if (response.redirected) {
    save();
    location.assign(response.url);  // such as to the login
  }
  if (!response.ok || response.redirected) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const fresh = page.getElementById("main");
  if (!fresh || isLate()) return;
  // The person chose another filter meanwhile.
  if (isSearching() || location.href !== address) return refreshSoon();
  localTimes(fresh);
  const focused = focusedPlace();
  const typed = draftsOf(changedFields(sent));
  document.getElementById("main")?.replaceChildren(...fresh.childNodes);
  restore(typed);
  focused();
  document.dispatchEvent(new Event("refreshed"));
}

actions.rename = async (target) => {
  const title = await ask(target.dataset.label ?? t("new_title"), target.dataset.value ?? "");
  if (title === null) return;
  await api(target.dataset.url ?? "", { title });
  await refresh();
};
actions.delete = actions.post = async (target) => {
  if (target.dataset.confirm && (await ask(target.dataset.confirm)) === null) return;
  const body = target.dataset.body ? JSON.parse(target.dataset.body) : {};
  const answer = await api(target.dataset.url ?? "", body);
  if (answer.message) toast(answer.message);
  if (answer.location) location.assign(answer.location);
  else await refresh();
};

/** Show the answer in the element that the button controls. */
actions.show = async (target) => {
  const box = find(document, `#${CSS.escape(target.getAttribute("aria-controls") ?? "")}`);
  box.setAttribute("aria-busy", "true");
  try {
    box.replaceChildren(elements(await api(target.dataset.url ?? "", {})));
  } finally {
    box.removeAttribute("aria-busy");
  }
};

actions["add-passkey"] = async () => {
  const name = await ask(t("passkey_label"), navigator.platform || "");
  if (name === null) return;
  const { makePasskey } = await import("./passkeys.js");
  const made = await makePasskey(await api("/passkeys/options", {}), name).catch((error) => {
    throw new Error(t("passkey_failed", { reason: error.message }));
  });
  await api("/passkeys", made);
  await refresh();
};

/** Look for problems; with an id, fix that one first. @param {string} fix */
async function checkSystem(fix) {
  const button = /** @type {HTMLButtonElement} */ (find(document, "#doctor"));
  const list = find(document, "#findings");
  button.disabled = true;
  list.setAttribute("aria-busy", "true");
  try {
    list.replaceChildren(elements(await api("/system/doctor", { fix })));
  } finally {
    button.disabled = false;
    list.removeAttribute("aria-busy");
  }
}
actions.doctor = () => checkSystem("");
actions.fix = (target) => checkSystem(target.dataset.fix ?? "");

function isSearching() {
  return timer !== 0 || asked !== answered;
}

let isPressed = false;
for (const kind of ["pointerdown", "pointerup", "pointercancel"]) {
  addEventListener(kind, () => (isPressed = kind === "pointerdown"), { capture: true });
}

/** Whether a refresh would interrupt something the person is doing. */
function isBusy() {
  return isPressed || isSearching() || changedFields().length > 0 || Boolean(document.querySelector("#main :is(input, textarea, select):focus, #main [data-select]:checked, #main details[open] form"));
}

let due = 0;
/** Reload the content soon, but not while the person would lose something. */
function refreshSoon(delay = 200) {
  clearTimeout(due);
  const isLate = () => {
    if (isBusy()) refreshSoon(2000);
    return isBusy();
  };
  due = setTimeout(() => isLate() || refresh(null, isLate).catch(showError), delay);
}
stream.addEventListener("changed", (event) => {
  const { page } = /** @type {CustomEvent} */ (event).detail;
  if (page === document.body.dataset.page) refreshSoon();
});
stream.addEventListener("activity", () => document.body.dataset.page === "sessions" && refreshSoon());
stream.addEventListener("reset", () => refreshSoon());
stream.addEventListener("save", (event) => {
  if (!save()) event.preventDefault();
});
stream.addEventListener("pending", () => {
  if (document.body.dataset.page === "approvals") refreshSoon();
});

/** Keep reloading a list while its box is checked; a lost connection is shown elsewhere. */
async function follow() {
  while (true) {
    await new Promise((done) => setTimeout(done, 3000));
    const form = document.querySelector("input[data-follow]:checked")?.closest("form");
    if (!form || document.hidden || stream.lost) continue;
    await search(form, true).catch((error) => error.name === "AbortError" || error.cause || showError(error));
  }
}
follow();
