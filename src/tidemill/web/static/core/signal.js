// @ts-check
/**
 * Signals: values that rerun the effects that read them.
 *
 * An effect runs immediately, and again when a signal it read changes. Everything that is created inside a scope or an
 * effect, such as other effects and `onCleanup` callbacks, ends with it.
 */

/** @typedef {{cleanups: Array<() => void>}} Owner */

/** @type {Owner | null} */
let activeOwner = null;
/** @type {Effect | null} */
let activeEffect = null;
let depth = 0;
/** @type {Set<Effect>} */
const pendingEffects = new Set();

/** @template T */
export class Signal {
  /** @param {T} value */
  constructor(value) {
    this._value = value;
    /** @type {Set<Effect>} */
    this._subscribers = new Set();
  }

  get value() {
    if (activeEffect !== null) {
      this._subscribers.add(activeEffect);
      activeEffect.sources.add(this);
    }
    return this._value;
  }

  set value(next) {
    if (Object.is(next, this._value)) return;
    this._value = next;
    batch(() => {
      for (const one of this._subscribers) pendingEffects.add(one);
    });
  }

  /** The value, without subscribing to changes. */
  peek() {
    return this._value;
  }

  /** @param {(value: T) => T} change */
  update(change) {
    this.value = change(this._value);
  }
}

class Effect {
  /** @param {() => void} run */
  constructor(run) {
    this.run = run;
    /** @type {Array<() => void>} */
    this.cleanups = [];
    /** @type {Set<Signal<any>>} */
    this.sources = new Set();
    this.isOver = false;
  }

  execute() {
    if (this.isOver) return;
    this.reset();
    const [previousOwner, previousEffect] = [activeOwner, activeEffect];
    activeOwner = activeEffect = this;
    try {
      this.run();
    } finally {
      [activeOwner, activeEffect] = [previousOwner, previousEffect];
    }
  }

  reset() {
    for (const source of this.sources) source._subscribers.delete(this);
    this.sources.clear();
    runCleanups(this);
  }
}

/** @param {Owner} owner */
function runCleanups(owner) {
  for (const stop of owner.cleanups.splice(0).toReversed()) stop();
}

/**
 * @template T
 * @param {T} value
 * @returns {Signal<T>}
 */
export function signal(value) {
  return new Signal(value);
}

/**
 * Runs a function now, and again when a signal it read changes.
 * @param {() => void} run
 * @returns {() => void} stops the effect
 */
export function effect(run) {
  const made = new Effect(run);
  const stop = () => {
    made.isOver = true;
    pendingEffects.delete(made);
    made.reset();
  };
  onCleanup(stop);
  made.execute();
  return stop;
}

/**
 * A signal whose value is computed from other signals.
 * @template T
 * @param {() => T} compute
 * @returns {Signal<T>}
 */
export function computed(compute) {
  /** @type {Signal<any>} */
  const made = new Signal(undefined);
  effect(() => {
    made.value = compute();
  });
  return made;
}

/** Groups several changes, so that effects run once. @template T @param {() => T} change @returns {T} */
export function batch(change) {
  depth += 1;
  try {
    return change();
  } finally {
    try {
      if (depth === 1) flush();
    } finally {
      depth -= 1;
    }
  }
}

function flush() {
  for (let rounds = 0; pendingEffects.size > 0; rounds += 1) {
    const now = [...pendingEffects];
    pendingEffects.clear();
    if (rounds > 100) throw new Error("Effects keep changing the signals that they read");
    for (const one of now) {
      try {
        one.execute();
      } catch (error) {
        reportError(error); // an error in one effect must not stop the others
      }
    }
  }
}

/** Runs a function without subscribing to the signals it reads. @template T @param {() => T} read @returns {T} */
export function untracked(read) {
  const before = activeEffect;
  activeEffect = null;
  try {
    return read();
  } finally {
    activeEffect = before;
  }
}

/**
 * Runs a function and returns its result and a function that ends everything created in it.
 * @template T
 * @param {() => T} make
 * @returns {[T, () => void]}
 */
export function effectScope(make) {
  /** @type {Owner} */
  const mine = { cleanups: [] };
  const [previousOwner, previousEffect] = [activeOwner, activeEffect];
  activeOwner = mine;
  activeEffect = null;
  try {
    return [make(), () => runCleanups(mine)];
  } finally {
    [activeOwner, activeEffect] = [previousOwner, previousEffect];
  }
}

/** Registers a callback for the end of the surrounding scope or effect. @param {() => void} stop */
export function onCleanup(stop) {
  activeOwner?.cleanups.push(stop);
}
