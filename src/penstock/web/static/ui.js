// What is open stays open when a form comes back, and buttons for browsers without script go away.
document.documentElement.classList.add("script");
(function () {
  let open = [];
  document.addEventListener("htmx:beforeSwap", function () {
    open = [...document.querySelectorAll("details[id][open]")].map((each) => each.id);
  });
  document.addEventListener("htmx:afterSwap", function () {
    for (const id of open) {
      const found = document.getElementById(id);
      if (found) found.open = true;
    }
  });
})();
