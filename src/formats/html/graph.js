// The flame graph, on a canvas as large as its visible part. A row costs as much as it has pixels,
// however many frames there are.
'use strict';

const ROW = 19;
const NARROW = 0.6;

class Graph {
  constructor(profile, colours, told) {
    Object.assign(this, { profile, colours, told });
    this.canvas = document.getElementById('canvas');
    this.scroll = document.getElementById('scroll');
    this.space = document.getElementById('space');
    this.pen = this.canvas.getContext('2d');
    this.down = true;
    this.zoom = 0;
    this.hover = -1;
    this.at = -1;
    this.marked = null;
    this.view = null;
    this.asked = false;
    new ResizeObserver(() => this.resize()).observe(this.scroll);
    // Distance of the visible part's lower edge from the bottom.
    this.below = 0;
    this.scroll.addEventListener('scroll', () => {
      const { scrollHeight, scrollTop, clientHeight } = this.scroll;
      if (clientHeight === this.height) this.below = scrollHeight - scrollTop - clientHeight;
      this.ask();
    });
    this.canvas.addEventListener('mousemove', (event) => this.point(this.hit(event), event));
    this.canvas.addEventListener('mouseleave', () => this.point(-1));
    this.canvas.addEventListener('click', (event) => {
      const node = this.hit(event);
      if (node >= 0) this.select(node, true);
    });
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    this.canvas.addEventListener('focus', () => {
      if (this.at < 0) this.select(this.zoom, false);
    });
  }

  // Shows another metric, group or filter: the zoom stays if the zoomed frame has time in it.
  // Another profile resets the zoom.
  show(profile, view) {
    if (profile !== this.profile) {
      this.profile = profile;
      this.zoom = 0;
      this.at = this.hover = -1;
    }
    this.view = view;
    const { left, rows } = this.profile.layout(view);
    Object.assign(this, { left, rows });
    while (this.zoom > 0 && view.total[this.zoom] === 0) this.zoom = this.profile.parent[this.zoom];
    if (this.at >= 0 && view.total[this.at] === 0) this.at = -1;
    this.zoomTo(this.zoom);
  }

  zoomTo(node) {
    this.zoom = node;
    let deepest = 0;
    // A node's subtree lies between the node's edges.
    for (let depth = 0; depth < this.rows.length; depth++) {
      if (this.range(depth)[0] >= 0) deepest = depth;
    }
    this.deepest = deepest;
    const top = this.scroll.scrollTop;
    this.space.style.height = (deepest + 1) * ROW + 'px';
    this.below = 0;
    this.scroll.scrollTop = this.down ? Math.min(top, this.profile.depth[node] * ROW) : this.scroll.scrollHeight;
    this.told.zoomed(node);
    this.ask();
  }

  // Returns the first and last of a row's frames within the zoomed range; [-1, -1]: none.
  range(depth) {
    const row = this.rows[depth];
    const { left, view: { total } } = this;
    const from = left[this.zoom], till = from + total[this.zoom];
    let low = 0, high = row.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (left[row[middle]] + total[row[middle]] <= from) low = middle + 1;
      else high = middle;
    }
    const first = low;
    high = row.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (left[row[middle]] < till) low = middle + 1;
      else high = middle;
    }
    return first < low ? [first, low - 1] : [-1, -1];
  }

  resize() {
    const { clientWidth, clientHeight } = this.scroll;
    const scale = window.devicePixelRatio || 1;
    this.width = clientWidth;
    this.height = clientHeight;
    this.canvas.width = Math.round(clientWidth * scale);
    this.canvas.height = Math.round(clientHeight * scale);
    this.canvas.style.height = clientHeight + 'px';
    this.pen.setTransform(scale, 0, 0, scale, 0, 0);
    if (!this.down) this.scroll.scrollTop = this.scroll.scrollHeight - clientHeight - this.below;
    if (this.view) this.draw();
  }

  ask() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.draw();
    });
  }

  // Returns the row's position on the canvas.
  y(depth) {
    const row = this.down ? depth : this.deepest - depth;
    const room = this.down ? 0 : Math.max(0, this.height - (this.deepest + 1) * ROW);
    return row * ROW - this.scroll.scrollTop + room;
  }

  draw() {
    const { pen, width, height, profile, view, left, marked } = this;
    if (!view || !width) return;
    const style = getComputedStyle(document.documentElement);
    pen.fillStyle = style.getPropertyValue('background-color');
    pen.clearRect(0, 0, width, height);
    pen.font = '12px ' + style.getPropertyValue('--mono');
    pen.textBaseline = 'middle';
    const letter = pen.measureText('m').width;
    const from = left[this.zoom];
    const scale = view.total[this.zoom] > 0 ? width / view.total[this.zoom] : 0;
    const above = profile.depth[this.zoom];
    for (let depth = 0; depth <= this.deepest; depth++) {
      const y = this.y(depth);
      if (y + ROW < 0 || y > height) continue;
      const row = this.rows[depth];
      let [at, last] = this.range(depth);
      if (at < 0) continue;
      while (at <= last) {
        const node = row[at];
        const x = Math.max(0, (left[node] - from) * scale);
        const right = Math.min(width, (left[node] + view.total[node] - from) * scale);
        if (right - x < NARROW) {
          // One stroke for all frames within this pixel.
          let low = at + 1, high = last + 1;
          while (low < high) {
            const middle = (low + high) >> 1;
            if ((left[row[middle]] + view.total[row[middle]] - from) * scale < x + 1) low = middle + 1;
            else high = middle;
          }
          pen.globalAlpha = 0.55;
          pen.fillStyle = this.colours.of(node);
          pen.fillRect(x, y, 1, ROW - 1);
          pen.globalAlpha = 1;
          at = low;
          continue;
        }
        const faded = depth < above || (marked && !marked[profile.func[node]]);
        pen.globalAlpha = faded ? 0.42 : 1;
        pen.fillStyle = marked && marked[profile.func[node]] ? '#ff9de2' : this.colours.of(node);
        pen.fillRect(x, y, Math.max(NARROW, right - x - (right - x > 3 ? 1 : 0)), ROW - 1);
        pen.globalAlpha = 1;
        if (node === this.hover || node === this.at) {
          pen.strokeStyle = style.color;
          pen.lineWidth = node === this.at ? 2 : 1;
          pen.strokeRect(x + 1, y + 1, Math.max(1, right - x - 3), ROW - 3);
        }
        const letters = Math.floor((right - x - 8) / letter);
        if (letters >= 3) {
          const name = this.label(node);
          const short = name.length > letters ? name.slice(0, letters - 1) + '\u2026' : name;
          pen.fillStyle = faded ? style.color : '#15171a';
          pen.fillText(short, x + 4, y + ROW / 2);
        }
        at++;
      }
    }
  }

  label(node) {
    return node === 0 ? 'all' : this.profile.name(node);
  }

  hit(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const row = Math.floor((y - this.y(this.down ? 0 : this.deepest)) / ROW);
    const depth = this.down ? row : this.deepest - row;
    if (depth < 0 || depth > this.deepest) return -1;
    const [first, last] = this.range(depth);
    if (first < 0) return -1;
    const value = this.left[this.zoom] + (x / this.width) * this.view.total[this.zoom];
    let low = first, high = last + 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      const node = this.rows[depth][middle];
      if (this.left[node] + this.view.total[node] <= value) low = middle + 1;
      else high = middle;
    }
    const node = this.rows[depth][low];
    return node !== undefined && low <= last && this.left[node] <= value ? node : -1;
  }

  point(node, event) {
    if (node !== this.hover) {
      this.hover = node;
      this.canvas.style.cursor = node >= 0 ? 'pointer' : '';
      this.ask();
    }
    this.told.pointed(node, event);
  }

  // Selects the frame that keys start from.
  select(node, zoom) {
    this.at = node;
    this.told.selected(node);
    if (zoom) this.zoomTo(node);
    const y = this.y(this.profile.depth[node]);
    if (y < 0) this.scroll.scrollTop += y;
    if (y + ROW > this.height) this.scroll.scrollTop += y + ROW - this.height;
    this.ask();
  }

  key(event) {
    const { profile } = this;
    const node = this.at < 0 ? this.zoom : this.at;
    const depth = profile.depth[node];
    const beside = (step) => this.rows[depth][this.rows[depth].indexOf(node) + step] ?? node;
    const below = () => (this.rows[depth + 1] ?? []).find((child) => profile.parent[child] === node) ?? node;
    const outer = () => Math.max(0, profile.parent[node]);
    switch (event.key) {
      case 'ArrowLeft': this.select(beside(-1), false); break;
      case 'ArrowRight': this.select(beside(1), false); break;
      case 'ArrowDown': this.select(this.down ? below() : outer(), false); break;
      case 'ArrowUp': this.select(this.down ? outer() : below(), false); break;
      case 'Home': this.select(0, true); break;
      case 'Enter': case ' ': this.select(node, true); break;
      default: return;
    }
    event.preventDefault();
  }
}
