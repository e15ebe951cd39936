// Functions, summed over all their callers. Rows are created as the user scrolls to them.
'use strict';

const PIECE = 100;
const COLUMNS = [
  { key: 'own', title: 'Self', number: true, wide: false },
  { key: 'total', title: 'Total', number: true, wide: false },
  { key: 'hits', title: 'Hits', number: true, wide: true },
  { key: 'name', title: 'Function', number: false, wide: false },
  { key: 'module', title: 'Module', number: false, wide: true },
];

class Table {
  constructor(told) {
    this.told = told;
    this.sort = 'own';
    this.reverse = false;
    this.selected = -1;
    this.body = document.getElementById('rows');
    this.box = document.getElementById('methods');
    this.rows = [];
    this.heads = COLUMNS.map(({ key, title, number, wide }) => {
      const head = document.createElement('th');
      head.scope = 'col';
      head.className = (number ? 'number' : '') + (wide ? ' wide' : '');
      head.dataset.key = key;
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = title;
      button.addEventListener('click', () => {
        this.reverse = this.sort === key && !this.reverse;
        this.sort = key;
        this.arrange();
      });
      head.append(button);
      document.getElementById('columns').append(head);
      return head;
    });
    this.box.addEventListener('scroll', () => {
      if (this.box.scrollTop + this.box.clientHeight > this.box.scrollHeight - 400) this.fill();
    });
  }

  // Shows all functions, those whose names match, and what 100 % is.
  show(functions, whole) {
    this.functions = functions.filter((row) => row.facts[1] !== 'group' && row.facts[1] !== 'thread');
    this.whole = whole;
    this.arrange();
  }

  search(wanted) {
    this.wanted = wanted;
    this.arrange();
  }

  arrange() {
    const { sort, wanted } = this;
    const text = { name: 0, module: 2 }[sort];
    const order = text === undefined
      ? (a, b) => b[sort] - a[sort] || b.total - a.total || (a.facts[0] < b.facts[0] ? -1 : 1)
      : (a, b) => (a.facts[text] < b.facts[text] ? -1 : a.facts[text] > b.facts[text] ? 1 : b.own - a.own);
    this.rows = this.functions.filter((row) => !wanted || wanted[row.at]).sort(order);
    if (this.reverse) this.rows.reverse();
    COLUMNS.forEach(({ key, number }, i) => {
      const falls = number !== this.reverse;
      this.heads[i].setAttribute('aria-sort', key !== sort ? 'none' : falls ? 'descending' : 'ascending');
      this.heads[i].firstChild.textContent = COLUMNS[i].title + (key !== sort ? '' : falls ? ' \u25be' : ' \u25b4');
    });
    this.body.replaceChildren();
    this.box.scrollTop = 0;
    this.fill();
  }

  fill() {
    const from = this.body.childElementCount;
    const piece = this.rows.slice(from, from + PIECE);
    this.body.append(...piece.map((row) => this.row(row)));
    const left = this.rows.length - from - piece.length;
    document.getElementById('more').textContent = this.rows.length === 0 ? 'no function' : left > 0 ? `and ${left} more` : '';
  }

  row(row) {
    const [name, , module, file, line] = row.facts;
    const element = document.createElement('tr');
    const doubtful = this.told.isDoubtful(row.total, row.hits);
    if (doubtful) element.className = 'quiet';
    // Tab focuses the first row; arrow keys move on.
    element.tabIndex = this.body.childElementCount === 0 && row === this.rows[0] ? 0 : -1;
    element.dataset.at = row.at;
    element.setAttribute('aria-selected', row.at === this.selected);
    const cell = (text, className, title) => {
      const cell = document.createElement('td');
      cell.textContent = text;
      cell.className = className;
      if (title) cell.title = title;
      element.append(cell);
      return cell;
    };
    for (const key of ['own', 'total']) {
      const share = this.whole > 0 ? (100 * row[key]) / this.whole : 0;
      const shown = cell(row[key] > 0 ? `${time(row[key])} ${percent(row[key], this.whole)}` : '\u00b7', 'number');
      shown.style.setProperty('--share', share + '%');
    }
    cell(doubtful ? `${row.hits} ~` : row.hits, 'number wide', doubtful ? 'too few observations to be believed yet' : '');
    const place = file ? file + (line === null ? '' : ':' + line) : '';
    cell(name, '', place ? `${name}\n${place}` : name);
    cell(module.split('/').pop(), 'wide quiet', module);
    const choose = () => this.told.chosen(row.at === this.selected ? -1 : row.at);
    element.addEventListener('click', choose);
    element.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' || event.key === ' ') choose();
      else if (event.key === 'ArrowDown') element.nextElementSibling?.focus();
      else if (event.key === 'ArrowUp') element.previousElementSibling?.focus();
      else return;
      event.preventDefault();
    });
    return element;
  }

  select(at) {
    this.selected = at;
    for (const row of this.body.children) row.setAttribute('aria-selected', Number(row.dataset.at) === at);
  }
}
