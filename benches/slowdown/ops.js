// JavaScript that counts what it does, as ops.py. Argument: how many workers wait beside it.
//
// For each line on standard input it prints operations, its CPU time and the clock, ns.
'use strict';
const { Worker, isMainThread } = require('worker_threads');

const records = Array.from({ length: 20 }, (_, id) => ({ id, name: `name ${id}`, tags: ['a', String(id)] }));
const pattern = /(\w+) (\d+)/g;
let done = 0;

function* evens(numbers) {
  for (const number of numbers) if (number % 2 === 0) yield number;
}

function operation() {
  const text = JSON.stringify(records);
  const found = [...text.matchAll(pattern)].sort((a, b) => b[2] - a[2]);
  let sum = found.length;
  for (const even of evens(JSON.parse(text).map((record) => record.id))) sum += even;
  return sum;
}

function deep(depth) {
  return depth === 0 ? operation() : deep(depth - 1) + 1;
}

// Some milliseconds at a time, as a server between two turns of its loop.
function work() {
  for (let n = 0; n < 100; n += 1) deep(20);
  done += 100;
  setImmediate(work);
}

if (isMainThread) {
  for (let n = Number(process.argv[2]); n > 0; n -= 1) new Worker(__filename);
  process.stdin.on('data', () => {
    const { user, system } = process.cpuUsage();
    console.log(done, (user + system) * 1000, Number(process.hrtime.bigint()));
  });
  setTimeout(() => console.log('ready'), 1000);
  work();
} else {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}
