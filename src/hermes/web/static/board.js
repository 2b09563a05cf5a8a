// The board: drag a task to another column, move it with the keyboard, or change several at once.
// @ts-check
import { api, find, show, showError, t, toast } from "./app.js";
import { refresh } from "./page.js";

class TaskBoard extends HTMLElement {
  connectedCallback() {
    this.addEventListener("dragstart", (event) => {
      const task = /** @type {HTMLElement} */ (event.target).closest(".task");
      event.dataTransfer?.setData("text/plain", /** @type {HTMLElement} */ (task).dataset.task ?? "");
    });
    this.addEventListener("dragover", (event) => {
      event.preventDefault();
      this.mark(column(event));
    });
    this.addEventListener("dragleave", () => this.mark(null));
    this.addEventListener("drop", (event) => {
      event.preventDefault();
      event.stopPropagation();
      const status = column(event)?.dataset.status;
      const task = event.dataTransfer?.getData("text/plain");
      this.mark(null);
      if (status && task) this.move(task, status);
    });
    // Arrow keys change a list at once, so a keyboard choice only counts once it is confirmed.
    this.addEventListener("change", (event) => {
      const field = /** @type {HTMLElement} */ (event.target);
      if (field.matches("[data-select]")) this.countSelected();
      else if (field instanceof HTMLSelectElement && !field.dataset.typed) this.choose(field);
    });
    this.addEventListener("focusout", (event) => {
      const select = /** @type {HTMLElement} */ (event.target);
      if (select instanceof HTMLSelectElement && select.dataset.typed) this.choose(select);
    });
    this.addEventListener("keydown", (event) => this.onKey(event));
    this.addEventListener("submit", (event) => {
      event.preventDefault();
      this.changeSelected().catch(showError);
    });
    // Reloaded tasks are not selected.
    document.addEventListener("refreshed", () => this.isConnected && this.countSelected());
    this.addEventListener("reset", () => {
      for (const one of this.selected) one.checked = false;
      this.countSelected();
    });
  }

  /** Names the board, if it is not the current one. */
  get query() {
    return this.dataset.query ?? "";
  }

  get selected() {
    return /** @type {HTMLInputElement[]} */ ([...this.querySelectorAll("[data-select]:checked")]);
  }

  countSelected() {
    const count = this.selected.length;
    find(this, "#selected").textContent = t("selected", { count: String(count) });
    show(find(this, "#bulk"), count > 0);
  }

  async changeSelected() {
    const form = /** @type {HTMLFormElement} */ (find(this, "#bulk"));
    const fields = new FormData(form);
    const body = {
      ids: this.selected.map((one) => one.dataset.select),
      status: fields.get("status"),
      assignee: fields.get("assignee"),
      priority: fields.get("priority"),
      archive: fields.has("archive"),
    };
    const answer = await api(`/board/tasks/bulk${this.query}`, body);
    toast(answer.message);
    for (const one of answer.errors) toast(one, "error");
    await refresh();
  }

  /** Shift and an arrow moves the task that has the focus. @param {KeyboardEvent} event */
  onKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const target = /** @type {HTMLElement} */ (event.target);
    if (target instanceof HTMLSelectElement) {
      if (event.key === "Enter") this.choose(target);
      else target.dataset.typed = "yes";
      return;
    }
    const task = /** @type {HTMLElement | null} */ (target.closest(".task"));
    if (!step || !event.shiftKey || !task) return;
    event.preventDefault();
    const columns = /** @type {HTMLElement[]} */ ([...this.querySelectorAll(".column")]).filter(
      (one) => one.dataset.open !== undefined || one.contains(task),
    );
    const next = columns[columns.indexOf(/** @type {HTMLElement} */ (task.closest(".column"))) + step];
    if (next?.dataset.status) this.move(task.dataset.task ?? "", next.dataset.status);
  }

  /** @param {HTMLSelectElement} select */
  choose(select) {
    delete select.dataset.typed;
    const task = /** @type {HTMLElement | null} */ (select.closest(".task"));
    const now = /** @type {HTMLElement | null} */ (select.closest(".column"))?.dataset.status;
    if (task?.dataset.task && select.value !== now) this.move(task.dataset.task, select.value);
  }

  /** @param {string} task @param {string} status */
  async move(task, status) {
    try {
      await api(`/board/tasks/${task}/change${this.query}`, { status });
    } catch (error) {
      showError(error);
    }
    await refresh();
    /** @type {HTMLElement | null} */ (document.querySelector(`#task-${CSS.escape(task)} a`))?.focus();
  }

  /** @param {HTMLElement | null} chosen */
  mark(chosen) {
    for (const one of this.querySelectorAll(".column")) one.classList.toggle("over", one === chosen);
  }
}

/** @param {Event} event @returns {HTMLElement | null} */
function column(event) {
  return /** @type {HTMLElement} */ (event.target).closest(".column");
}

customElements.define("task-board", TaskBoard);
