// Connects the page: applies the user's choices to all parts.
'use strict';

(() => {
  const element = (id) => document.getElementById(id);
  const data = JSON.parse(element('data').textContent);
  const levels = data.levels.map((tree) => new Profile({ ...data, ...tree }));
  let whole = levels[data.level];
  // The graph's profile: the whole, or the callers of a function.
  let profile = whole;
  const colours = new Colours(profile);
  const chosen = { metric: data.metric, group: -1, only: -1, callers: -1, marked: -1, search: '' };
  let view;

  const make = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const graph = new Graph(profile, colours, {
    zoomed(node) {
      element('reset').disabled = node === 0;
      element('canvas').setAttribute('aria-label', `Flame graph of ${graph.label(node)}`);
    },
    pointed(node, event) {
      tell(node, event);
    },
    selected(node) {
      element('line').textContent = sentence(node);
    },
  });
  const table = new Table({
    chosen(at) {
      chosen.marked = at;
      table.select(at);
      mark();
    },
    isDoubtful: (value, hits) => profile.isDoubtful(value, hits),
  });

  // Formats time, share of the shown time, and the average of threads or cores.
  function sentence(node) {
    const value = view.total[node];
    if (value === 0) return `${graph.label(node)}  no such time was seen`;
    const average = data.elapsed > 0 ? (value / data.elapsed).toFixed(2) : '0';
    const what = chosen.metric === CPU ? 'cores' : 'threads';
    return `${graph.label(node)}  ${time(value)} (${percent(value, view.total[0])}), self ${time(view.own[node])}, ` +
      `${average} ${what}, ${view.hits[node]} hits${profile.isDoubtful(value, view.hits[node]) ? ', too few to be believed yet' : ''}`;
  }

  function tell(node, event) {
    const tip = element('tip');
    tip.hidden = node < 0;
    if (node < 0) return;
    const [, kind, module, file, line, role] = profile.data.functions[profile.func[node]];
    tip.replaceChildren(make('b', '', graph.label(node)));
    const place = file ? file + (line === null ? '' : ':' + line) : module;
    if (place && node > 0) tip.append(make('div', 'place', `${place}${kind === 'native' ? '' : '  [' + kind + ']'}${role === 'app' || role === kind ? '' : '  [' + role + ']'}`));
    const list = make('dl');
    const row = (name, ns) => {
      list.append(make('dt', '', name), make('dd', '', time(ns)), make('dd', '', percent(ns, view.total[0])));
    };
    row('total', view.total[node]);
    row('self', view.own[node]);
    if (graph.zoom > 0 && profile.depth[node] > profile.depth[graph.zoom]) {
      list.append(make('dt', '', 'of the zoom'), make('dd'), make('dd', '', percent(view.total[node], view.total[graph.zoom])));
    }
    tip.append(list);
    const states = profile.statesOf(node);
    const whole = states.reduce((sum, [, ns]) => sum + ns, 0);
    if (whole > 0 && chosen.only < 0) {
      const bar = make('div', 'states');
      for (const [state, ns] of states) {
        const part = make('i');
        part.style.cssText = `width:${(100 * ns) / whole}%;background:${STATE_COLOURS[state]}`;
        bar.append(part);
      }
      const words = states.slice(0, 4).map(([state, ns]) => `${state} ${percent(ns, whole)}`);
      tip.append(bar, make('p', 'words', words.join(', ')));
      for (const [text, ns] of profile.waitsOf(node).slice(0, 3)) tip.append(make('p', 'words', `${text}: ${time(ns)}`));
    }
    const box = tip.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, innerWidth - box.width - 8);
    const y = event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 18;
    tip.style.left = Math.max(4, x) + 'px';
    tip.style.top = Math.max(4, y) + 'px';
  }

  function refresh() {
    view = whole.view(chosen.metric, chosen.group, chosen.only);
    table.show(whole.functions(view), view.total[0]);
    if (profile !== whole) view = profile.view(chosen.metric, -1, -1);
    graph.show(profile, view);
    mark();
    element('line').textContent = sentence(graph.zoom);
    element('legend').replaceChildren(...colours.legend().map(([name, colour]) => {
      const entry = make('span', '', name);
      const square = make('i');
      square.style.background = colour;
      entry.prepend(square);
      return entry;
    }));
  }

  // Highlights matches of the search, or else the function chosen in the table. Shows their time.
  function mark() {
    const { search, marked, only } = chosen;
    let wanted = null;
    if (search) {
      const found = pattern(search);
      wanted = whole.data.functions.map(([name]) => found.test(name));
      table.search(wanted);
    } else if (table.wanted) {
      table.search(null);
    }
    if (!wanted && marked >= 0) wanted = whole.data.functions.map((_, at) => at === marked);
    let sum = 0, frames = 0;
    for (let node = 1; wanted && node < profile.count; node++) {
      if (!wanted[profile.func[node]] || view.total[node] === 0) continue;
      frames++;
      // A match below another match is included in it.
      let outer = profile.parent[node];
      while (outer > 0 && !wanted[profile.func[outer]]) outer = profile.parent[outer];
      if (outer <= 0) sum += view.total[node];
    }
    element('matched').textContent = wanted ? `${percent(sum, view.total[0])} in ${frames} frame${frames === 1 ? '' : 's'}` : '';
    const button = element('only');
    button.hidden = only < 0 && marked < 0;
    const name = whole.data.functions[only >= 0 ? only : Math.max(0, marked)][0];
    button.textContent = only >= 0 ? `\u2715 only with ${name}` : `Only stacks with ${name}`;
    const other = element('callers');
    other.hidden = chosen.callers < 0 && marked < 0;
    other.textContent = chosen.callers >= 0 ? `\u2715 callers of ${whole.data.functions[chosen.callers][0]}` : 'Its callers';
    graph.marked = wanted;
    graph.ask();
  }

  function choice(id, names, checked, change) {
    names.forEach((name, at) => {
      const label = make('label');
      const input = make('input');
      Object.assign(input, { type: 'radio', name: id, value: at, checked: at === checked });
      input.addEventListener('change', () => change(at));
      label.append(input, name);
      element(id).append(label);
    });
  }

  document.title = `${data.title} - sampletop`;
  element('title').textContent = data.title;
  element('title').title = data.title;
  element('conditions').textContent = data.conditions;
  element('head').textContent = data.head;
  for (const sentence of data.sentences) {
    element('sentences').appendChild(document.createElement('li')).textContent = sentence;
  }
  const [deadlocks, locks] = data.lock_counts;
  if (deadlocks + locks > 0) {
    const several = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;
    const box = element('locks');
    const parts = [deadlocks ? several(deadlocks, 'deadlock') : '', locks ? `${several(locks, 'lock')} that threads waited for` : ''];
    box.hidden = false;
    box.open = deadlocks > 0;
    box.className = deadlocks > 0 ? 'stuck' : '';
    box.firstElementChild.textContent = parts.filter((part) => part).join(', ');
    box.lastElementChild.textContent = data.locks;
  }
  choice('metrics', ['Wall', 'CPU', 'Off CPU'], chosen.metric, (at) => {
    chosen.metric = at;
    refresh();
  });
  choice('directions', ['Icicle', 'Flame'], 0, (at) => {
    graph.down = at === 0;
    graph.zoomTo(graph.zoom);
  });
  const groups = element('groups');
  const option = (text, value) => {
    const made = make('option', '', text);
    made.value = value;
    groups.append(made);
  };
  const listGroups = () => {
    groups.replaceChildren();
    option(`all ${whole.children[0].length}`, -1);
    for (const node of whole.children[0]) {
      const threads = whole.data.functions[whole.func[node]][4];
      option(`${whole.name(node)} (${threads} thread${threads === 1 ? '' : 's'})`, node);
    }
  };
  listGroups();
  groups.addEventListener('change', () => {
    chosen.group = Number(groups.value);
    refresh();
    graph.zoomTo(chosen.group < 0 || view.total[chosen.group] === 0 ? 0 : chosen.group);
  });
  element('colours').addEventListener('change', (event) => {
    colours.choose(profile, event.target.value);
    refresh();
  });
  element('search').addEventListener('input', (event) => {
    chosen.search = event.target.value;
    mark();
  });
  element('reset').addEventListener('click', () => graph.zoomTo(0));
  element('only').addEventListener('click', () => {
    if (chosen.callers >= 0) callersOf(-1);
    chosen.only = chosen.only < 0 ? chosen.marked : -1;
    refresh();
  });
  const callersOf = (at) => {
    chosen.callers = at;
    profile = at < 0 ? whole : whole.callers(at);
    // The callers view covers all groups and stacks.
    chosen.group = chosen.only = chosen.marked = -1;
    table.select(-1);
    groups.value = -1;
    groups.disabled = at >= 0;
    colours.choose(profile, colours.by);
    refresh();
  };
  choice('levels', ['Your code', 'All'], data.level, (at) => {
    whole = levels[at];
    listGroups();
    callersOf(-1);
    graph.zoomTo(0);
  });
  element('callers').addEventListener('click', () => callersOf(chosen.callers < 0 ? chosen.marked : -1));
  const dark = matchMedia('(prefers-color-scheme: dark)');
  dark.addEventListener('change', () => graph.ask());
  element('theme').addEventListener('click', () => {
    const root = document.documentElement;
    const now = root.dataset.theme ?? (dark.matches ? 'dark' : 'light');
    root.dataset.theme = now === 'dark' ? 'light' : 'dark';
    graph.ask();
  });
  document.addEventListener('keydown', (event) => {
    const typing = ['INPUT', 'SELECT'].includes(event.target.tagName) && event.target.type !== 'radio';
    if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey) {
      element('search').focus();
      element('search').select();
      event.preventDefault();
    } else if (event.key === 'Escape') {
      // Undoes one choice at a time: the search, the chosen function, the filter, the zoom.
      if (chosen.search) {
        element('search').value = chosen.search = '';
      } else if (chosen.marked >= 0) {
        chosen.marked = -1;
        table.select(-1);
      } else if (chosen.callers >= 0) {
        callersOf(-1);
      } else if (chosen.only >= 0) {
        chosen.only = -1;
        refresh();
      } else if (graph.zoom > 0) {
        graph.select(profile.parent[graph.zoom], true);
      }
      mark();
      event.preventDefault();
    }
  });
  refresh();
})();
