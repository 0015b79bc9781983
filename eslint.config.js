import js from "@eslint/js";

const FILES = "src/tidemill/web/static";

/** Forbids imports that match the patterns, so that dependencies point one way only: screens → ui → core. */
function forbidImports(folder, group, message) {
  return { files: [`${FILES}/${folder}/**/*.js`], rules: { "no-restricted-imports": ["error", { patterns: [{ group, message }] }] } };
}

export default [
  { ignores: ["*", "!src"] },
  {
    files: [`${FILES}/**/*.js`],
    ...js.configs.recommended,
    languageOptions: { ecmaVersion: "latest", sourceType: "module" },
    linterOptions: { reportUnusedDisableDirectives: "error", reportUnusedInlineConfigs: "error" },
    rules: {
      ...js.configs.recommended.rules,
      "no-undef": "off", // TypeScript reports undefined names, and knows the browser's
      "array-callback-return": "error",
      eqeqeq: "error",
      "grouped-accessor-pairs": "error",
      "no-alert": "error",
      "no-console": "error",
      "no-constructor-return": "error",
      "no-duplicate-imports": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-lonely-if": "error",
      "no-loop-func": "error",
      "no-new-func": "error",
      "no-script-url": "error",
      "no-self-compare": "error",
      "no-shadow": ["error", { allow: ["signal"] }], // an AbortSignal; also the function that creates a Signal
      "no-template-curly-in-string": "error",
      "no-throw-literal": "error",
      "no-unneeded-ternary": "error",
      "no-unreachable-loop": "error",
      "no-unused-expressions": "error",
      "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
      "no-useless-computed-key": "error",
      "no-useless-concat": "error",
      "no-useless-rename": "error",
      "no-useless-return": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      "prefer-object-spread": "error",
      "prefer-rest-params": "error",
      "prefer-spread": "error",
      "prefer-template": "error",
      radix: "error",
    },
  },
  { files: [`${FILES}/theme.js`], languageOptions: { sourceType: "script" } },
  forbidImports("core", ["**/ui/*", "**/screens/*"], "core/ does not depend on ui/ or screens/"),
  forbidImports("ui", ["**/screens/*"], "ui/ does not depend on screens/"),
];
