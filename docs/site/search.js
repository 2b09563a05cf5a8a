// Search the headings and text of all pages; the index is loaded when the field gets the focus.
const field = document.getElementById("search");
const results = document.getElementById("results");
const root = document.querySelector("script[data-root]").dataset.root;
let index;

field.addEventListener("focus", async () => {
  index ??= await (await fetch(`${root}search.json`)).json();
});
field.addEventListener("input", show);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== field) {
    event.preventDefault();
    field.focus();
  }
  if (event.key === "Escape") results.hidden = true;
});

function show() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length && index ? ranked(words).slice(0, 12) : [];
  results.replaceChildren(...found.map(row));
  results.hidden = found.length === 0;
}

function ranked(words) {
  const scored = index.map((entry) => [score(entry, words), entry]).filter(([points]) => points);
  return scored.sort((a, b) => b[0] - a[0]).map(([, entry]) => entry);
}

function score(entry, words) {
  const heading = entry.heading.toLowerCase();
  const text = entry.text.toLowerCase();
  if (!words.every((word) => heading.includes(word) || text.includes(word))) return 0;
  return 1 + words.filter((word) => heading.includes(word)).length * 5;
}

function row(entry) {
  const link = document.createElement("a");
  link.href = root + entry.address;
  link.textContent = entry.heading;
  const page = document.createElement("small");
  page.textContent = entry.page;
  link.append(page);
  const item = document.createElement("li");
  item.append(link);
  return item;
}
