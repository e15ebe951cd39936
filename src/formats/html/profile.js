// The measurements: a tree of frames, callers before their callees. Times are nanoseconds.
'use strict';

const WALL = 0, CPU = 1, OFF = 2;

class Profile {
  constructor(data) {
    this.data = data;
    const n = data.parents.length;
    this.count = n;
    this.parent = Int32Array.from(data.parents);
    this.func = Int32Array.from(data.names);
    // What a function of the user calls elsewhere.
    this.entry = new Uint8Array(n);
    for (const node of data.entries) this.entry[node] = 1;
    // Subtrees are spans: [node, end).
    this.end = new Int32Array(n);
    this.depth = new Int32Array(n);
    this.group = new Int32Array(n);
    this.own = [new Float64Array(n), new Float64Array(n), new Float64Array(n)];
    // Observations: all, and those on a core.
    this.hits = new Float64Array(n);
    this.cpuHits = new Float64Array(n);
    const kinds = data.states.length;
    // Wall time by state, of the subtree.
    this.states = new Float64Array(n * kinds);
    for (const [node, cpu, hits, cpuHits, ...states] of data.own) {
      this.own[CPU][node] += cpu;
      this.hits[node] += hits;
      this.cpuHits[node] += cpuHits;
      for (let i = 0; i < states.length; i += 2) {
        this.own[WALL][node] += states[i + 1];
        this.states[node * kinds + states[i]] += states[i + 1];
      }
    }
    for (let node = 0; node < n; node++) {
      const parent = this.parent[node];
      this.own[OFF][node] = Math.max(0, this.own[WALL][node] - this.own[CPU][node]);
      this.end[node] = node + 1;
      this.depth[node] = parent < 0 ? 0 : this.depth[parent] + 1;
      // The root's children are groups.
      this.group[node] = parent < 0 ? -1 : parent === 0 ? node : this.group[parent];
    }
    for (let node = n - 1; node > 0; node--) {
      const parent = this.parent[node];
      this.end[parent] = Math.max(this.end[parent], this.end[node]);
      for (let state = 0; state < kinds; state++) this.states[parent * kinds + state] += this.states[node * kinds + state];
    }
    this.children = Array.from({ length: n }, () => []);
    for (let node = 1; node < n; node++) this.children[this.parent[node]].push(node);
  }

  name(node) {
    return (this.entry[node] ? '\u203a ' : '') + this.data.functions[this.func[node]][0];
  }

  // Returns [state, ns], the longest first.
  statesOf(node) {
    const kinds = this.data.states.length;
    const all = this.data.states.map((state, i) => [state, this.states[node * kinds + i]]);
    return all.filter(([, ns]) => ns > 0).sort((a, b) => b[1] - a[1]);
  }

  // Returns what the stacks of the subtree waited for, with its holder, as [text, ns], the longest
  // first.
  waitsOf(node) {
    const { waits, locks, holders } = this.data;
    const sums = new Map();
    for (const [at, lock, holder, ns] of waits) {
      if (at < node || at >= this.end[node]) continue;
      const text = 'waited for ' + locks[lock] + (holder < 0 ? '' : ', ' + holders[holder]);
      sums.set(text, (sums.get(text) ?? 0) + ns);
    }
    return [...sums].sort((a, b) => b[1] - a[1]);
  }

  // Returns the time of each node under a metric, of one group (or all: -1), of stacks with one
  // function (or all: -1).
  view(metric, group, only) {
    const n = this.count;
    const own = new Float64Array(n), total = new Float64Array(n), hits = new Float64Array(n);
    const within = new Uint8Array(n);
    for (let node = 0; node < n; node++) {
      const parent = this.parent[node];
      within[node] = only < 0 || this.func[node] === only || (parent >= 0 && within[parent]) ? 1 : 0;
      if (within[node] && (group < 0 || this.group[node] === group)) {
        own[node] = this.own[metric][node];
        hits[node] = (metric === CPU ? this.cpuHits : this.hits)[node];
      }
      total[node] = own[node];
    }
    for (let node = n - 1; node > 0; node--) {
      total[this.parent[node]] += total[node];
      hits[this.parent[node]] += hits[node];
    }
    return { metric, own, total, hits };
  }

  // Returns by function its own time and that of stacks that contain it. A recursive function
  // counts once per stack. The time of an entry is its caller's own.
  functions(view) {
    const functions = this.data.functions.map((facts, at) => ({ at, facts, own: 0, total: 0, hits: 0 }));
    const open = new Int32Array(functions.length);
    const stack = [];
    for (let node = 1; node < this.count; node++) {
      while (stack.length && this.end[stack[stack.length - 1]] <= node) open[this.func[stack.pop()]]--;
      if (this.entry[node]) {
        functions[this.func[this.parent[node]]].own += view.own[node];
        continue;
      }
      const row = functions[this.func[node]];
      row.own += view.own[node];
      if (open[row.at] === 0) {
        row.total += view.total[node];
        row.hits += view.hits[node];
      }
      open[row.at]++;
      stack.push(node);
    }
    return functions.filter((row) => row.total > 0);
  }

  // Returns a function's callers as a profile: the function below the root, its callers below it,
  // and so on outwards. A stack with several calls of it counts once, by the outermost.
  callers(at) {
    const { data } = this;
    const kinds = data.states.length;
    const parents = [-1], names = [this.func[0]];
    const own = [], waits = [];
    const places = new Map();
    const cpu = Float64Array.from(this.own[CPU]), hits = Float64Array.from(this.hits), cpuHits = Float64Array.from(this.cpuHits);
    for (let node = this.count - 1; node > 0; node--) {
      const parent = this.parent[node];
      cpu[parent] += cpu[node];
      hits[parent] += hits[node];
      cpuHits[parent] += cpuHits[node];
    }
    for (let node = 1; node < this.count; node = this.func[node] === at ? this.end[node] : node + 1) {
      if (this.func[node] !== at) continue;
      let place = 0;
      for (let outer = node; outer > 0; outer = this.parent[outer]) {
        const key = place + ' ' + this.func[outer];
        let next = places.get(key);
        if (next === undefined) {
          next = parents.push(place) - 1;
          names.push(this.func[outer]);
          places.set(key, next);
        }
        place = next;
      }
      const states = Array.from({ length: kinds }, (_, state) => [state, this.states[node * kinds + state]]);
      own.push([place, cpu[node], hits[node], cpuHits[node], ...states.filter(([, ns]) => ns > 0).flat()]);
      for (const [wait, ...facts] of data.waits) if (wait >= node && wait < this.end[node]) waits.push([place, ...facts]);
    }
    return Profile.ordered({ ...data, parents, names, own, waits });
  }

  // Returns the nodes of `data` in depth-first order, as a profile requires.
  static ordered(data) {
    const children = data.parents.map(() => []);
    data.parents.forEach((parent, node) => parent >= 0 && children[parent].push(node));
    const place = new Int32Array(data.parents.length);
    const parents = [], names = [];
    const todo = [0];
    while (todo.length) {
      const node = todo.pop();
      place[node] = parents.push(node === 0 ? -1 : place[data.parents[node]]) - 1;
      names.push(data.names[node]);
      for (const child of children[node].reverse()) todo.push(child);
    }
    const moved = (list) => list.map(([node, ...figures]) => [place[node], ...figures]);
    return new Profile({ ...data, entries: [], parents, names, own: moved(data.own), waits: moved(data.waits) });
  }

  // Returns whether there are too few observations for a reliable figure, each of them short.
  isDoubtful(value, hits) {
    return hits < 10 && value / Math.max(1, hits) < 10 * this.data.interval;
  }

  // Returns where each node is drawn: x of its left edge in units of time, the heaviest calls left;
  // and the nodes of each row.
  layout(view) {
    const left = new Float64Array(this.count);
    const rows = [[0]];
    for (let depth = 0; depth < rows.length; depth++) {
      const below = [];
      for (const node of rows[depth]) {
        let x = left[node];
        const children = this.children[node].filter((child) => view.total[child] > 0);
        children.sort((a, b) => view.total[b] - view.total[a] || a - b);
        for (const child of children) {
          left[child] = x;
          x += view.total[child];
          below.push(child);
        }
      }
      if (below.length) rows.push(below);
    }
    return { left, rows };
  }
}

// 1.234 s, 12.3 ms, 45 us
function time(ns) {
  if (ns >= 1e9) return (ns / 1e9).toFixed(3) + ' s';
  if (ns >= 1e6) return (ns / 1e6).toFixed(ns >= 1e8 ? 0 : ns >= 1e7 ? 1 : 2) + ' ms';
  return (ns / 1e3).toFixed(0) + ' us';
}

function percent(part, whole) {
  const share = whole > 0 ? (100 * part) / whole : 0;
  return share.toFixed(share >= 10 ? 1 : 2) + ' %';
}

// Compiles a search. Lower-case letters match both cases, as in the terminal; an invalid regular
// expression is searched for literally.
function pattern(text) {
  const flags = text === text.toLowerCase() ? 'iu' : 'u';
  try {
    return new RegExp(text, flags);
  } catch {
    return new RegExp(text.replace(/[\\^$.*+?()[\]{}|\/]/g, '\\$&'), flags);
  }
}
