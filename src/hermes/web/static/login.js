// Log in with the token in the address, which is never sent as part of one, or with a password.
// @ts-check

const message = /** @type {HTMLElement} */ (document.getElementById("message"));

/** @param {string} path @param {object} body */
async function logIn(path, body) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (response.ok) {
    // Kept for this origin only, while the cookie is sent to every port of the host.
    localStorage.setItem("hermes-csrf", (await response.json()).csrf);
    const next = new URL(new URLSearchParams(location.search).get("next") ?? "/", location.origin);
    location.replace(next.origin === location.origin ? next.href : "/");
    return;
  }
  message.textContent = (await response.json()).error;
}

const token = location.hash.slice(1);
if (token) {
  history.replaceState(null, "", location.pathname + location.search);
  logIn("/login/link", { token });
}
document.getElementById("password")?.addEventListener("submit", (event) => {
  event.preventDefault();
  logIn("/login/password", Object.fromEntries(new FormData(/** @type {HTMLFormElement} */ (event.target))));
});
