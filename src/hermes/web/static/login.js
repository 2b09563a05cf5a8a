// Log in with the token in the address, which is never sent as part of one, with a password, a
// passkey, or an OpenID Connect provider, which sends the browser back to this page.
// @ts-check

const NEXT = "hermes-next";
const message = /** @type {HTMLElement} */ (document.getElementById("message"));

/** @param {string} path @param {object} body @returns {Promise<any>} */
async function post(path, body) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

/** @param {string} path @param {object} body @param {string | null} next */
async function logIn(path, body, next = new URLSearchParams(location.search).get("next")) {
  const { csrf } = await post(path, body);
  // Kept for this origin only, while the cookie is sent to every port of the host.
  localStorage.setItem("hermes-csrf", csrf);
  goTo(next);
}

/** @param {string | null} next a path of this server */
function goTo(next) {
  const target = new URL(next ?? "/", location.origin);
  location.replace(target.origin === location.origin ? target.href : "/");
}

/** A link on another site sends no cookie, but the browser may be logged in anyway. */
async function skipLogin() {
  const next = new URLSearchParams(location.search).get("next");
  if (next === null || !localStorage.getItem("hermes-csrf")) return;
  const { active } = await (await fetch("/login/state")).json();
  if (active) goTo(next);
}

async function usePasskey() {
  const passkeys = await import("./passkeys.js");
  const options = await post("/login/passkey/options", {});
  await logIn("/login/passkey", await passkeys.usePasskey(options));
}

async function askProvider() {
  sessionStorage.setItem(NEXT, new URLSearchParams(location.search).get("next") ?? "/");
  location.assign((await post("/login/oidc/begin", {})).url);
}

/** Finish a login after the provider returned the browser. */
async function finishProvider() {
  const { state = "", code = "", error = "" } = Object.fromEntries(new URLSearchParams(location.search));
  history.replaceState(null, "", "/login");
  await logIn("/login/oidc", { state, code, error }, sessionStorage.getItem(NEXT));
}

/** @param {() => Promise<void>} work */
async function attempt(work) {
  message.textContent = "";
  try {
    await work();
  } catch (error) {
    message.textContent = error instanceof Error ? error.message : String(error);
  }
}

/** Use the token in the URL, even if the link is opened while this page is shown. */
function useLink() {
  const token = location.hash.slice(1);
  if (!token) return false;
  history.replaceState(null, "", location.pathname + location.search);
  attempt(() => logIn("/login/link", { token }));
  return true;
}

addEventListener("hashchange", useLink);
if (!useLink()) attempt(location.pathname === "/auth/callback" ? finishProvider : skipLogin);
document.getElementById("passkey")?.addEventListener("click", () => attempt(usePasskey));
document.getElementById("oidc")?.addEventListener("click", () => attempt(askProvider));
document.getElementById("password")?.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
  attempt(() => logIn("/login/password", Object.fromEntries(form)));
});
