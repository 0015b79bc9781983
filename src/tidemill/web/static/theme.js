// Applies the stored theme before the first paint. Not a module, because modules run later.
(function () {
  try {
    const chosen = JSON.parse(localStorage.getItem("tidemill.theme") ?? "null");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage is unavailable: use the system's theme.
  }
})();
