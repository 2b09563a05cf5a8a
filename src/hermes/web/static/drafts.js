// Keep input in a page's forms when the page or its content is reloaded.
// @ts-check

/** @typedef {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} Field */
/** @typedef {{form: string, name: string, place: number, value: string | boolean, focused: boolean}} Draft */

const KEY = `hermes-forms-${location.pathname}`;
const FORMS = "#main form[data-url]:not([data-live])";
const FIELDS = ":is(input, select, textarea)[name]:not([type=hidden])";

/** @param {Field} field @returns {field is HTMLInputElement} */
function isBox(field) {
  return field instanceof HTMLInputElement && field.type === "checkbox";
}

/** @param {Field} field */
function isChanged(field) {
  if (isBox(field)) return field.checked !== field.defaultChecked;
  if (!(field instanceof HTMLSelectElement)) return field.value !== field.defaultValue;
  const chosen = [...field.options].find((one) => one.defaultSelected) ?? field.options[0];
  return field.value !== chosen?.value;
}

/** Identify a form, even if the order of forms changes. @param {HTMLFormElement} form */
function nameOf(form) {
  const hidden = /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll("input[type=hidden]")]);
  return [form.dataset.url, ...hidden.map((one) => `${one.name}=${one.value}`)].join("&");
}

/** @param {HTMLFormElement} form @param {string} name */
function fieldsOf(form, name) {
  return /** @type {Field[]} */ ([...form.querySelectorAll(FIELDS)]).filter((one) => one.name === name);
}

/** The fields that the person has changed. @param {Element | null} [except] a form that was sent */
export function changedFields(except = null) {
  const forms = [...document.querySelectorAll(FORMS)].filter((one) => one !== except);
  return forms.flatMap((one) => /** @type {Field[]} */ ([...one.querySelectorAll(FIELDS)])).filter(isChanged);
}

/** @param {Field[]} fields @returns {Draft[]} */
export function draftsOf(fields) {
  return fields.map((field) => {
    const form = /** @type {HTMLFormElement} */ (field.form);
    return {
      form: nameOf(form),
      name: field.name,
      place: fieldsOf(form, field.name).indexOf(field),
      value: isBox(field) ? field.checked : field.value,
      focused: field === document.activeElement,
    };
  });
}

/** @param {Draft[]} drafts */
export function restore(drafts) {
  const forms = /** @type {HTMLFormElement[]} */ ([...document.querySelectorAll(FORMS)]);
  for (const draft of drafts) {
    const form = forms.find((one) => nameOf(one) === draft.form);
    const field = form && fieldsOf(form, draft.name)[draft.place];
    if (!field) continue;
    if (isBox(field)) field.checked = Boolean(draft.value);
    else field.value = String(draft.value);
    for (let one = field.closest("details"); one; one = one.parentElement?.closest("details") ?? null) one.open = true;
    if (draft.focused) field.focus();
  }
}

/** Store input for this tab; false if something cannot be stored, such as a secret. */
export function save() {
  const fields = changedFields();
  const kept = fields.filter((one) => one.type !== "password" && one.dataset.secret === undefined);
  if (kept.length) sessionStorage.setItem(KEY, JSON.stringify(draftsOf(kept)));
  return kept.length === fields.length && !document.querySelector("dialog[open]");
}

const kept = sessionStorage.getItem(KEY);
sessionStorage.removeItem(KEY);
if (kept) restore(JSON.parse(kept));
