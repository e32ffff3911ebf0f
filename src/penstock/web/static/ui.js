// What is open stays open when a form comes back; buttons for browsers without script go away; what a
// request of a script could not do is shown at the top of the page.
document.documentElement.classList.add("script");
(function () {
  let open = [];
  function trouble(text) {
    const place = document.getElementById("trouble");
    place.className = text ? "fault" : "";
    place.textContent = text;
  }
  document.addEventListener("htmx:beforeSwap", function () {
    trouble("");
    open = [...document.querySelectorAll("details[id][open]")].map((each) => each.id);
  });
  document.addEventListener("htmx:afterSwap", function () {
    for (const id of open) {
      const found = document.getElementById(id);
      if (found) found.open = true;
    }
  });
  document.addEventListener("htmx:sendError", function () {
    trouble("These pages do not answer. If they were stopped, start them again: penstock ui");
  });
  document.addEventListener("htmx:responseError", function (event) {
    const status = event.detail.xhr.status;
    trouble(
      status === 403
        ? "This request is refused. If the pages were started again, open the address that penstock ui prints in another tab, and go on here."
        : "This was not answered (" + status + "). Load the page again."
    );
  });
})();
