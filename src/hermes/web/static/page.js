// Pages with lists: search as you type, forms and buttons that change one thing.
// @ts-check
import { actions, api, ask, elements, find, localTimes, showError, stream, t, toast } from "./app.js";

let timer = 0;
/** The HTML of lists that were loaded again. @type {WeakMap<HTMLElement, string>} */
const shown = new WeakMap();

/** Load the list of a search form again. @param {HTMLFormElement} form */
async function search(form) {
  const query = new URLSearchParams(/** @type {any} */ (new FormData(form)));
  for (const [key, value] of [...query]) if (!value) query.delete(key);
  const list = document.getElementById(form.dataset.live ?? "");
  const html = await api(`/${form.dataset.url}?${query}`, undefined, { headers: { Accept: "text/plain" } });
  // What has not changed keeps its focus, selection and scroll position.
  if (list && shown.get(list) !== html) {
    shown.set(list, html);
    const focused = list.contains(document.activeElement) ? focusedPlace() : () => {};
    list.replaceChildren(elements(html));
    focused();
  }
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
}

document.addEventListener("input", (event) => {
  const form = /** @type {HTMLElement} */ (event.target).closest("form[data-live]");
  if (!(form instanceof HTMLFormElement)) return;
  clearTimeout(timer);
  timer = setTimeout(() => search(form).catch(showError), 150);
});
document.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (form.dataset.live !== undefined) {
    event.preventDefault();
    search(form).catch(showError);
  } else if (form.dataset.url !== undefined) {
    event.preventDefault();
    send(form).catch(showError);
  }
});

/** Send a form as JSON; checkboxes are booleans. @param {HTMLFormElement} form */
async function send(form) {
  /** @type {Record<string, unknown>} */
  const body = {};
  for (const one of form.elements) {
    if (!(one instanceof HTMLInputElement || one instanceof HTMLSelectElement || one instanceof HTMLTextAreaElement)) continue;
    if (one.name) body[one.name] = one.type === "checkbox" ? /** @type {HTMLInputElement} */ (one).checked : one.value;
  }
  const answer = await api(form.dataset.url ?? "", body);
  toast(answer.message ?? t("saved"));
  if (form.dataset.then !== "stay") await refresh();
}

/** Remember what has the focus, by the nearest id, and return what gives it back. */
function focusedPlace() {
  const controls = "a, button, input, select, summary, textarea";
  const active = document.activeElement;
  const holder = active?.closest("[id]");
  // Counted within the whole page, another control could get the focus.
  const id = holder && holder.id !== "main" ? holder.id : "";
  const index = holder && active ? [...holder.querySelectorAll(controls)].indexOf(active) : -1;
  return () => {
    const again = document.getElementById(id);
    const same = index < 0 ? again : again?.querySelectorAll(controls)[index];
    if (same instanceof HTMLElement) same.focus();
  };
}

/** Load the content of the page again, and keep the focus where it was. */
export async function refresh() {
  const response = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (response.redirected) location.assign(response.url);  // such as to the login
  if (!response.ok || response.redirected) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const fresh = page.getElementById("main");
  if (!fresh) return;
  localTimes(fresh);
  const focused = focusedPlace();
  document.getElementById("main")?.replaceChildren(...fresh.childNodes);
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

/** Whether the person is in the middle of something that a refresh would undo. */
function isBusy() {
  return Boolean(document.querySelector("#main :is(input, textarea, select):focus, #main [data-select]:checked, #main details[open] form"));
}

let due = 0;
/** Load the content again soon, and not while the person would lose something by it. */
function refreshSoon(delay = 200) {
  clearTimeout(due);
  due = setTimeout(() => (isBusy() ? refreshSoon(2000) : refresh().catch(showError)), delay);
}
stream.addEventListener("changed", (event) => {
  const { page } = /** @type {CustomEvent} */ (event).detail;
  if (page === document.body.dataset.page) refreshSoon();
});
stream.addEventListener("reset", () => refreshSoon());
stream.addEventListener("pending", () => {
  if (document.body.dataset.page === "approvals") refreshSoon();
});

// A list that is loaded again and again as long as its box is checked.
setInterval(() => {
  const box = document.querySelector("input[data-follow]:checked");
  const form = box?.closest("form");
  if (form && !document.hidden) search(form).catch(showError);
}, 3000);
