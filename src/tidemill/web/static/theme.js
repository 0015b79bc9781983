// Before anything is painted: the theme that was chosen here, if any. Not a module, for those come later.
(function () {
  try {
    const chosen = JSON.parse(localStorage.getItem("tidemill.theme") ?? "null");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // A browser that keeps nothing has the system's theme.
  }
})();
