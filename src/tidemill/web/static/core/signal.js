// @ts-check
/**
 * Values that tell whoever reads them when they change.
 *
 * An effect runs at once, and again whenever a signal that it read has changed. What is made inside a scope or an
 * effect (other effects, listeners handed to `onCleanup`) ends with it.
 */

/** @typedef {{ends: Array<() => void>}} Owner */

/** @type {Owner | null} */
let owner = null;
/** @type {Effect | null} */
let reader = null;
let depth = 0;
/** @type {Set<Effect>} */
const waiting = new Set();

/** @template T */
export class Signal {
  /** @param {T} value */
  constructor(value) {
    this._value = value;
    /** @type {Set<Effect>} */
    this._readers = new Set();
  }

  get value() {
    if (reader !== null) {
      this._readers.add(reader);
      reader.sources.add(this);
    }
    return this._value;
  }

  set value(next) {
    if (Object.is(next, this._value)) return;
    this._value = next;
    batch(() => {
      for (const one of this._readers) waiting.add(one);
    });
  }

  /** The value, for whoever does not want to hear of the next one. */
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
    this.ends = [];
    /** @type {Set<Signal<any>>} */
    this.sources = new Set();
    this.isOver = false;
  }

  go() {
    if (this.isOver) return;
    this.clear();
    const [ownerBefore, readerBefore] = [owner, reader];
    owner = reader = this;
    try {
      this.run();
    } finally {
      [owner, reader] = [ownerBefore, readerBefore];
    }
  }

  clear() {
    for (const source of this.sources) source._readers.delete(this);
    this.sources.clear();
    end(this);
  }
}

/** @param {Owner} one */
function end(one) {
  for (const stop of one.ends.splice(0).reverse()) stop();
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
 * Run now, and again when something it read has changed.
 * @param {() => void} run
 * @returns {() => void} ends it
 */
export function effect(run) {
  const made = new Effect(run);
  const stop = () => {
    made.isOver = true;
    waiting.delete(made);
    made.clear();
  };
  onCleanup(stop);
  made.go();
  return stop;
}

/**
 * A signal that follows others.
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

/** Several changes, told of once. @template T @param {() => T} change @returns {T} */
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
  for (let turns = 0; waiting.size > 0; turns += 1) {
    const now = [...waiting];
    waiting.clear();
    if (turns > 100) throw new Error("effects change what they read, again and again");
    for (const one of now) {
      try {
        one.go();
      } catch (error) {
        reportError(error); // one part that cannot be shown keeps no other part from being shown
      }
    }
  }
}

/** Without being told of later changes. @template T @param {() => T} look @returns {T} */
export function untracked(look) {
  const before = reader;
  reader = null;
  try {
    return look();
  } finally {
    reader = before;
  }
}

/**
 * Everything that is made inside ends when the second part of the answer is called.
 * @template T
 * @param {() => T} make
 * @returns {[T, () => void]}
 */
export function scope(make) {
  /** @type {Owner} */
  const mine = { ends: [] };
  const [ownerBefore, readerBefore] = [owner, reader];
  owner = mine;
  reader = null;
  try {
    return [make(), () => end(mine)];
  } finally {
    [owner, reader] = [ownerBefore, readerBefore];
  }
}

/** When the scope or effect around this ends. @param {() => void} stop */
export function onCleanup(stop) {
  owner?.ends.push(stop);
}
