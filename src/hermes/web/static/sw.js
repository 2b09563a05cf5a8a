// Opens a session when the person taps a notification that a phone shows through this worker.
// @ts-check
const worker = /** @type {any} */ (self);

/** Show the page that is open already, or open it. @param {string} url */
async function openPage(url) {
  const pages = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  const open = pages.find((/** @type {{url: string}} */ one) => one.url === url);
  return open ? open.focus() : worker.clients.openWindow(url);
}

worker.addEventListener("notificationclick", (/** @type {any} */ event) => {
  event.notification.close();
  event.waitUntil(openPage(event.notification.data));
});
