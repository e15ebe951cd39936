// Colours of frames: light enough in both themes for dark letters.
'use strict';

const STATE_COLOURS = {
  run: '#8fce8b', rdy: '#ecd36b', lock: '#f0938c', wait: '#86cfd6', io: '#93b9f2',
  poll: '#c3c7ce', sleep: '#b3b8c1', disk: '#d9a3dd', stopped: '#d0b49f',
};
const KIND_HUES = { native: 28, java: 128, python: 52, jit: 172, kernel: 282 };
const ROLE_COLOURS = {
  app: '#f2b36b', library: '#93b9f2', runtime: '#c3c7ce', wait: '#86cfd6', kernel: '#d9a3dd',
};
const PLAIN = '#d5d8de';

function hash(text) {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  return hash >>> 0;
}

class Colours {
  constructor(profile) {
    this.profile = profile;
    this.by = 'state';
    this.known = new Map();
  }

  choose(profile, by) {
    this.profile = profile;
    this.by = by;
    this.known.clear();
  }

  of(node) {
    const key = this.by === 'state' ? node : this.profile.func[node];
    let colour = this.known.get(key);
    if (colour === undefined) {
      colour = this.find(node);
      this.known.set(key, colour);
    }
    return colour;
  }

  find(node) {
    const [name, kind, module, , , role] = this.profile.data.functions[this.profile.func[node]];
    if (kind === 'group' || kind === 'thread' || node === 0) return PLAIN;
    switch (this.by) {
      case 'state': {
        const main = this.profile.statesOf(node)[0];
        return main ? STATE_COLOURS[main[0]] : PLAIN;
      }
      case 'role': return ROLE_COLOURS[role] ?? PLAIN;
      case 'kind': {
        const hue = KIND_HUES[kind];
        return hue === undefined ? '#bcc0c7' : `hsl(${hue + (hash(name) % 17) - 8} 68% ${70 + (hash(name + 'l') % 9)}%)`;
      }
      default:
        return module ? `hsl(${hash(module) % 360} 55% 74%)` : '#bcc0c7';
    }
  }

  // Returns [name, colour] of the present categories, the most frequent first.
  legend() {
    const { profile } = this;
    if (this.by === 'state') return profile.statesOf(0).map(([state]) => [state, STATE_COLOURS[state]]);
    const seen = new Map();
    for (let node = 1; node < profile.count; node++) {
      const [, kind, module, , , role] = profile.data.functions[profile.func[node]];
      if (kind === 'group' || kind === 'thread') continue;
      const name = this.by === 'role' ? role : this.by === 'kind' ? kind : module.split('/').pop() || '(none)';
      const colour = this.by === 'kind' && KIND_HUES[kind] !== undefined ? `hsl(${KIND_HUES[kind]} 68% 74%)` : this.of(node);
      const entry = seen.get(name) ?? [name, colour, 0];
      entry[2] += profile.own[WALL][node];
      seen.set(name, entry);
    }
    return [...seen.values()].sort((a, b) => b[2] - a[2]).slice(0, 12);
  }
}
