// What is open stays open when a form comes back; buttons for browsers without script go away; what a
// request of a script could not do is shown at the top of the page.
document.documentElement.classList.add("script");
(function () {
  let open = [];
  let at = null;
  // How an element is found again in the form that comes back.
  function focused(element) {
    const details = element.tagName === "SUMMARY" && element.closest("details[id]");
    if (details) return "#" + CSS.escape(details.id) + " > summary";
    if (!element.name) return null;
    const value = element.matches("button, [type=checkbox], [type=radio]") ? "[value=" + JSON.stringify(element.value) + "]" : "";
    return "[name=" + JSON.stringify(element.name) + "]" + value;
  }
  function trouble(text) {
    const place = document.getElementById("trouble");
    place.className = text ? "fault" : "";
    place.textContent = text;
  }
  // What is typed while an answer is on its way stays: that answer is left, and the form is sent
  // again. A text that is not saved is not replaced.
  let typed = false;
  let left = false;
  let unsaved = false;
  document.addEventListener("input", function (event) {
    if (event.target.closest("#editor")) typed = true;
    if (event.target.closest("#editor, form[data-saves]")) unsaved = true;
  });
  const unsavedText = "The text of the file has changes that are not saved. Save the text first, or load the page again.";
  document.addEventListener("submit", function (event) {
    const text = document.getElementById("yaml");
    if (text && text.value !== text.defaultValue && event.target.closest("#editor") && !event.target.contains(text)) {
      event.preventDefault();
      trouble(unsavedText);
      window.scrollTo(0, 0);
      return;
    }
    if (event.target.closest("#editor, form[data-saves]")) unsaved = false;
  });
  // The text of a chosen file, or a chosen day, goes into its field before the form is sent.
  function choose(event) {
    const from = event.target;
    const into = from.dataset && document.getElementById(from.dataset.into);
    if (into && from.type === "date" && from.value) {
      into.value = from.value + (from.dataset.form === "time" ? "T00:00:00Z" : "");
    } else if (into && from.files && from.files.length) {
      from.files[0].text().then(function (text) {
        into.value = text;
        unsaved = true;
      });
    }
  }
  document.addEventListener("change", choose, true);
  window.addEventListener("beforeunload", function (event) {
    if (unsaved) event.preventDefault();
  });
  document.addEventListener("htmx:beforeRequest", function () {
    typed = left = false;
  });
  document.addEventListener("focusout", function (event) {
    const form = event.target.closest("#editor form[hx-post]");
    if (left && form) form.dispatchEvent(new Event("change"));
    left = false;
  });
  document.addEventListener("htmx:beforeSwap", function (event) {
    trouble("");
    if (event.detail.target.id === "editor") {
      const text = document.getElementById("yaml");
      if (text.value !== text.defaultValue) {
        event.detail.shouldSwap = false;
        trouble(unsavedText);
      } else if (typed) {
        event.detail.shouldSwap = false;
        left = true;
      }
    }
    open = [...document.querySelectorAll("details[id][open]")].map((each) => each.id);
    at = focused(document.activeElement);
  });
  document.addEventListener("htmx:afterSwap", function () {
    for (const id of open) {
      const found = document.getElementById(id);
      if (found) found.open = true;
    }
    const same = at && document.activeElement === document.body && document.querySelector(at);
    if (same) same.focus();
  });
  const away = "These pages do not answer. If they were stopped, start them again: penstock ui";
  const refused = "This request is refused. If the pages were started again, open the address that penstock ui prints in another tab, and go on here.";
  document.addEventListener("htmx:sendError", function () {
    trouble(away);
  });
  // A run goes on without its page. Where the pages were started again, this one is not asked on.
  document.addEventListener("htmx:sseError", function (event) {
    const live = event.target;
    fetch(location.href, { method: "HEAD" }).then(
      function (answer) {
        trouble(answer.status === 403 ? refused : "");
        if (answer.status === 403) live.replaceWith(live.cloneNode(true));
      },
      function () {
        trouble(away + ". The run goes on.");
      }
    );
  });
  document.addEventListener("htmx:responseError", function (event) {
    const status = event.detail.xhr.status;
    trouble(status === 403 ? refused : "This was not answered (" + status + "). Load the page again.");
  });
})();
